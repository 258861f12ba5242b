//go:build faults

package fault

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Enabled says whether this build obeys the environment.
const Enabled = true

// The variables that a build with faults obeys.
const (
	crashVariable = "GASUPERVISOR_INTERNAL_CRASH"
	failVariable  = "GASUPERVISOR_INTERNAL_FAIL"
)

// plan is what the environment asks for. It is the process's, as its death is.
type plan struct {
	mu sync.Mutex
	// at is the point to crash at, in the passing that makes left 0.
	at   string
	left int
	// chance is the probability of a crash at any point.
	chance float64
	dice   *rand.Rand

	failing    string
	failChance float64
	failDice   *rand.Rand
}

var theirs = sync.OnceValue(func() *plan {
	p, err := parse(os.Getenv(crashVariable), os.Getenv(failVariable))
	if err != nil {
		panic("fault: " + err.Error())
	}
	return p
})

// Point is a place to crash at.
func Point(name string) {
	if theirs().crashes(name) {
		fmt.Fprintln(os.Stderr, "fault: crash at", name)
		die()
	}
}

// Error returns the error that an operation is to fail with, nil for none.
func Error(name string) error {
	if theirs().fails(name) {
		return fmt.Errorf("injected at %s: %w", name, syscall.ENOSPC)
	}
	return nil
}

func die() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		p.Kill()
	}
	// Nothing after the point may happen, however long the signal takes.
	select {}
}

func (p *plan) crashes(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dice != nil {
		return p.dice.Float64() < p.chance
	}
	if p.at != name {
		return false
	}
	p.left--
	return p.left == 0
}

func (p *plan) fails(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failDice != nil && (p.failing == "" || p.failing == "*" || p.failing == name) && p.failDice.Float64() < p.failChance
}

func parse(crash, fail string) (*plan, error) {
	p := &plan{}
	var err error
	switch {
	case crash == "":
	case strings.HasPrefix(crash, "random:"):
		p.dice, p.chance, err = parseDice(strings.TrimPrefix(crash, "random:"))
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", crashVariable, crash, err)
		}
	default:
		name, n, ok := strings.Cut(crash, ":")
		p.at = name
		if p.left, err = strconv.Atoi(n); !ok || err != nil || p.left < 1 {
			return nil, fmt.Errorf("%s=%s: want point:n", crashVariable, crash)
		}
	}
	if fail != "" {
		name, dice, _ := strings.Cut(fail, ":")
		p.failing = name
		if p.failDice, p.failChance, err = parseDice(dice); err != nil {
			return nil, fmt.Errorf("%s=%s: %w", failVariable, fail, err)
		}
	}
	return p, nil
}

func parseDice(s string) (*rand.Rand, float64, error) {
	seedText, chanceText, ok := strings.Cut(s, ":")
	seed, serr := strconv.ParseUint(seedText, 10, 64)
	chance, cerr := strconv.ParseFloat(chanceText, 64)
	if !ok || serr != nil || cerr != nil {
		return nil, 0, fmt.Errorf("want seed:probability, not %q", s)
	}
	return rand.New(rand.NewPCG(seed, 0)), chance, nil
}
