package confine

import (
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	w := newWorld(t, Config{})
	t.Log(w.sandbox.Status())
	for _, c := range []struct {
		name, line string
		exit       int
		out        string
	}{
		{"output", "echo hi", 0, "hi\n"},
		{"exit code", "echo x; exit 7", 7, "x\n"},
		{"signal of its own", "kill -9 $$", 137, ""},
		{"process substitution", "cat <(echo in)", 0, "in\n"},
		{"ends a moment after the shell", "echo late > >(sleep 0.01; cat)", 0, "late\n"},
		{"no terminal", "(read x </dev/tty) 2>/dev/null || echo none", 0, "none\n"},
		{"standard input is empty", "cat; echo end", 0, "end\n"},
		{"home", "echo $HOME; touch ~/x && ls ~", 0, "/agent/home\nx\n"},
		{"tmp", "touch /tmp/y && ls /tmp", 0, "y\n"},
		{"who", "whoami", 0, "root\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, out := w.run(c.line)
			if o.Exit != c.exit || out != c.out {
				t.Errorf("exit %d, output %q", o.Exit, out)
			}
		})
	}
	_, out := w.run("ls -la / /dev /agent /proc/1 /etc; id; cat /proc/self/status /proc/self/mountinfo /proc/self/uid_map; ls -l /proc/self/fd; ulimit -a; env")
	t.Log(out)
	if strings.Contains(out, "zzz") {
		t.Fail()
	}
}

func BenchmarkConfined(b *testing.B) {
	w := newWorld(b, Config{Limits: Limits{Memory: 4 << 30, Processes: 512}})
	for b.Loop() {
		w.run("true")
	}
}

func BenchmarkPlain(b *testing.B) {
	w := newWorld(b, Config{})
	for b.Loop() {
		w.plain("true")
	}
}
