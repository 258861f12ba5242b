// Command torture runs the real daemon over a scripted workload and takes it down
// again and again: by kill -9 at random moments and at every named point of
// internal/fault, by full disks, by failing writes, by power failures. Then it
// checks the promises that the files make: no message lost or acted on twice, no
// tool run twice unannounced, no subagent sent out twice or forgotten, no marker
// before its round is durable, every conversation valid, everything brought to an end.
//
// The run is a sequence of episodes. Each is a world of its own: directories, a
// scripted model, supervisors that write to some tasks in every way that is
// allowed, and one way in which things go wrong. An episode is replayed by its
// seed, which decides everything but the timing.
//
// The daemon is built from this checkout with the tag "faults". Everything else
// is real: processes, signals, files, HTTP on the loopback interface.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
)

// options says how much torture there is.
type options struct {
	// Kills is how often the daemon is killed in all, of whatever cause.
	Kills int
	// Limit bounds the time in which episodes are begun; 0 is no limit.
	Limit time.Duration
	// Seed is that of the first episode; the others count on from it.
	Seed uint64
	// Tasks is how many tasks an episode has.
	Tasks int
	// Only names the kinds of episodes to run; empty for all.
	Only []string
	// Messages is how many messages the pickup episode writes.
	Messages int
	// Race builds the daemon with the race detector.
	Race bool
	// Keep keeps the directories of all episodes; those with violations are kept anyway.
	Keep bool
	// Root is the directory of the module.
	Root string
	Out  io.Writer
}

// errViolated says that a promise was broken. The output says which.
var errViolated = errors.New("promises were broken")

// tally is what happened.
type tally struct {
	Episodes, Kills, Crashes, Powers, Stops, Fulls int
	Messages, Inputs, ToolRuns, Rounds, Subagents  int
	Interrupted, Requests, Markers, Removed        int
	Violations                                     int
}

func (c *tally) add(o tally) {
	c.Episodes += o.Episodes
	c.Kills += o.Kills
	c.Crashes += o.Crashes
	c.Powers += o.Powers
	c.Stops += o.Stops
	c.Fulls += o.Fulls
	c.Messages += o.Messages
	c.Inputs += o.Inputs
	c.ToolRuns += o.ToolRuns
	c.Rounds += o.Rounds
	c.Subagents += o.Subagents
	c.Interrupted += o.Interrupted
	c.Requests += o.Requests
	c.Markers += o.Markers
	c.Removed += o.Removed
	c.Violations += o.Violations
}

func (c tally) String() string {
	return fmt.Sprintf("%d kills (%d at fault points, %d with power failure), %d orderly stops, %d disks filled; "+
		"%d messages, %d inputs, %d sessions removed, %d rounds, %d subagents, %d requests, %d tool runs (%d announced as interrupted), %d markers seen; %d violations",
		c.Kills, c.Crashes, c.Powers, c.Stops, c.Fulls,
		c.Messages, c.Inputs, c.Removed, c.Rounds, c.Subagents, c.Requests, c.ToolRuns, c.Interrupted, c.Markers, c.Violations)
}

// kind is a way in which things go wrong.
type kind struct {
	name string
	// kills is how many an episode of this kind has; tasks bounds its tasks, 0 for all.
	kills, tasks int
	// share is how many of ten episodes are of this kind; one with 0 runs once, first.
	share int
}

var kinds = []kind{
	{name: "pickup", tasks: 10},
	{name: "kill", kills: 40, share: 5},
	{name: "power", kills: 12, tasks: 5, share: 2},
	{name: "full", kills: 15, tasks: 8, share: 1},
	{name: "full-temp", kills: 15, tasks: 8, share: 1},
	{name: "failing", kills: 15, tasks: 10, share: 1},
}

// kindNames returns the names for options.Only.
func kindNames() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// runAll tortures until the kills or the time are used up. It returns errViolated
// where promises were broken.
func runAll(ctx context.Context, c options) (tally, error) {
	var total tally
	dir, err := os.MkdirTemp("", "torture-")
	if err != nil {
		return total, err
	}
	b, err := buildDaemon(ctx, c, dir)
	if err != nil {
		os.RemoveAll(dir)
		return total, err
	}
	once, mixed, err := schedule(c, c.Out)
	if err != nil {
		return total, err
	}
	begun := time.Now()
	hits := map[string]int{}
	kept := c.Keep
	for i := 0; ctx.Err() == nil; i++ {
		var k kind
		switch {
		case i < len(once):
			k = once[i]
		case len(mixed) > 0:
			k = mixed[(i-len(once))%len(mixed)]
		}
		if k.name == "" || i > 0 && (total.Kills >= c.Kills || c.Limit > 0 && time.Since(begun) >= c.Limit) {
			break
		}
		seed := c.Seed + uint64(i)
		e := newEpisode(c, b, k, seed, dir)
		if left := c.Kills - total.Kills; left < e.kills {
			e.kills = max(left, 0)
		}
		if c.Limit > 0 {
			e.until = begun.Add(c.Limit)
		}
		counts, violations, err := e.run(ctx, hits)
		if err != nil && ctx.Err() == nil {
			return total, fmt.Errorf("episode %s, seed %d: %w (its files are in %s)", k.name, seed, err, e.dir)
		}
		counts.Episodes, counts.Violations = 1, len(violations)
		total.add(counts)
		fmt.Fprintf(c.Out, "%-9s seed %-6d %s\n", k.name, seed, counts)
		const most = 15
		for _, v := range violations[:min(most, len(violations))] {
			fmt.Fprintf(c.Out, "    VIOLATED %s\n", v)
		}
		if more := len(violations) - most; more > 0 {
			fmt.Fprintf(c.Out, "    VIOLATED ... and %d more\n", more)
		}
		if len(violations) > 0 {
			kept = true
			fmt.Fprintf(c.Out, "    files: %s; again: scripts/torture -seed %d -only %s -kills %d -tasks %d\n", e.dir, seed, k.name, max(e.kills, 1), c.Tasks)
		} else if !c.Keep {
			os.RemoveAll(e.dir)
		}
	}
	if !kept {
		os.RemoveAll(dir)
	}
	fmt.Fprintf(c.Out, "total in %s: %d episodes, %s\n", time.Since(begun).Round(time.Second), total.Episodes, total)
	reportPoints(c.Out, b.points, hits)
	if total.Violations > 0 {
		return total, errViolated
	}
	return total, ctx.Err()
}

// schedule is what is run once, at first, and what is repeated after that.
func schedule(c options, out io.Writer) (once, mixed []kind, err error) {
	for _, name := range c.Only {
		if !slices.Contains(kindNames(), name) {
			return nil, nil, fmt.Errorf("there is no kind of episode %q; there are %s", name, strings.Join(kindNames(), ", "))
		}
	}
	var often []kind
	for _, k := range kinds {
		if len(c.Only) > 0 && !slices.Contains(c.Only, k.name) {
			continue
		}
		if why := cannot(k.name); why != "" {
			fmt.Fprintf(out, "%-9s skipped: %s\n", k.name, why)
			continue
		}
		if k.share == 0 {
			once = append(once, k)
			continue
		}
		for range k.share {
			often = append(often, k)
		}
	}
	if len(once)+len(often) == 0 {
		return nil, nil, errors.New("nothing is left to run")
	}
	dice := rand.New(rand.NewPCG(c.Seed, 2))
	dice.Shuffle(len(often), func(i, j int) { often[i], often[j] = often[j], often[i] })
	return once, often, nil
}

func reportPoints(out io.Writer, points []string, hits map[string]int) {
	var parts, missed []string
	for _, p := range points {
		if hits[p] == 0 {
			missed = append(missed, p)
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %d", p, hits[p]))
	}
	fmt.Fprintf(out, "crashes by point: %s\n", strings.Join(parts, ", "))
	if len(missed) > 0 {
		fmt.Fprintf(out, "never reached: %s\n", strings.Join(missed, ", "))
	}
}
