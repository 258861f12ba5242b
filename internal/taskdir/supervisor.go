package taskdir

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/gasupervisor/gasupervisor/internal/atomicfile"
)

// The functions of this file are what a supervisor does, in Go. They work on
// files alone, with or without a daemon, and return once what they wrote is
// durable. Names of tasks are checked: *NameError.

// WriteInput writes input.txt, which starts a session, and makes the task where
// it is not there. An earlier session's files stay: see MoveForNewInput.
func WriteInput(tempDir, name, text string) error {
	if text == "" {
		return fmt.Errorf("write %s for %s: %w", InputFile, name, ErrEmpty)
	}
	return writeFile(tempDir, name, InputFile, []byte(text))
}

// WriteContext writes context.json, and makes the task where it is not there. It
// is for the session that the next input.txt starts.
func WriteContext(tempDir, name string, data []byte) error {
	return writeFile(tempDir, name, ContextFile, data)
}

// WriteHistory writes _history.json, the conversation to start from, and makes
// the task where it is not there. It is for the session that the next input.txt starts.
func WriteHistory(tempDir, name string, data []byte) error {
	return writeFile(tempDir, name, ForkFile, data)
}

// WriteStop writes _stop. fs.ErrNotExist says that there is no such task.
func WriteStop(tempDir, name string) error {
	return inTask(tempDir, name, func(d *Dir) error {
		return atomicfile.WriteAt(d.h.f, StopFile, nil, 0o644, true)
	})
}

// WriteReply writes reply.txt, the message of the next round. Where one still waits
// to be taken, the text is added to it, so that neither is lost. fs.ErrNotExist
// says that there is no such task, ErrEmpty that there is no text.
func WriteReply(tempDir, name, text string) error { return send(tempDir, name, ReplyFile, text) }

// WriteIntervene writes _intervene, as WriteReply writes reply.txt.
func WriteIntervene(tempDir, name, text string) error {
	return send(tempDir, name, InterveneFile, text)
}

// WriteKeyInfo writes _keyinfo, as WriteReply writes reply.txt.
func WriteKeyInfo(tempDir, name, text string) error { return send(tempDir, name, KeyInfoFile, text) }

// MoveForNewInput moves the files of the session that was to the next free
// old/<n>/, so that nobody takes an old answer for the one to the input that is
// written next. It does nothing where there is no task or nothing to move, and
// returns the number otherwise.
func MoveForNewInput(tempDir, name string) (int, error) {
	n := 0
	err := inTask(tempDir, name, func(d *Dir) error {
		names, err := d.archivable()
		if err != nil || len(names) == 0 {
			return err
		}
		if n, err = d.NextOld(); err == nil {
			n, err = d.Archive(n)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return n, err
}

// List returns the names of the tasks in a temp directory, sorted.
func List(tempDir string) ([]string, error) {
	root, err := OpenRoot(tempDir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Names()
}

// TaskPath returns the path of a task's directory.
func TaskPath(tempDir, name string) string { return filepath.Join(tempDir, name) }

// OutputPath returns the path of the output of a round.
func OutputPath(tempDir, name string, round int) string {
	return filepath.Join(tempDir, name, OutputName(round))
}

// Rounds returns how many rounds of a task have an output, counted to the
// highest, and whether the last of them is over.
func Rounds(tempDir, name string) (count int, finished bool, err error) {
	err = inTask(tempDir, name, func(d *Dir) error {
		s, err := d.Look()
		if err != nil || s.Outputs == 0 {
			return err
		}
		count = s.Outputs
		finished, err = d.Finished(count - 1)
		return err
	})
	return count, finished, err
}

// ReadOutput returns the output of a round as far as it goes, without the
// marker, and whether the round is over. It reads up to MaxHistory bytes.
func ReadOutput(tempDir, name string, round int) (text string, finished bool, err error) {
	err = inTask(tempDir, name, func(d *Dir) error {
		f, in, err := d.open(OutputName(round), os.O_RDONLY)
		if err != nil {
			return err
		}
		defer f.Close()
		data, err := readBounded(f, in.Stat, MaxHistory)
		if err != nil {
			return err
		}
		finished = EndsInMarker(data[max(0, len(data)-tailSize):])
		text, _ = Decode(data)
		if finished {
			text = trimEnding(text)
		}
		return nil
	})
	return text, finished, err
}

// ReadMessage returns a file of the supervisor's as it is now: input.txt,
// context.json. fs.ErrNotExist says that there is none, or no such task,
// *RefusedError that a link, a pipe or a directory has its name.
func ReadMessage(tempDir, name, file string) (text string, err error) {
	data, err := ReadFile(tempDir, name, file)
	if err != nil {
		return "", err
	}
	text, _ = Decode(data)
	return text, nil
}

// ReadFile is ReadMessage for a file's bytes, also one of the daemon's. Who reads
// files of a task reads them by this: what has their name may be planted.
func ReadFile(tempDir, name, file string) (data []byte, err error) {
	err = inTask(tempDir, name, func(d *Dir) error {
		f, in, err := d.open(file, os.O_RDONLY)
		if err != nil {
			return err
		}
		defer f.Close()
		data, err = readBounded(f, in.Stat, limitOf(file))
		return err
	})
	return data, err
}

// CreateLog makes a file of a task anew for what a program prints, such as
// stdout.log. An earlier one goes; a link in its place is removed and not
// followed. The caller closes it.
func CreateLog(tempDir, name, file string) (f *os.File, err error) {
	err = inTask(tempDir, name, func(d *Dir) error {
		// What cannot be removed, as a directory, is put aside.
		_ = d.h.remove(file)
		f, err = d.create(file)
		return err
	})
	return f, err
}

// inTask runs fn with the open directory of an existing task.
func inTask(tempDir, name string, fn func(*Dir) error) error {
	if err := CheckName(name); err != nil {
		return err
	}
	root, err := OpenRoot(tempDir)
	if err != nil {
		return err
	}
	defer root.Close()
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return fn(d)
}

// writeFile replaces a file of a task, and makes the task where it is not there.
func writeFile(tempDir, name, file string, data []byte) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := os.Mkdir(TaskPath(tempDir, name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make task: %w", err)
	}
	return inTask(tempDir, name, func(d *Dir) error {
		return atomicfile.WriteAt(d.h.f, file, data, 0o644, true)
	})
}

func send(tempDir, name, file, text string) error {
	if text == "" {
		return fmt.Errorf("write %s for %s: %w", file, name, ErrEmpty)
	}
	return inTask(tempDir, name, func(d *Dir) error { return d.send(file, text) })
}

// send puts a message at its name if there is none yet, else adds to it. Either
// may be taken by the daemon at any moment, and arrives all the same.
func (d *Dir) send(file, text string) error {
	// Named as atomicfile's are, so that what a crash leaves is swept with them.
	temp := fmt.Sprintf(".gasupervisor-%016x.tmp", rand.Uint64())
	if err := atomicfile.WriteAt(d.h.f, temp, []byte(text), 0o644, true); err != nil {
		return err
	}
	for try := 0; ; try++ {
		err := d.h.rename(temp, file)
		if err == nil {
			return d.h.sync()
		}
		if errors.Is(err, fs.ErrExist) {
			err = d.add(file, text)
			if errors.Is(err, fs.ErrNotExist) && try < 10 {
				continue // taken just now
			}
			if err == nil {
				return d.h.remove(temp)
			}
		} else {
			err = pathError("write", d.join(file), err)
		}
		return errors.Join(err, d.h.remove(temp))
	}
}

// add appends a message to one that still waits, in one write, on a line of its own.
func (d *Dir) add(file, text string) error {
	f, in, err := d.open(file, os.O_RDWR|os.O_APPEND)
	if err != nil {
		return err
	}
	defer f.Close()
	tail, err := readTail(f, in.Size)
	if err != nil {
		return pathError("read", d.join(file), err)
	}
	if len(tail) > 0 && tail[len(tail)-1] != '\n' {
		text = "\n" + text
	}
	if _, err := f.WriteString(text); err != nil {
		return pathError("write", d.join(file), err)
	}
	if err := f.Sync(); err != nil {
		return pathError("sync", d.join(file), err)
	}
	return nil
}
