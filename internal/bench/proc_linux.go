package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// canLookInside says whether the functions below work on this system.
const canLookInside = true

// resident returns the memory of a process, in bytes.
func resident(pid int) (int64, error) { return memory(pid, "status", "VmRSS:") }

// proportional returns the memory of a process, in bytes, of which what it shares
// with others is counted in part.
func proportional(pid int) (int64, error) { return memory(pid, "smaps_rollup", "Pss:") }

func memory(pid int, file, key string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, key); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kb * 1024, err
		}
	}
	return 0, fmt.Errorf("process %d says nothing of its memory", pid)
}

// cpu returns the processor time that a process has used.
func cpu(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("process %d says nothing of its time", pid)
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	const perSecond = 100 // USER_HZ, on every architecture that Go runs on
	return time.Duration(ticks) * time.Second / perSecond, nil
}

// openFiles counts the descriptors of a process.
func openFiles(pid int) (int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(entries), err
}

// watches counts the directories that a process watches.
func watches(pid int) (n int, err error) {
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return 0, err
	}
	for _, l := range links {
		if to, err := os.Readlink(l); err != nil || to != "anon_inode:inotify" {
			continue
		}
		f, err := os.Open(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, filepath.Base(l)))
		if err != nil {
			return 0, err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if bytes.HasPrefix(lines.Bytes(), []byte("inotify ")) {
				n++
			}
		}
		f.Close()
	}
	return n, nil
}

// machine says in one line what is measured on.
func machine(dir string) string {
	model := "unknown processor"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	kernel := "Linux"
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel += " " + strings.TrimSpace(string(b))
	}
	disk := "unknown"
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) == nil {
		names := map[int64]string{0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs", 0x794c7630: "overlay"}
		if disk = names[int64(st.Type)]; disk == "" {
			disk = fmt.Sprintf("%#x", st.Type)
		}
	}
	return fmt.Sprintf("%s, %s, %s, file system %s", model, cores(), kernel, disk)
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	load, _, _ := strings.Cut(string(b), " ")
	return load
}

// raiseFiles allows this process, and those that it starts, as many open files
// as it may have.
func raiseFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// newWatches returns a function that watches a directory.
func newWatches() (add func(dir string) error, err error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return func(dir string) error {
		_, err := syscall.InotifyAddWatch(fd, dir, syscall.IN_CREATE|syscall.IN_CLOSE_WRITE|syscall.IN_MOVED_TO)
		return err
	}, nil
}
