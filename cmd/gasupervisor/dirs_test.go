package main

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/config"
)

func TestRemedies(t *testing.T) {
	p := place{key: "state_dir", path: "/x"}
	for err, want := range map[error]string{
		&fs.PathError{Op: "open", Path: "/x/.check-1", Err: syscall.EACCES}: "let the daemon's user write there (chown, chmod), or set another state_dir",
		&fs.PathError{Op: "mkdir", Path: "/x", Err: syscall.ENOTDIR}:        "move away the file that stands there, or set another state_dir",
		errNoDirectory: "move away the file that stands there, or set another state_dir",
		errors.Join(&fs.PathError{Op: "write", Path: "/x/.check-1", Err: syscall.ENOSPC}): "make room on its disk, or mount it for writing",
		&fs.PathError{Op: "open", Path: "/x/.check-1", Err: syscall.EROFS}:                "make room on its disk, or mount it for writing",
	} {
		if got := p.remedy(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

func TestPlacesThatCannotBeWritten(t *testing.T) {
	for name, c := range map[string]struct {
		state      string // beside a file and a directory without rights
		root       bool   // whether it stops root too
		says, does string
	}{
		"a file in the way": {"file", true, "not a directory", "move away the file"},
		"below a file":      {"file/state", true, "not a directory", "move away the file"},
		"no rights":         {"closed", false, "permission denied", "let the daemon's user write there"},
		"no rights above":   {"closed/state", false, "permission denied", "let the daemon's user write there"},
	} {
		t.Run(name, func(t *testing.T) {
			if !c.root && os.Geteuid() <= 0 {
				t.Skip("rights do not keep this user out")
			}
			dir := t.TempDir()
			if err := errors.Join(os.WriteFile(filepath.Join(dir, "file"), nil, 0o644), os.Mkdir(filepath.Join(dir, "closed"), 0o500)); err != nil {
				t.Fatal(err)
			}
			conf := config.Default()
			conf.TempDir, conf.StateDir = filepath.Join(dir, "temp"), filepath.Join(dir, c.state)
			err := makePlaces(&conf, slog.New(slog.DiscardHandler))
			var exit *exitError
			if !errors.As(err, &exit) || exit.code != exitFailed || !strings.Contains(exit.hint, c.does) ||
				!strings.Contains(err.Error(), "state_dir "+conf.StateDir+" cannot be written: ") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the start says %v, %+v", err, exit)
			}
			f := checkPlace(places(&conf)[1])
			if f.Level != levelProblem || !strings.Contains(f.Text, conf.StateDir) || !strings.Contains(f.Do, c.does) {
				t.Errorf("check says %+v", f)
			}
		})
	}
}

// What does not keep a daemon from its work for good does not end it.
func TestPlacesAreMade(t *testing.T) {
	dir := t.TempDir()
	conf := config.Default()
	conf.TempDir, conf.StateDir = filepath.Join(dir, "a", "temp"), filepath.Join(dir, "state")
	if f := checkPlace(places(&conf)[0]); f.Level != levelNote || !strings.Contains(f.Text, "does not exist yet") {
		t.Errorf("check says %+v", f)
	}
	var log bytes.Buffer
	if err := makePlaces(&conf, slog.New(slog.NewTextHandler(&log, nil))); err != nil || log.Len() > 0 {
		t.Errorf("%v, log %q", err, &log)
	}
	for _, p := range places(&conf) {
		if f := checkPlace(p); f.Level != levelOK {
			t.Errorf("check says %+v", f)
		}
		if left, err := os.ReadDir(p.path); err != nil || len(left) > 0 {
			t.Errorf("%v is left in %s, %v", left, p.path, err)
		}
	}
}
