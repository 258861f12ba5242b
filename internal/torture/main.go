package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

func run() error {
	c := options{Out: os.Stdout}
	var seconds int
	var only string
	flag.IntVar(&c.Kills, "kills", 200, "how often the daemon is killed in all")
	flag.IntVar(&seconds, "seconds", 0, "begin no kill and no episode after so many seconds; 0: no limit")
	flag.Uint64Var(&c.Seed, "seed", 0, "seed of the first episode; 0: by the clock")
	flag.IntVar(&c.Tasks, "tasks", 20, "tasks of an episode")
	flag.IntVar(&c.Messages, "messages", 0, "messages of the pickup episode; 0: 2000, or fewer where time is short")
	flag.StringVar(&only, "only", "", "kinds of episodes, separated by commas: "+strings.Join(kindNames(), ", "))
	flag.BoolVar(&c.Race, "race", false, "build the daemon with the race detector")
	flag.BoolVar(&c.Keep, "keep", false, "keep the files of all episodes")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("there is an argument too many: %q", flag.Arg(0))
	}
	c.Limit = time.Duration(seconds) * time.Second
	if c.Messages == 0 {
		c.Messages = 2000
		if seconds > 0 {
			c.Messages = min(c.Messages, 5*seconds)
		}
	}
	if c.Seed == 0 {
		c.Seed = uint64(time.Now().Unix() % 1_000_000)
	}
	if only != "" {
		c.Only = strings.Split(only, ",")
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	c.Root = strings.TrimSpace(string(root))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("torture: seed %d, %d kills, %d tasks\n", c.Seed, c.Kills, c.Tasks)
	_, err = runAll(ctx, c)
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	return err
}
