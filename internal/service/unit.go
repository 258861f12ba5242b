package service

import (
	"fmt"
	"strings"
	"time"
)

// Unit returns the systemd unit for an installation.
//
// It restarts whatever happens and never gives up, one second after an end. A
// stop is told to the program alone (KillMode=mixed), which ends the commands of
// its agents itself; what is left when it is gone, or when it takes too long, is
// killed. A command that runs out of memory does not take the daemon with it.
func Unit(c Config) (string, error) {
	if err := c.check(); err != nil {
		return "", err
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }

	line("[Unit]")
	line("Description=%s: %s", specifiers(c.name()), Description)
	if !c.User {
		line("Wants=network-online.target")
		line("After=network-online.target")
	}
	line("StartLimitIntervalSec=0")

	line("\n[Service]")
	line("Type=exec")
	words := []string{word(c.Executable)}
	for _, a := range c.arguments() {
		// Variables are expanded in arguments, but not in the program's path.
		words = append(words, word(strings.ReplaceAll(a, "$", "$$")))
	}
	line("ExecStart=%s", strings.Join(words, " "))
	if c.WorkingDir != "" {
		line("WorkingDirectory=%s", specifiers(c.WorkingDir))
	}
	if c.RunAs != "" {
		line("User=%s", specifiers(c.RunAs))
	}
	if c.Path != "" {
		line("Environment=%s", quote("PATH="+c.Path))
	}
	if c.EnvFile != "" {
		// The minus: it need not exist.
		line("EnvironmentFile=-%s", specifiers(c.EnvFile))
	}
	line("Restart=always")
	line("RestartSec=1")
	line("KillMode=mixed")
	line("TimeoutStopSec=%d", int((c.StopTimeout+stopMargin).Round(time.Second)/time.Second))
	line("OOMPolicy=continue")
	// So that the kernel keeps the limits of commands, each in a cgroup of its own.
	line("Delegate=memory pids")
	line("StandardOutput=journal")
	line("StandardError=journal")

	line("\n[Install]")
	if c.User {
		line("WantedBy=default.target")
	} else {
		line("WantedBy=multi-user.target")
	}
	return b.String(), nil
}

// specifiers keeps systemd from expanding % in a value.
func specifiers(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// word writes one word of a command line.
func word(s string) string {
	plain := !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@=,$", r))
	})
	if plain && s != "" {
		return s
	}
	return quote(s)
}

// quote writes a quoted word.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(s) + `"`
}
