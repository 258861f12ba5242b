package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

func sys(text string) llm.Message  { return llm.Message{Role: llm.System, Content: text} }
func user(text string) llm.Message { return llm.Message{Role: llm.User, Content: text} }

// says is an assistant message; each call is "id name" or "id name arguments".
func says(text string, calls ...string) llm.Message {
	m := llm.Message{Role: llm.Assistant, Content: text}
	for _, c := range calls {
		parts := append(strings.SplitN(c, " ", 3), "{}")
		m.ToolCalls = append(m.ToolCalls, llm.ToolCall{ID: parts[0], Name: parts[1], Arguments: parts[2]})
	}
	return m
}

func result(id, text string) llm.Message {
	return llm.Message{Role: llm.ToolRole, ToolCallID: id, Content: text}
}

// script writes messages shortly, one line each.
func script(msgs []llm.Message) string {
	var b strings.Builder
	for _, m := range msgs {
		fmt.Fprintf(&b, "%s", m.Role)
		if m.ToolCallID != "" {
			fmt.Fprintf(&b, "(%s)", m.ToolCallID)
		}
		fmt.Fprintf(&b, ": %q", m.Content)
		for _, c := range m.ToolCalls {
			fmt.Fprintf(&b, " %s=%s%s", c.ID, c.Name, c.Arguments)
			for k, v := range c.Extra {
				fmt.Fprintf(&b, "+%s:%s", k, v)
			}
		}
		var names []string
		for k := range m.Extra {
			names = append(names, k)
		}
		slices.Sort(names)
		for _, k := range names {
			fmt.Fprintf(&b, " %s:%s", k, m.Extra[k])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func same(t *testing.T, got, want []llm.Message) {
	t.Helper()
	if g, w := script(got), script(want); g != w {
		t.Errorf("got\n%swant\n%s", g, w)
	}
}

func valid(t *testing.T, msgs []llm.Message) {
	t.Helper()
	if err := Validate(msgs); err != nil {
		t.Fatalf("%v in\n%s", err, script(msgs))
	}
}

var good = []llm.Message{
	sys("be good"), user("count"), says("", "a count", "b list {\"x\": 1}"), result("b", "2"), result("a", "1"), user("note"),
	says("three"), user("more"), user("and more"), says("text", "c count"), result("c", "4"),
}

func TestValidate(t *testing.T) {
	withExtra := func(m llm.Message, name, v string) llm.Message {
		m.Extra = map[string]llm.RawJSON{name: llm.RawJSON(v)}
		return m
	}
	callWith := func(change func(*llm.ToolCall)) []llm.Message {
		m := says("", "a count")
		change(&m.ToolCalls[0])
		return []llm.Message{user("x"), m, result(m.ToolCalls[0].ID, "1")}
	}
	deep := `{"a":` + strings.Repeat("[", maxArgsDepth) + strings.Repeat("]", maxArgsDepth) + "}"
	for name, tc := range map[string]struct {
		msgs []llm.Message
		at   int // -1: valid
	}{
		"nothing":              {nil, -1},
		"good":                 {good, -1},
		"other fields":         {[]llm.Message{withExtra(user("x"), "name", `"Ann 😀 \ud83d\ude00"`)}, -1},
		"no role":              {[]llm.Message{{Content: "x"}}, 0},
		"assistant first":      {[]llm.Message{says("x")}, 0},
		"assistant second":     {[]llm.Message{sys("s"), says("x")}, 1},
		"result first":         {[]llm.Message{result("a", "x")}, 0},
		"system later":         {[]llm.Message{user("x"), sys("s")}, 1},
		"two systems":          {[]llm.Message{sys("s"), sys("s")}, 1},
		"answers in a row":     {[]llm.Message{user("x"), says("y"), says("z")}, 2},
		"blank system":         {[]llm.Message{sys(" "), user("x")}, 0},
		"blank user":           {[]llm.Message{user("\n")}, 0},
		"blank assistant":      {[]llm.Message{user("x"), says("")}, 1},
		"blank beside calls":   {[]llm.Message{user("x"), says(" ", "a count"), result("a", "1")}, 1},
		"blank result":         {[]llm.Message{user("x"), says("", "a count"), result("a", "")}, 2},
		"unanswered":           {[]llm.Message{user("x"), says("", "a count")}, 2},
		"half answered":        {[]llm.Message{user("x"), says("", "a count", "b count"), result("a", "1")}, 3},
		"interrupted":          {[]llm.Message{user("x"), says("", "a count", "b count"), result("a", "1"), user("y"), result("b", "1")}, 3},
		"answered twice":       {[]llm.Message{user("x"), says("", "a count"), result("a", "1"), result("a", "1")}, 3},
		"orphan":               {[]llm.Message{user("x"), result("z", "1")}, 1},
		"id twice in a turn":   {[]llm.Message{user("x"), says("", "a count", "a count"), result("a", "1"), result("a", "1")}, 1},
		"id twice":             {[]llm.Message{user("x"), says("", "a count"), result("a", "1"), says("", "a count"), result("a", "1")}, 3},
		"no id":                {callWith(func(c *llm.ToolCall) { c.ID = "" }), 1},
		"blank id":             {callWith(func(c *llm.ToolCall) { c.ID = " " }), 1},
		"newline in an id":     {callWith(func(c *llm.ToolCall) { c.ID = "a\n" }), 1},
		"no name":              {callWith(func(c *llm.ToolCall) { c.Name = "" }), 1},
		"odd name":             {callWith(func(c *llm.ToolCall) { c.Name = "a.b" }), 1},
		"long name":            {callWith(func(c *llm.ToolCall) { c.Name = strings.Repeat("a", 65) }), 1},
		"no arguments":         {callWith(func(c *llm.ToolCall) { c.Arguments = "" }), 1},
		"null arguments":       {callWith(func(c *llm.ToolCall) { c.Arguments = "null" }), 1},
		"list arguments":       {callWith(func(c *llm.ToolCall) { c.Arguments = "[]" }), 1},
		"cut arguments":        {callWith(func(c *llm.ToolCall) { c.Arguments = `{"a":` }), 1},
		"two objects":          {callWith(func(c *llm.ToolCall) { c.Arguments = `{}{}` }), 1},
		"surrogate in them":    {callWith(func(c *llm.ToolCall) { c.Arguments = `{"a":"\ud83d"}` }), 1},
		"pair in them":         {callWith(func(c *llm.ToolCall) { c.Arguments = `{"a":"\uD83D\uDE00 \\ud83d"}` }), -1},
		"backslash in them":    {callWith(func(c *llm.ToolCall) { c.Arguments = `{"a":"\\ud800"}` }), -1},
		"deep arguments":       {callWith(func(c *llm.ToolCall) { c.Arguments = deep }), 1},
		"brackets in strings":  {callWith(func(c *llm.ToolCall) { c.Arguments = `{"a":"` + strings.Repeat(`[\"`, 1000) + `"}` }), -1},
		"call field twice":     {callWith(func(c *llm.ToolCall) { c.Extra = map[string]llm.RawJSON{"id": llm.RawJSON("1")} }), 1},
		"content not UTF-8":    {[]llm.Message{user("a\xed\xa0\x80")}, 0},
		"field not JSON":       {[]llm.Message{withExtra(user("x"), "a", "{")}, 0},
		"field is nothing":     {[]llm.Message{withExtra(user("x"), "a", "")}, 0},
		"field twice":          {[]llm.Message{withExtra(user("x"), "content", `"y"`)}, 0},
		"surrogate in a field": {[]llm.Message{withExtra(user("x"), "a", `"\udc00"`)}, 0},
		"calls of a user":      {[]llm.Message{{Role: llm.User, Content: "x", ToolCalls: says("", "a count").ToolCalls}}, 0},
		"user answers":         {[]llm.Message{{Role: llm.User, Content: "x", ToolCallID: "a"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			err := Validate(tc.msgs)
			var invalid *InvalidError
			switch {
			case tc.at < 0 && err != nil:
				t.Errorf("got %v", err)
			case tc.at >= 0 && (!errors.As(err, &invalid) || invalid.Message != tc.at):
				t.Errorf("got %v, want an error about message %d", err, tc.at)
			}
			if err == nil {
				return
			}
			repaired := Repair(tc.msgs)
			valid(t, repaired)
			// What stands before the breach stays as it is.
			if n := tc.at; n > 1 && !reflect.DeepEqual(repaired[:n], tc.msgs[:n]) {
				t.Errorf("the valid beginning changed:\n%s", script(repaired))
			}
		})
	}
}

func TestRepair(t *testing.T) {
	for name, tc := range map[string]struct{ msgs, want []llm.Message }{
		"nothing":    {nil, nil},
		"all blank":  {[]llm.Message{user(" "), says(""), sys("")}, nil},
		"ends open":  {[]llm.Message{user("x"), says("", "a count", "b count"), result("b", "2")}, []llm.Message{user("x"), says("", "a count", "b count"), result("b", "2"), result("a", noResult)}},
		"ends early": {[]llm.Message{user("x"), says("", "a count"), user("y")}, []llm.Message{user("x"), says("", "a count"), result("a", noResult), user("y")}},
		"begins with a result": {[]llm.Message{result("z", "old"), says("so"), user("x")},
			[]llm.Message{user(orphanResult + "old"), says("so"), user("x")}},
		"orphan in the middle": {[]llm.Message{user("x"), says("hm"), result("z", "old"), user("y")},
			[]llm.Message{user("x"), says("hm"), user(orphanResult + "old"), user("y")}},
		"blank orphan": {[]llm.Message{user("x"), result("z", " ")}, []llm.Message{user("x")}},
		"orphan among results": {[]llm.Message{user("x"), says("", "a count", "b count"), result("a", "1"), result("z", "old"), result("b", "2")},
			[]llm.Message{user("x"), says("", "a count", "b count"), result("a", "1"), result("b", "2"), user(orphanResult + "old")}},
		"orphan and open": {[]llm.Message{user("x"), says("", "a count"), result("z", "old"), user("y")},
			[]llm.Message{user("x"), says("", "a count"), result("a", noResult), user(orphanResult + "old"), user("y")}},
		"second answer": {[]llm.Message{user("x"), says("", "a count"), result("a", "1"), result("a", "2")},
			[]llm.Message{user("x"), says("", "a count"), result("a", "1"), user(orphanResult + "2")}},
		"text before results": {[]llm.Message{user("x"), says("", "a count", "b count"), user("y"), result("a", "1"), user("z"), result("b", "2"), says("ok")},
			[]llm.Message{user("x"), says("", "a count", "b count"), result("a", "1"), result("b", "2"), user("y"), user("z"), says("ok")}},
		"a blank turn between": {[]llm.Message{user("x"), says("", "a count"), says(""), user("y"), result("a", "1")},
			[]llm.Message{user("x"), says("", "a count"), result("a", "1"), user("y")}},
		"assistant first": {[]llm.Message{says("hello"), user("x")}, []llm.Message{user(lostStart), says("hello"), user("x")}},
		"call first": {[]llm.Message{sys("s"), says("", "a count"), result("a", "1")},
			[]llm.Message{sys("s"), user(lostStart), says("", "a count"), result("a", "1")}},
		"systems":      {[]llm.Message{sys("a"), sys(" "), sys("b"), user("x")}, []llm.Message{sys("a\n\nb"), user("x")}},
		"system later": {[]llm.Message{user("x"), sys("be brief"), says("ok")}, []llm.Message{user("x"), user("[system message]\nbe brief"), says("ok")}},
		"unknown role": {[]llm.Message{{Role: "critic", Content: "bad"}, {Content: "x"}}, []llm.Message{user("[critic message]\nbad"), user("x")}},
		"answers in a row": {[]llm.Message{user("x"), says("y"), user(" "), says("", "a count")},
			[]llm.Message{user("x"), says("y"), user(nothingSaid), says("", "a count"), result("a", noResult)}},
		"empty results": {[]llm.Message{user("x"), says(" ", "a count"), result("a", "")}, []llm.Message{user("x"), says("", "a count"), result("a", noOutput)}},
		"same id in one reply": {[]llm.Message{user("x"), says("", "a count {\"n\":1}", "a count {\"n\":2}"), result("a", "1"), result("a", "2")},
			[]llm.Message{user("x"), says("", "a count {\"n\":1}", "c00000002 count {\"n\":2}"), result("a", "1"), result("c00000002", "2")}},
		"same ids each turn": {[]llm.Message{user("x"), says("", "a count", "b list"), result("a", "1"), result("b", "2"), says("", "a count", "b list"), result("b", "4"), result("a", "3")},
			[]llm.Message{user("x"), says("", "a count", "b list"), result("a", "1"), result("b", "2"), says("", "c00000003 count", "c00000004 list"), result("c00000004", "4"), result("c00000003", "3")}},
		"no ids": {[]llm.Message{user("x"), says("", " count", " list"), result("", "1"), result("", "2"), says("", " count"), result("", "3")},
			[]llm.Message{user("x"), says("", "c00000001 count", "c00000002 list"), result("c00000001", "1"), result("c00000002", "2"), says("", "c00000003 count"), result("c00000003", "3")}},
		"results without ids": {[]llm.Message{user("x"), says("", "a count", "b list"), result("", "1"), result("", "2")},
			[]llm.Message{user("x"), says("", "a count", "b list"), result("a", "1"), result("b", "2")}},
		"minted id taken": {[]llm.Message{user("x"), says("", " count", "c00000001 list"), result("c00000001", "2"), result("", "1")},
			[]llm.Message{user("x"), says("", "c00000002 count", "c00000001 list"), result("c00000001", "2"), result("c00000002", "1")}},
		"names": {[]llm.Message{user("x"), says("", "a functions.count", "b "), result("a", "1"), result("b", "2")},
			[]llm.Message{user("x"), says("", "a functions_count", "b unknown_tool"), result("a", "1"), result("b", "2")}},
		"arguments": {[]llm.Message{user("x"), says("", `a count {"n":`, `b count "x"`, `c count null`, `d count {"a":"\ud83d!"}`, "e count  {}"), result("a", "1"), result("b", "2"), result("c", "3"), result("d", "4"), result("e", "5")},
			[]llm.Message{user("x"), says("", `a count {"_raw":"{\"n\":"}`, `b count {"_raw":"\"x\""}`, `c count {}`, `d count {"a":"\ufffd!"}`, "e count  {}"), result("a", "1"), result("b", "2"), result("c", "3"), result("d", "4"), result("e", "5")}},
		"only tools": {[]llm.Message{says("", "a count"), result("a", "1"), says("", "b count")},
			[]llm.Message{user(lostStart), says("", "a count"), result("a", "1"), says("", "b count"), result("b", noResult)}},
	} {
		t.Run(name, func(t *testing.T) {
			before := script(tc.msgs)
			got := Repair(tc.msgs)
			same(t, got, tc.want)
			valid(t, got)
			if script(tc.msgs) != before {
				t.Error("the messages that were passed in changed")
			}
			if again := Repair(got); len(got) > 0 && &again[0] != &got[0] {
				t.Error("a valid conversation was copied")
			}
		})
	}
}

func TestRepairBoundsArguments(t *testing.T) {
	junk := strings.Repeat("é", 500_000)
	got := Repair([]llm.Message{user("x"), {Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "a", Name: "n", Arguments: junk}}}, result("a", "1")})
	valid(t, got)
	if n := len(got[1].ToolCalls[0].Arguments); n > maxRawArguments+50 {
		t.Errorf("%d bytes of junk are left", n)
	}
}

func TestRepairCleansFields(t *testing.T) {
	m := user("a\xff")
	m.Extra = map[string]llm.RawJSON{"role": llm.RawJSON(`"x"`), "bad": llm.RawJSON("{"), "name": llm.RawJSON(`"\ud800Ann"`), "ok": llm.RawJSON(`1`)}
	got := Repair([]llm.Message{m})
	valid(t, got)
	if s := script(got); s != "user: \"a\uFFFD\" name:\"\\ufffdAnn\" ok:1\n" {
		t.Errorf("got %s", s)
	}
	if len(m.Extra) != 4 {
		t.Error("the fields that were passed in changed")
	}
}

func encode(t *testing.T, msgs []llm.Message) string {
	t.Helper()
	b, err := json.Marshal(msgs)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(b), "]")
}

// A round as the agent loop makes it: each request begins with the bytes of the one
// before, whatever is added.
func TestConversationKeepsItsPrefix(t *testing.T) {
	c := New(nil)
	last := encode(t, c.Messages())
	check := func() {
		t.Helper()
		valid(t, c.Messages())
		now := encode(t, c.Messages())
		if !strings.HasPrefix(now, last) {
			t.Fatalf("the beginning changed:\n%s\n%s", last, now)
		}
		last = now
	}
	c.Append(user("go"))
	for turn := range 5 {
		kept := c.Append(says("", "call_0 read", "call_0 read", " list"))
		if len(kept) != 1 || len(kept[0].ToolCalls) != 3 || len(c.Open()) != 3 {
			t.Fatalf("turn %d: kept %s", turn, script(kept))
		}
		calls := kept[0].ToolCalls
		kept = c.Append(result(calls[1].ID, "1"), user("note"), result(calls[0].ID, "0"), result(calls[2].ID, ""))
		same(t, kept, []llm.Message{result(calls[1].ID, "1"), result(calls[0].ID, "0"), result(calls[2].ID, noOutput), user("note")})
		check()
		if kept := c.Append(says(""), user(" ")); len(kept) != 0 {
			t.Fatalf("blanks were kept: %s", script(kept))
		}
		c.Append(result("gone", "late"))
		check()
	}
	c.Append(says("", "x read", "y read"), result("y", "1"))
	same(t, c.Settle("cut short"), []llm.Message{result("x", "cut short")})
	check()
	if kept := c.Settle(""); len(kept) != 0 {
		t.Errorf("settled again: %s", script(kept))
	}
	// A conversation that comes back from the disk goes on in the same way.
	again := New(c.Messages())
	same(t, again.Messages(), c.Messages())
	same(t, again.Append(says("", "x read")), c.Append(says("", "x read")))
}

func TestConversationClosesWhatIsOpen(t *testing.T) {
	c := New([]llm.Message{user("go"), says("", "a read", "b read"), result("a", "1")})
	if open := c.Open(); len(open) != 1 || open[0].ID != "b" || open[0].Name != "read" {
		t.Fatalf("open: %v", open)
	}
	// A result for nobody waits until the calls are answered.
	if kept := c.Append(result("z", "stray")); len(kept) != 0 {
		t.Fatalf("kept %s", script(kept))
	}
	same(t, c.Append(user("stop that")), []llm.Message{result("b", noResult), user(orphanResult + "stray"), user("stop that")})
	valid(t, c.Messages())
}

func TestMessagesStayAsTheyWere(t *testing.T) {
	c := New([]llm.Message{user("a")})
	held := c.Messages()
	_ = append(held, user("someone else's"))
	c.Append(user("b"))
	same(t, held, []llm.Message{user("a")})
	same(t, c.Messages(), []llm.Message{user("a"), user("b")})
	if c.Len() != 2 {
		t.Errorf("length %d", c.Len())
	}
}

// FuzzRepair reads messages from bytes: a role, then pieces of what can go wrong.
func FuzzRepair(f *testing.F) {
	f.Add([]byte("\x01\x02\x03\x02\x10\x03\x01\x02\x20\x21\x00\x03"), "x", `{"a":1}`)
	f.Add([]byte{0, 0, 1, 18, 35, 3, 19, 2, 66, 1, 3, 3, 3}, "\xed\xa0\x80", `{"a":"\ud800"}`)
	f.Fuzz(func(t *testing.T, ops []byte, text, args string) {
		ids := []string{"", "a", "b", text, "c00000001", "c00000002"}
		var msgs []llm.Message
		for i, op := range ops {
			id := ids[int(op>>4)%len(ids)]
			m := llm.Message{Role: []llm.Role{llm.System, llm.User, llm.Assistant, llm.ToolRole, llm.Role(text), ""}[int(op&7)%6], Content: text}
			if op&8 != 0 {
				m.Content = " "
			}
			switch m.Role {
			case llm.Assistant:
				for n := range int(op>>4) % 4 {
					m.ToolCalls = append(m.ToolCalls, llm.ToolCall{ID: ids[(i+n*int(op))%len(ids)], Name: text, Arguments: args})
				}
			case llm.ToolRole:
				m.ToolCallID = id
			}
			if op&0x88 == 0x88 {
				m.Extra = map[string]llm.RawJSON{id: llm.RawJSON(args), "content": llm.RawJSON("1")}
			}
			msgs = append(msgs, m)
		}
		repaired := Repair(msgs)
		valid(t, repaired)
		if again := Repair(repaired); script(again) != script(repaired) {
			t.Fatalf("repaired twice:\n%s\nonce:\n%s", script(again), script(repaired))
		}
		// No call is lost, whatever its id was.
		count := func(msgs []llm.Message) (n int) {
			for _, m := range msgs {
				if m.Role == llm.Assistant {
					n += len(m.ToolCalls)
				}
			}
			return n
		}
		if count(repaired) != count(msgs) {
			t.Fatalf("%d calls of %d", count(repaired), count(msgs))
		}
		// Added one at a time, the beginning never changes.
		c := New(nil)
		before := ""
		for _, m := range msgs {
			c.Append(m)
			now := script(c.Messages())
			if !strings.HasPrefix(now, before) {
				t.Fatalf("the beginning changed:\n%s\nwas\n%s", now, before)
			}
			before = now
		}
		c.Settle("")
		valid(t, c.Messages())
		// The export holds the same conversation.
		data, err := Export(repaired)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Import(data)
		if err != nil {
			t.Fatal(err)
		}
		rest := repaired
		if len(rest) > 0 && rest[0].Role == llm.System {
			rest, back = rest[1:], back[1:] // there it is a user message
		}
		if count(back) != count(rest) || len(back) != len(rest) {
			t.Fatalf("exported and imported:\n%s\nwas\n%s", script(back), script(rest))
		}
		for i, m := range back {
			if m.Role != rest[i].Role || m.Content != rest[i].Content || m.ToolCallID != rest[i].ToolCallID {
				t.Fatalf("message %d: %s\nwas %s", i, script(back[i:i+1]), script(rest[i:i+1]))
			}
		}
	})
}
