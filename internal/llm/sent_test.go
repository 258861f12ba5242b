package llm

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

func encodeMessage(dst []byte, m Message) ([]byte, error) { return m.AppendJSON(dst) }

// TestSentIsWhatWouldBeEncoded changes a conversation in all the ways there are and
// compares with the encoding that knows nothing of before.
func TestSentIsWhatWouldBeEncoded(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	fresh := func() Message {
		m := Message{Role: Assistant, Content: fmt.Sprint("text ", rnd.IntN(1000))}
		switch rnd.IntN(3) {
		case 0:
			m.ToolCalls = []ToolCall{{ID: "a", Name: "f", Arguments: `{"x":1}`, Extra: map[string]RawJSON{"sig": RawJSON(`"s"`)}}}
		case 1:
			m.Extra = map[string]RawJSON{"reasoning_content": RawJSON(`"because"`)}
		}
		return m
	}
	change := func(m Message) Message {
		m.ToolCalls, m.Extra = slices.Clone(m.ToolCalls), maps.Clone(m.Extra)
		switch {
		case len(m.ToolCalls) > 0:
			c := &m.ToolCalls[0]
			switch rnd.IntN(4) {
			case 0:
				c.ID += "b"
			case 1:
				c.Name += "g"
			case 2:
				c.Arguments = `{"x":2}`
			case 3:
				c.Extra = map[string]RawJSON{"sig": RawJSON(`"other"`)}
			}
		case m.Extra != nil:
			m.Extra["reasoning_content"] = RawJSON(fmt.Sprint(rnd.IntN(1000)))
		default:
			m.Content += "!"
		}
		return m
	}
	var (
		sent Sent
		msgs []Message
		by   = "a client"
		last struct {
			bytes []byte
			text  string
		}
	)
	for i := range 2000 {
		switch n := rnd.IntN(20); {
		case n == 0 && len(msgs) > 0:
			msgs = slices.Clone(msgs[:rnd.IntN(len(msgs))])
		case n < 4 && len(msgs) > 0:
			msgs = slices.Clone(msgs)
			at := rnd.IntN(len(msgs))
			msgs[at] = change(msgs[at])
		case n == 4:
			by = fmt.Sprint("client ", i)
		default:
			msgs = append(slices.Clone(msgs), fresh())
		}
		got, err := sent.Messages(by, msgs, encodeMessage)
		if err != nil {
			t.Fatal(err)
		}
		want, err := (*Sent)(nil).Messages(by, msgs, encodeMessage)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Fatalf("step %d:\n got %s\nwant %s", i, got, want)
		}
		if string(last.bytes) != last.text {
			t.Fatalf("step %d: what was returned before, and may still be sent, is now\n%s", i, last.bytes)
		}
		last.bytes, last.text = got, string(got)
	}
}

func TestSentEncodesOnlyWhatIsNew(t *testing.T) {
	var encoded int
	counted := func(dst []byte, m Message) ([]byte, error) {
		encoded++
		return m.AppendJSON(dst)
	}
	var sent Sent
	msgs := []Message{{Role: System, Content: "s"}, {Role: User, Content: "u"}, {Role: Assistant, Content: "a"}}
	changed := slices.Clone(msgs)
	changed[1].Content = "another"
	for _, step := range []struct {
		name string
		by   any
		msgs []Message
		want int
	}{
		{"the first", 1, msgs[:2], 2},
		{"the same", 1, msgs[:2], 0},
		{"one more", 1, msgs, 1},
		{"a change in the middle", 1, changed, 2},
		{"shorter", 1, changed[:1], 0},
		{"another client", 2, msgs, 3},
	} {
		encoded = 0
		if _, err := sent.Messages(step.by, step.msgs, counted); err != nil {
			t.Fatal(err)
		}
		if encoded != step.want {
			t.Errorf("%s: %d messages encoded, want %d", step.name, encoded, step.want)
		}
	}
}

func TestSentAfterAnError(t *testing.T) {
	var sent Sent
	refused := errors.New("refused")
	msgs := []Message{{Role: User, Content: "a"}, {Role: User, Content: "b"}}
	_, err := sent.Messages(1, msgs, func(dst []byte, m Message) ([]byte, error) {
		if m.Content == "b" {
			return nil, refused
		}
		return m.AppendJSON(dst)
	})
	if !errors.Is(err, refused) {
		t.Fatalf("%v, want what the encoder said", err)
	}
	got, err := sent.Messages(1, msgs, encodeMessage)
	if want := `[{"role":"user","content":"a"},{"role":"user","content":"b"}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

func TestSentTools(t *testing.T) {
	var sent Sent
	a := ToolSpec{Name: "a", Description: "does a", Parameters: RawJSON(`{"type": "object"}`)}
	b := a
	b.Description = "does b"
	for _, tools := range [][]ToolSpec{nil, {a}, {a}, {a, b}, {b}, {b, a}, nil} {
		got, err := sent.Tools(tools)
		if err != nil {
			t.Fatal(err)
		}
		want, err := (*Sent)(nil).Tools(tools)
		if err != nil || string(got) != string(want) {
			t.Errorf("%v: got %s, want %s, %v", tools, got, want, err)
		}
	}
}
