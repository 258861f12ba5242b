package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestCheckPrograms(t *testing.T) {
	for name, tt := range map[string]struct {
		goos string
		have string
		want []string // level and a part of the text, for each line
	}{
		"all":            {"linux", "bash sh python3", []string{"ok commands run in /bin/bash", "ok python is /bin/python3"}},
		"no bash":        {"linux", "sh python3", []string{"warning no bash: commands run in /bin/sh", "ok /bin/python3"}},
		"no shell":       {"darwin", "python3", []string{"problem each execute_command fails", "ok /bin/python3"}},
		"no python":      {"linux", "bash", []string{"ok /bin/bash", "note there is no python3"}},
		"an old python":  {"linux", "bash python", []string{"ok /bin/bash", "ok python is /bin/python"}},
		"built-in shell": {"windows", "python", []string{"ok python is /bin/python"}},
	} {
		t.Run(name, func(t *testing.T) {
			found := checkPrograms(tt.goos, func(name string) (string, error) {
				if slices.Contains(strings.Fields(tt.have), name) {
					return "/bin/" + name, nil
				}
				return "", exec.ErrNotFound
			})
			if len(found) != len(tt.want) {
				t.Fatalf("%+v", found)
			}
			for i, want := range tt.want {
				level, text, _ := strings.Cut(want, " ")
				f := found[i]
				if f.Level != level || !strings.Contains(f.Text, text) || (f.Do == "") != (level == levelOK) {
					t.Errorf("%+v, want %s", f, want)
				}
			}
		})
	}
}
