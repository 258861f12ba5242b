package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// disk is a file system made for an episode: a small tmpfs, or an ext4 image that
// can lose its power.
type disk struct {
	at    string // where it is mounted
	image string // "" for a tmpfs
	fill  string // the file that fills it
}

// cannot says why a kind of episode is impossible here; "" where it is not.
func cannot(kind string) string {
	switch kind {
	case "power":
		switch {
		case os.Geteuid() != 0:
			return "mounting needs root"
		case !exists("/dev/loop-control"):
			return "there are no loop devices"
		}
		if _, err := exec.LookPath("mkfs.ext4"); err != nil {
			return "there is no mkfs.ext4"
		}
	case "full", "full-temp":
		if os.Geteuid() != 0 {
			return "mounting needs root"
		}
	default:
		return ""
	}
	return probe(kind)
}

// probe tries what an episode of the kind does with its disk.
func probe(kind string) string {
	dir, err := os.MkdirTemp("", "torture-probe-")
	if err != nil {
		return err.Error()
	}
	defer os.RemoveAll(dir)
	d, err := newDisk(dir, "probe", kind == "power")
	if err != nil {
		return err.Error()
	}
	defer d.close()
	if kind == "power" {
		if err := d.failPower(); err != nil {
			return err.Error()
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// newDisk makes and mounts a file system at dir/name.
func newDisk(dir, name string, power bool) (*disk, error) {
	d := &disk{at: filepath.Join(dir, name)}
	d.fill = filepath.Join(d.at, ".filler")
	if err := os.Mkdir(d.at, 0o755); err != nil {
		return nil, err
	}
	if !power {
		if err := unix.Mount("tmpfs", d.at, "tmpfs", 0, "size=8m"); err != nil {
			return nil, fmt.Errorf("mount tmpfs: %w", err)
		}
		return d, nil
	}
	d.image = filepath.Join(dir, name+".img")
	f, err := os.Create(d.image)
	if err != nil {
		return nil, err
	}
	err = f.Truncate(64 << 20)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	return d, d.mount()
}

func (d *disk) mount() error {
	// A long commit interval, so that nothing is written that nobody asked for.
	out, err := exec.Command("mount", "-o", "loop,commit=60", d.image, d.at).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mount %s: %w: %s", d.image, err, out)
	}
	return nil
}

// ext4 forgets what it has not written, as a machine without power does.
const (
	ext4Shutdown           = 0x8004587d // EXT4_IOC_SHUTDOWN
	ext4ShutdownNoLogFlush = 2
)

// failPower loses all that was not made durable, and mounts what is left.
func (d *disk) failPower() error {
	f, err := os.Open(d.at)
	if err != nil {
		return err
	}
	err = unix.IoctlSetPointerInt(int(f.Fd()), ext4Shutdown, ext4ShutdownNoLogFlush)
	f.Close()
	if err != nil {
		return fmt.Errorf("shut down ext4: %w", err)
	}
	if err := d.unmount(); err != nil {
		return err
	}
	return d.mount()
}

func (d *disk) unmount() error {
	// Commands of the daemon that was killed may take a moment to go.
	for try := 0; ; try++ {
		err := unix.Unmount(d.at, 0)
		if err == nil {
			break
		}
		if try == 500 || !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("unmount %s: %w", d.at, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	// A process in another mount namespace keeps the file system alive for as long as
	// it lives; mounted again it would be the same one, without power.
	for try := 0; d.attached(); try++ {
		if try == 6000 {
			return fmt.Errorf("unmount %s: %s is still in use by a process in another mount namespace", d.at, d.image)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// attached reports whether a loop device still holds the image.
func (d *disk) attached() bool {
	if d.image == "" {
		return false
	}
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		name, err := os.ReadFile(f)
		if err == nil && strings.TrimSpace(string(name)) == d.image {
			return true
		}
	}
	return false
}

// fillUp leaves no room, until empty is called.
func (d *disk) fillUp() error {
	f, err := os.Create(d.fill)
	if err != nil {
		if errors.Is(err, unix.ENOSPC) {
			return nil
		}
		return err
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for len(block) > 0 {
		_, err := f.Write(block)
		switch {
		case errors.Is(err, unix.ENOSPC), errors.Is(err, io.ErrShortWrite):
			block = block[:len(block)/2]
		case err != nil:
			return err
		}
	}
	return nil
}

func (d *disk) empty() error { return os.Remove(d.fill) }

// close unmounts the file system. The image stays.
func (d *disk) close() error { return d.unmount() }
