package agent

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/history"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/tool"
)

// readTool reads a file. Its results are what fills conversations, and what models
// ask for again and again.
const readTool = "read_file"

// unchanged answers a read that brought what the conversation still holds, word for
// word.
const unchanged = "Unchanged: this read gives the same as your earlier one with these arguments, and its result stands above as it was. Use that."

// minRepeat is the size in bytes from which on a result is worth the notice.
const minRepeat = 2 * len(unchanged)

// repeats knows the newest result of each read that stands whole in the
// conversation, by the call's key. It is made of the conversation and nothing else.
type repeats struct{ results map[string]string }

// rebuild forgets what is no longer part of the conversation.
func (r *repeats) rebuild(msgs []llm.Message) {
	r.results = map[string]string{}
	keys := map[string]string{}
	for _, m := range msgs {
		for _, c := range m.ToolCalls {
			if c.Name == readTool {
				keys[c.ID] = callKey(c)
			}
		}
		if key, ok := keys[m.ToolCallID]; ok && m.Role == llm.ToolRole {
			r.note(key, m.Content)
		}
	}
}

func (r *repeats) note(key, result string) {
	if r.results == nil {
		r.results = map[string]string{}
	}
	if isReal(result) {
		r.results[key] = result
	}
}

// shorten puts the notice in place of results that the conversation holds already.
func (r *repeats) shorten(calls []llm.ToolCall, results []called) {
	for i, c := range calls {
		if c.Name != readTool || !results[i].given || results[i].Failed {
			continue
		}
		key, text := callKey(c), results[i].Text
		if len(text) >= minRepeat && r.results[key] == text {
			results[i].Result = tool.Result{Text: unchanged, Summary: results[i].Summary}
			continue
		}
		r.note(key, text)
	}
}

// isReal reports whether a result of a read is the file.
func isReal(result string) bool {
	return result != unchanged && result != history.ReadNotice && !isFailed(result)
}

// callKey is equal for calls with the same arguments.
func callKey(c llm.ToolCall) string {
	var args any
	if json.Unmarshal([]byte(c.Arguments), &args) == nil {
		if b, err := json.Marshal(args); err == nil {
			return c.Name + " " + string(b)
		}
	}
	return c.Name + " " + c.Arguments
}

// linesShown is how the head of a result says what part of a file follows.
var linesShown = regexp.MustCompile(`^(?:.*, )?lines (\d+)-(\d+) of `)

// readRange tells compaction what a call has read.
func (s *state) readRange(c llm.ToolCall, result string) (history.Range, bool) {
	if c.Name != readTool || !isReal(result) {
		return history.Range{}, false
	}
	var args map[string]json.RawMessage
	if json.Unmarshal([]byte(c.Arguments), &args) != nil {
		return history.Range{}, false
	}
	text := func(names ...string) (v string) {
		for _, n := range names {
			if json.Unmarshal(args[n], &v) == nil && v != "" {
				return v
			}
		}
		return ""
	}
	number := func(names ...string) (v int) {
		for _, n := range names {
			if json.Unmarshal(args[n], &v) == nil && v > 0 {
				return v
			}
		}
		return 0
	}
	path := text("path", "file_path", "filename", "file")
	if path == "" {
		return history.Range{}, false
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.tools.WorkDir, strings.TrimPrefix(path, "./"))
	}
	r := history.Range{File: filepath.Clean(path), From: max(number("start_line", "start", "offset"), 1)}
	if n := number("line_count", "count", "limit"); n > 0 {
		r.To = r.From + n - 1
	}
	// A long file comes in parts, whatever was asked for.
	head, _, _ := strings.Cut(result, "\n")
	if m := linesShown.FindStringSubmatch(head); m != nil {
		r.From, _ = strconv.Atoi(m[1])
		r.To, _ = strconv.Atoi(m[2])
	}
	return r, true
}
