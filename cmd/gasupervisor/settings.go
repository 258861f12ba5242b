package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"

	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

// addSettings puts values into a task's context.json and leaves what else stands
// there. Keys whose value is zero are not touched.
func addSettings(tempDir, name string, values map[string]any) error {
	var settings map[string]json.RawMessage
	text, err := taskdir.ReadMessage(tempDir, name, taskdir.ContextFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("read settings: %w", err)
	default:
		if err := json.Unmarshal([]byte(text), &settings); err != nil {
			path := filepath.Join(taskdir.TaskPath(tempDir, name), taskdir.ContextFile)
			return usagef("%s is no JSON object (%w); correct or remove it, then settings can be added", path, err)
		}
	}
	if settings == nil { // no file, or "null"
		settings = map[string]json.RawMessage{}
	}
	changed := false
	for key, v := range values {
		if v == nil || reflect.ValueOf(v).IsZero() {
			continue
		}
		if settings[key], err = json.Marshal(v); err != nil {
			return fmt.Errorf("write settings: %w", err)
		}
		changed = true
	}
	if !changed {
		return nil
	}
	return writeSettings(tempDir, name, settings)
}

func writeSettings(tempDir, name string, settings map[string]json.RawMessage) error {
	data, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return taskdir.WriteContext(tempDir, name, append(data, '\n'))
}

// copySettings gives a fork the context.json of the task it comes from, where there
// is one; but for fork_from, since a fork has its conversation from there already.
func copySettings(tempDir, from, to string) error {
	data, err := taskdir.ReadFile(tempDir, from, taskdir.ContextFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("copy settings: %w", err)
	}
	text, _ := taskdir.Decode(data)
	var settings map[string]json.RawMessage
	// What is no object is copied as well: the fork says what is wrong with it.
	if json.Unmarshal([]byte(text), &settings) == nil && settings["fork_from"] != nil {
		delete(settings, "fork_from")
		return writeSettings(tempDir, to, settings)
	}
	if err := taskdir.WriteContext(tempDir, to, data); err != nil {
		return fmt.Errorf("copy settings: %w", err)
	}
	return nil
}
