package history

import "github.com/gasupervisor/gasupervisor/internal/llm"

// Estimate guesses how many tokens msgs take in a request. It counts rather too
// many than too few: about 3.5 ASCII bytes or one other character a token, and what
// the framing of messages and calls costs. The text of tool definitions is not
// part of it; see EstimateText.
func Estimate(msgs []llm.Message) int {
	n := 0
	for i := range msgs {
		n += estimate(&msgs[i])
	}
	return n
}

func estimate(m *llm.Message) int {
	n := 4 + EstimateText(m.Content) + EstimateText(m.ToolCallID)
	for _, call := range m.ToolCalls {
		n += 8 + EstimateText(call.ID) + EstimateText(call.Name) + EstimateText(call.Arguments)
		for _, v := range call.Extra {
			n += EstimateText(string(v))
		}
	}
	for _, v := range m.Extra {
		n += EstimateText(string(v))
	}
	return n
}

// EstimateText guesses how many tokens a text takes, as Estimate does.
func EstimateText(s string) int {
	ascii, other := 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x80:
			ascii++
		case c >= 0xC0: // the first byte of a longer character
			other++
		}
	}
	return (ascii*2+6)/7 + other
}
