package history

import (
	"fmt"
	"slices"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// Rules are what Shrink has to know of a conversation. All of them may be missing.
type Rules struct {
	// Keep says which user messages stay where turns are dropped: what the supervisor
	// said. Must says which stay, and stay whole, even where nothing else helps.
	Keep, Must func(llm.Message) bool
	// Pinned says which calls stay, with their whole results: skills that were loaded.
	Pinned func(llm.ToolCall) bool
	// Reads tells what a call and its result have read of a file; ok is false where
	// they are no read, or one that brought nothing.
	Reads func(call llm.ToolCall, result string) (r Range, ok bool)
	// Gentle leaves the newest turns as they are, also where the limit is missed then.
	Gentle bool
}

// Range is the part of a file that a read brought: the lines from From (counted
// from 1) to To (0: the last).
type Range struct {
	File     string
	From, To int
}

func (r Range) covers(o Range) bool {
	return r.File == o.File && max(r.From, 1) <= max(o.From, 1) && (r.To == 0 || o.To != 0 && o.To <= r.To)
}

// DroppedNotice stands where Shrink dropped turns, ReadNotice where it took out what
// was read of a file and read again later.
const (
	DroppedNotice = "[daemon] Earlier turns of this conversation were dropped here to save space. What they did to files is done; look again at what you need."
	ReadNotice    = "[taken out to save space: this file was read again later, see the newest result]"
)

// ReplaceReads returns msgs in which the results of reads stand only where no later
// read covers them, and notices elsewhere. replaced counts the notices that were put
// in; msgs itself is returned where none was.
func ReplaceReads(msgs []llm.Message, reads func(llm.ToolCall, string) (Range, bool)) (out []llm.Message, replaced int) {
	out = msgs
	if reads == nil {
		return msgs, 0
	}
	type read struct {
		at int
		Range
	}
	var all []read
	calls := map[string]llm.ToolCall{}
	for i, m := range msgs {
		for _, c := range m.ToolCalls {
			calls[c.ID] = c
		}
		if m.Role != llm.ToolRole || m.Content == ReadNotice {
			continue
		}
		if r, ok := reads(calls[m.ToolCallID], m.Content); ok {
			all = append(all, read{i, r})
		}
	}
	for i, r := range all {
		if len(msgs[r.at].Content) <= len(ReadNotice) ||
			!slices.ContainsFunc(all[i+1:], func(later read) bool { return later.covers(r.Range) }) {
			continue
		}
		if replaced == 0 {
			out = slices.Clone(msgs)
		}
		out[r.at].Content = ReadNotice
		replaced++
	}
	return out, replaced
}

// DropMiddle returns msgs without the turns in the middle: what stays is what comes
// before the first assistant message (the system message, the task), the newest
// keepTurns turns (at least one), and from between the user messages that keep says
// yes to and the calls that pinned says yes to with their results. One user message,
// DroppedNotice, stands where turns went. Calls and their results go together.
// dropped counts the messages that went; msgs itself is returned where none can go.
func DropMiddle(msgs []llm.Message, keepTurns int, keep func(llm.Message) bool, pinned func(llm.ToolCall) bool) (out []llm.Message, dropped int) {
	first := slices.IndexFunc(msgs, func(m llm.Message) bool { return m.Role == llm.Assistant })
	end := turnStart(msgs, max(keepTurns, 1))
	// What the supervisor said to bring about the first turn that stays belongs to it.
	for end > 0 && msgs[end-1].Role == llm.User {
		end--
	}
	if first < 0 || end <= first {
		return msgs, 0
	}
	for _, m := range msgs[:first] {
		if m.Content != DroppedNotice { // from an earlier time
			out = append(out, m)
		}
	}
	out = append(out, llm.Message{Role: llm.User, Content: DroppedNotice})
	held := map[string]bool{}
	for _, m := range msgs[first:end] {
		stays := false
		switch m.Role {
		case llm.User:
			stays = m.Content != DroppedNotice && keep != nil && keep(m)
		case llm.Assistant:
			if calls := pinnedOf(m.ToolCalls, pinned); len(calls) > 0 {
				stays = true
				if len(calls) < len(m.ToolCalls) || m.Content != "" {
					m.ToolCalls, m.Content = calls, ""
				}
				for _, c := range calls {
					held[c.ID] = true
				}
			}
		case llm.ToolRole:
			stays = held[m.ToolCallID]
		}
		if stays {
			out = append(out, m)
		} else {
			dropped++
		}
	}
	if dropped == 0 {
		return msgs, 0
	}
	return append(out, msgs[end:]...), dropped
}

func pinnedOf(calls []llm.ToolCall, pinned func(llm.ToolCall) bool) []llm.ToolCall {
	var held []llm.ToolCall
	for _, c := range calls {
		if pinned != nil && pinned(c) {
			held = append(held, c)
		}
	}
	return held
}

// Shrunk says what Shrink did, in numbers; the zero value is nothing.
type Shrunk struct {
	Reads     int // reads of files that were read again later
	Results   int // tool results shortened
	Arguments int // messages whose calls were shortened
	Texts     int // user messages shortened
	Messages  int // messages dropped
	Before    int // tokens, as Estimate has them
	After     int
}

// String is for journals and logs.
func (s Shrunk) String() string {
	return fmt.Sprintf("%d outdated reads taken out, %d tool results, %d calls and %d messages shortened, %d messages dropped, about %d tokens instead of %d",
		s.Reads, s.Results, s.Arguments, s.Texts, s.Messages, s.After, s.Before)
}

// Shrink makes a valid conversation fit into limit tokens, as Estimate has them, and
// stops as soon as it does. It takes out reads that later ones cover, shortens old
// results, then long arguments of old calls, then drops turns in the middle as
// DropMiddle does, then (unless Rules.Gentle) cuts what the newest turns hold, and
// in the end what the supervisor said: a message that is too large itself must not
// keep the later ones from being answered. It
// returns msgs itself where they fit or nothing helps; After tells whether it was
// enough. Calls and results stay together, and the system message and the first
// messages stay whole.
func Shrink(msgs []llm.Message, limit int, r Rules) ([]llm.Message, Shrunk) {
	did := Shrunk{Before: Estimate(msgs)}
	did.After = did.Before
	fits := func() bool {
		did.After = Estimate(msgs)
		return did.After <= limit
	}
	results := func(keepTurns, capBytes int) {
		out, n := CutToolResults(msgs, keepTurns, capBytes, r.Pinned)
		msgs, did.Results = out, did.Results+n
	}
	arguments := func(keepTurns, capBytes int) {
		out, n := CutArguments(msgs, keepTurns, capBytes)
		msgs, did.Arguments = out, did.Arguments+n
	}
	drop := func(keepTurns int, keep func(llm.Message) bool) {
		out, n := DropMiddle(msgs, keepTurns, keep, r.Pinned)
		msgs, did.Messages = out, did.Messages+n
	}
	texts := func(capBytes int) {
		out, n := CutTexts(msgs, capBytes, r.Must)
		msgs, did.Texts = out, did.Texts+n
	}
	steps := []func(){
		func() { msgs, did.Reads = ReplaceReads(msgs, r.Reads) },
		func() { results(6, 2000) },
		func() { arguments(6, 1000) },
		func() { results(3, 500) },
		func() { arguments(3, 500) },
		func() { drop(6, r.Keep) },
		func() { drop(3, r.Keep) },
	}
	if !r.Gentle {
		steps = append(steps,
			func() { results(1, 2000) },
			func() { drop(1, r.Keep) },
			func() { results(0, 8000) },
			func() { results(0, 2000) },
			func() { arguments(0, 1000) },
			func() { results(0, 500) },
			func() { drop(1, r.Must) },
			func() { results(0, 200) },
			func() { texts(4000) },
			func() { texts(500) },
		)
	}
	for _, step := range steps {
		if fits() {
			break
		}
		step()
	}
	fits()
	return msgs, did
}
