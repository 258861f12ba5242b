package history

import (
	"slices"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// Repair returns msgs in a form that Validate accepts, changed as Append changes
// them, with open calls answered. Several system messages at the beginning become
// one. It depends on msgs alone, changes nothing that is valid up to the first
// breach of a rule, and returns msgs itself where nothing is wrong.
func Repair(msgs []llm.Message) []llm.Message {
	if Validate(msgs) == nil {
		return msgs
	}
	c := &Conversation{msgs: make([]llm.Message, 0, len(msgs)+1)}
	c.Append(joinSystem(msgs)...)
	c.Settle("")
	return c.Messages()
}

// joinSystem makes one message of the system messages that msgs begin with.
func joinSystem(msgs []llm.Message) []llm.Message {
	n := 0
	var first llm.Message
	for ; n < len(msgs) && msgs[n].Role == llm.System; n++ {
		switch {
		case blank(first.Content):
			first = msgs[n]
		case !blank(msgs[n].Content):
			first.Content += "\n\n" + msgs[n].Content
		}
	}
	if n < 2 {
		return msgs
	}
	return append([]llm.Message{first}, msgs[n:]...)
}

// resultsFirst puts the results that stand between one assistant message and the
// next before the other messages there, where there are calls that they may
// answer. open says whether there are such before the first message.
func resultsFirst(msgs []llm.Message, open bool) []llm.Message {
	ordered := msgs
	for start := 0; start < len(msgs); {
		// One segment: up to the next assistant message that will stay.
		end, mixed, others := start, false, false
		for ; end < len(msgs) && !speaks(msgs[end]); end++ {
			if msgs[end].Role != llm.ToolRole {
				others = true
			} else if others {
				mixed = true
			}
		}
		if open && mixed {
			if &ordered[0] == &msgs[0] {
				ordered = slices.Clone(msgs)
			}
			at := start
			for _, results := range []bool{true, false} {
				for _, m := range msgs[start:end] {
					if (m.Role == llm.ToolRole) == results {
						ordered[at] = m
						at++
					}
				}
			}
		}
		if end < len(msgs) {
			open = len(msgs[end].ToolCalls) > 0
		}
		start = end + 1
	}
	return ordered
}

// speaks reports whether m is an assistant message that says or calls something.
func speaks(m llm.Message) bool {
	return m.Role == llm.Assistant && (len(m.ToolCalls) > 0 || !blank(m.Content))
}
