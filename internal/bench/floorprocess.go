package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// floorCommand makes this program a process that does nothing but wait for n
// directories, whose memory and start are the floor of the daemon's.
const floorCommand = "floor-waiting"

// floorProcess watches the directories in dir and has a goroutine and an entry in
// a map for each; it ends when its standard input does.
func floorProcess(args []string, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("want a directory and a number")
	}
	dir := args[0]
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	add, err := newWatches()
	if err != nil {
		return err
	}
	type session struct{ looks chan struct{} }
	sessions := make(map[string]*session)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if len(sessions) == n {
			break
		}
		if err := add(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
		s := &session{looks: make(chan struct{}, 1)}
		sessions[e.Name()] = s
		go func() { <-s.looks }()
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	for _, s := range sessions {
		s.looks <- struct{}{}
	}
	return err
}

// waitingFloor starts floorProcess for n directories and returns once it watches
// them all. stop ends it.
func waitingFloor(dir string, n int) (p *process, stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(self, floorCommand, dir, strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		return nil, nil, errors.Join(fmt.Errorf("the floor does not start: %w", err), stop())
	}
	return &process{cmd: cmd}, stop, nil
}
