package history

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// session is a conversation of n turns, each with three calls whose results have
// size bytes, and a message of the supervisor every tenth turn.
func session(n, size int) []llm.Message {
	msgs := []llm.Message{sys("be good"), user("[supervisor]\nthe task")}
	for i := range n {
		id := func(k int) string { return fmt.Sprintf("t%d_%d", i, k) }
		msgs = append(msgs, says(fmt.Sprintf("turn %d", i), id(0)+" read", id(1)+" read", id(2)+` write {"path":"/f","content":"`+strings.Repeat("y", size/2)+`"}`))
		for k := range 3 {
			msgs = append(msgs, result(id(k), fmt.Sprintf("%d/%d ", i, k)+strings.Repeat("é", size/2)))
		}
		if i%10 == 9 {
			msgs = append(msgs, user(fmt.Sprintf("[supervisor]\nnote %d", i)))
		}
	}
	return msgs
}

func supervisors(m llm.Message) bool { return strings.HasPrefix(m.Content, "[supervisor]") }

func TestEstimate(t *testing.T) {
	for _, tc := range []struct {
		text     string
		from, to int
	}{
		{"", 0, 0},
		{"The quick brown fox jumps over the lazy dog.", 10, 16},
		{"敏捷的棕色狐狸跳过了懒狗", 10, 14},
		{strings.Repeat("if err != nil {\n\treturn err\n}\n", 10), 70, 110},
	} {
		if n := EstimateText(tc.text); n < tc.from || n > tc.to {
			t.Errorf("%.20q: %d tokens, want %d to %d", tc.text, n, tc.from, tc.to)
		}
	}
	m := says("text", `a read {"path":"/x"}`)
	m.Extra = map[string]llm.RawJSON{"reasoning_content": llm.RawJSON(`"because"`)}
	whole, bare := Estimate([]llm.Message{user("x"), m}), Estimate([]llm.Message{user("x"), says("text")})
	if whole < bare+10 {
		t.Errorf("calls and other fields do not count: %d, without them %d", whole, bare)
	}
}

func TestCutToolResults(t *testing.T) {
	msgs := session(5, 3000)
	before := script(msgs)
	out, n := CutToolResults(msgs, 2, 300, nil)
	valid(t, out)
	if n != 9 || len(out) != len(msgs) {
		t.Errorf("%d results cut", n)
	}
	for i, m := range out {
		switch {
		case m.Role != llm.ToolRole:
		case i < turnStart(msgs, 2):
			if len(m.Content) > 400 || !strings.Contains(m.Content, "bytes cut") || !strings.HasPrefix(m.Content, msgs[i].Content[:100]) || !strings.HasSuffix(m.Content, "éé") {
				t.Errorf("message %d: %q", i, m.Content)
			}
		case m.Content != msgs[i].Content:
			t.Errorf("message %d of the newest turns changed", i)
		}
	}
	if script(msgs) != before {
		t.Error("the messages that were passed in changed")
	}
	if again, n := CutToolResults(out, 2, 300, nil); n != 0 || &again[0] != &out[0] {
		t.Errorf("cut again: %d", n)
	}
	if _, n := CutToolResults(msgs, 0, 300, nil); n != 15 {
		t.Errorf("%d results cut of all", n)
	}
	if _, n := CutToolResults(msgs, 9, 300, nil); n != 0 {
		t.Errorf("%d results cut with all turns kept", n)
	}
	if out, n := CutToolResults(nil, 0, -1, nil); out != nil || n != 0 {
		t.Errorf("nothing: %v, %d", out, n)
	}
}

func TestCutArguments(t *testing.T) {
	long := strings.Repeat("<é>", 1000)
	msgs := []llm.Message{user("x"),
		says("", `a write {"path":"/f","content":"`+long+`","lines":[1,2]}`, `b read {"path":"/g"}`), result("a", "1"), result("b", "2"),
		says("", `c plan {"steps":["`+long+`"]}`), result("c", "3"),
		says("", `d write {"content":"`+long+`"}`), result("d", "4")}
	out, n := CutArguments(msgs, 1, 200)
	valid(t, out)
	if n != 2 {
		t.Errorf("%d messages changed", n)
	}
	if a := out[1].ToolCalls[0].Arguments; len(a) > 400 || !strings.Contains(a, `"lines":[1,2]`) || !strings.Contains(a, `"path":"/f"`) || !strings.Contains(a, "bytes cut") {
		t.Errorf("arguments %q", a)
	}
	if out[1].ToolCalls[1].Arguments != msgs[1].ToolCalls[1].Arguments || out[6].ToolCalls[0].Arguments != msgs[6].ToolCalls[0].Arguments {
		t.Error("short or new arguments changed")
	}
	if !strings.Contains(msgs[1].ToolCalls[0].Arguments, long) {
		t.Error("the messages that were passed in changed")
	}
}

func TestDropMiddle(t *testing.T) {
	msgs := session(30, 10)
	out, n := DropMiddle(msgs, 3, supervisors, nil)
	valid(t, out)
	want := append([]llm.Message{msgs[0], msgs[1], user(DroppedNotice), user("[supervisor]\nnote 9"), user("[supervisor]\nnote 19")}, msgs[turnStart(msgs, 3):]...)
	same(t, out, want)
	if n != len(msgs)-len(want)+1 {
		t.Errorf("%d messages dropped", n)
	}

	// Later, once more: one notice stands, the first message and the pairs stay.
	more := append(append([]llm.Message{}, out...), session(20, 10)[2:]...)
	more = Repair(more)
	out, _ = DropMiddle(more, 2, nil, nil)
	valid(t, out)
	if got := strings.Count(script(out), "dropped here to save space"); got != 1 || out[0].Content != "be good" || out[1].Content != msgs[1].Content {
		t.Errorf("%d notices in\n%s", got, script(out))
	}

	// The reply that brought about the first turn that stays stays with it.
	out, _ = DropMiddle(append(session(10, 10), session(1, 10)[2:]...), 1, nil, nil)
	if !strings.Contains(script(out), "note 9") {
		t.Errorf("the reply is gone:\n%s", script(out))
	}

	for name, tc := range map[string]struct {
		msgs []llm.Message
		keep int
	}{
		"nothing":         {nil, 1},
		"no turn":         {[]llm.Message{sys("s"), user("x")}, 0},
		"one turn":        {session(1, 10), 0},
		"all turns newer": {session(3, 10), 3},
		"only users":      {[]llm.Message{user("x"), user("y"), user("z")}, 1},
	} {
		if out, n := DropMiddle(tc.msgs, tc.keep, nil, nil); n != 0 || len(out) != len(tc.msgs) {
			t.Errorf("%s: dropped %d", name, n)
		}
	}
}

func TestReplaceReads(t *testing.T) {
	reads := func(c llm.ToolCall, result string) (Range, bool) {
		var r Range
		if c.Name != "read" || json.Unmarshal([]byte(c.Arguments), &r) != nil || strings.HasPrefix(result, "unchanged") {
			return Range{}, false
		}
		return r, true
	}
	long := func(s string) string { return s + strings.Repeat("x", 200) }
	msgs := []llm.Message{user("go")}
	read := func(args, text string) {
		id := fmt.Sprint("c", len(msgs))
		msgs = append(msgs, says("", id+" read "+args), result(id, text))
	}
	read(`{"File":"a"}`, long("a1"))
	read(`{"File":"b","From":1,"To":50}`, long("b1-50"))
	read(`{"File":"b","From":10,"To":20}`, long("b10-20"))
	read(`{"File":"a"}`, long("a2"))
	read(`{"File":"a"}`, "unchanged since the read above, in so many words that it is long enough to be worth it to be taken out, if it were real")
	read(`{"File":"c"}`, "short")
	read(`{"File":"b","From":15,"To":30}`, long("b15-30"))
	read(`{"File":"c"}`, long("c2"))
	read(`{"File":"b","From":5,"To":30}`, long("b5-30"))
	out, n := ReplaceReads(msgs, reads)
	valid(t, out)
	var kept []string
	for _, m := range out {
		if m.Role == llm.ToolRole && m.Content != ReadNotice {
			kept = append(kept, strings.TrimRight(m.Content, "x"))
		}
	}
	if got := strings.Join(kept, " "); n != 3 || !strings.HasPrefix(got, "b1-50 a2 unchanged") || !strings.HasSuffix(got, "short c2 b5-30") {
		t.Errorf("%d replaced, left: %s", n, got)
	}
	if again, n := ReplaceReads(out, reads); n != 0 || &again[0] != &out[0] {
		t.Errorf("replaced again: %d", n)
	}
	if out, n := ReplaceReads(msgs, nil); n != 0 || &out[0] != &msgs[0] {
		t.Errorf("replaced without knowing what a read is: %d", n)
	}
}

// A loaded skill stays, in the middle of a turn of other calls.
func TestPinnedCallsStay(t *testing.T) {
	skill := func(c llm.ToolCall) bool { return c.Name == "use_skill" }
	text := strings.Repeat("how to do it ", 500)
	msgs := append(session(2, 3000), says("first", "s1 read", `s2 use_skill {"skill_name":"x"}`, "s3 read"), result("s2", text), result("s1", "r"), result("s3", "r"))
	msgs = append(msgs, session(12, 3000)[2:]...)
	msgs = Repair(msgs)
	for _, limit := range []int{20_000, 8000, 3000} {
		out, did := Shrink(msgs, limit, Rules{Keep: supervisors, Pinned: skill})
		valid(t, out)
		found := 0
		for _, m := range out {
			if m.Content == text && m.ToolCallID == "s2" {
				found++
			}
		}
		if found != 1 {
			t.Errorf("limit %d: the skill is there %d times; %+v", limit, found, did)
		}
	}
	out, did := Shrink(msgs, 100, Rules{Pinned: skill, Gentle: true})
	valid(t, out)
	if newest := out[len(out)-1]; newest.Content != msgs[len(msgs)-1].Content || did.After <= 100 {
		t.Errorf("gently: %+v", did)
	}
}

// A conversation of nothing but tools, with the cut inside a batch of results.
func TestDropMiddleOfTools(t *testing.T) {
	msgs := []llm.Message{user("go")}
	for i := range 10 {
		id := fmt.Sprintf("c%d_", i)
		msgs = append(msgs, says("", id+"0 read", id+"1 read", id+"2 read"), result(id+"2", "z"), result(id+"0", "x"), result(id+"1", "y"))
	}
	for keep := range 11 {
		out, _ := DropMiddle(msgs, keep, nil, nil)
		valid(t, out)
		if out[0].Content != "go" {
			t.Errorf("keeping %d: begins with %s", keep, script(out[:1]))
		}
	}
}

func TestShrink(t *testing.T) {
	msgs := session(40, 4000)
	all := Estimate(msgs)
	before := script(msgs)
	last := all
	for _, limit := range []int{all * 9 / 10, all / 2, all / 5, all / 20, 3000, 1000} {
		out, did := Shrink(msgs, limit, Rules{Keep: supervisors})
		valid(t, out)
		if did.Before != all || did.After != Estimate(out) || did.After > limit || did.After > last {
			t.Errorf("limit %d: %+v", limit, did)
		}
		last = did.After
		if out[0].Content != msgs[0].Content || out[1].Content != msgs[1].Content {
			t.Errorf("limit %d: the beginning changed", limit)
		}
		if newest := out[len(out)-1]; newest.Role != msgs[len(msgs)-1].Role {
			t.Errorf("limit %d: ends with %s", limit, script(out[len(out)-1:]))
		}
	}
	if script(msgs) != before {
		t.Error("the messages that were passed in changed")
	}
	if out, did := Shrink(msgs, all, Rules{}); &out[0] != &msgs[0] || did != (Shrunk{Before: all, After: all}) {
		t.Errorf("what fits was changed: %+v", did)
	}

	// One huge result in the newest turn, in a small window.
	small := []llm.Message{user("x"), says("", "a read"), result("a", strings.Repeat("line\n", 10_000))}
	out, did := Shrink(small, 3000, Rules{})
	valid(t, out)
	if did.After > 3000 || did.Results == 0 || !strings.Contains(did.String(), "tool results") {
		t.Errorf("%+v", did)
	}
	// A message of the supervisor that no window takes, before the one to be answered.
	large := []llm.Message{user("x"), says("ok"), user("supervisor " + strings.Repeat("y", 40_000)), user("supervisor: forget it " + strings.Repeat("z", 400))}
	must := func(m llm.Message) bool { return strings.Contains(m.Content, "forget it") }
	out, did = Shrink(large, 1500, Rules{Keep: supervisors, Must: must})
	valid(t, out)
	if did.After > 1500 || did.Texts != 1 || out[len(out)-1].Content != large[3].Content {
		t.Errorf("%+v", did)
	}
	// What cannot be made smaller says so.
	huge := []llm.Message{user(strings.Repeat("word ", 10_000)), says("ok")}
	if out, did := Shrink(huge, 1000, Rules{}); did.After <= 1000 || &out[0] != &huge[0] {
		t.Errorf("%+v", did)
	}
}

func FuzzShrink(f *testing.F) {
	f.Add(uint8(5), uint8(2), uint16(100), uint16(50))
	f.Fuzz(func(t *testing.T, turns, keep uint8, size, limit uint16) {
		msgs := session(int(turns)%20, int(size)%5000)
		out, _ := CutToolResults(msgs, int(keep), int(limit), nil)
		valid(t, out)
		out, _ = CutArguments(out, int(keep), int(limit))
		valid(t, out)
		out, _ = DropMiddle(out, int(keep), nil, nil)
		valid(t, out)
		out, did := Shrink(msgs, int(limit), Rules{Keep: supervisors})
		valid(t, out)
		if did.After > did.Before+EstimateText(DroppedNotice)+4 {
			t.Fatalf("grew: %+v", did)
		}
		if again, _ := Shrink(out, did.After, Rules{Keep: supervisors}); script(again) != script(out) {
			t.Fatal("what fits was shrunk again")
		}
	})
}

// A turn of a long conversation: an answer with a call, and its result.
func BenchmarkAppend(b *testing.B) {
	c := New(session(100, 2000))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		kept := c.Append(says("", fmt.Sprintf("n%d read", i)))
		c.Append(result(kept[0].ToolCalls[0].ID, "done"))
	}
}

func BenchmarkValidate(b *testing.B) { benchmark(b, func(msgs []llm.Message) { _ = Validate(msgs) }) }
func BenchmarkRepair(b *testing.B) {
	broken := func(msgs []llm.Message) { Repair(msgs[:len(msgs)-2]) }
	benchmark(b, broken)
}
func BenchmarkNew(b *testing.B)      { benchmark(b, func(msgs []llm.Message) { New(msgs) }) }
func BenchmarkEstimate(b *testing.B) { benchmark(b, func(msgs []llm.Message) { Estimate(msgs) }) }
func BenchmarkExport(b *testing.B)   { benchmark(b, func(msgs []llm.Message) { _, _ = Export(msgs) }) }
func BenchmarkShrink(b *testing.B) {
	benchmark(b, func(msgs []llm.Message) { Shrink(msgs, 20_000, Rules{}) })
}

func BenchmarkImport(b *testing.B) {
	data, err := Export(session(100, 2000))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Import(data); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmark(b *testing.B, f func([]llm.Message)) {
	msgs := session(100, 2000)
	data, err := Export(msgs)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		f(msgs)
	}
}
