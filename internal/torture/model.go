package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
)

// token is what makes a message of a supervisor recognisable: its task, and a
// number of its own.
var token = regexp.MustCompile(`msg-[a-z]+[0-9]+-[0-9]{5}\.`)

// job is what makes a subagent's prompt recognisable.
var job = regexp.MustCompile(`job-[0-9]{6}-[0-9]\.`)

// model is the scripted model. What it does in a turn depends on the seed and on
// the conversation; what its commands write is different in every answer.
type model struct {
	seed   uint64
	ledger string
	// quick makes it finish each round at once.
	quick bool

	mu sync.Mutex
	// seen holds the tokens that have been in a request.
	seen map[string]bool
	// issued holds the calls that were asked for, by what they write to the ledger.
	issued map[string]string
	// asked counts the requests.
	asked int
}

func newModel(seed uint64, ledger string) *model {
	return &model{seed: seed, ledger: ledger, seen: map[string]bool{}, issued: map[string]string{}}
}

// hasSeen reports whether a request had this token.
func (m *model) hasSeen(tok string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[tok]
}

func (m *model) requests() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

// answer is an llmtest.Script.
func (m *model) answer(r *llmtest.Request) llmtest.Reply {
	turns := 0 // answers since the newest message of the supervisor
	m.mu.Lock()
	m.asked++
	for _, msg := range r.Messages {
		switch msg.Role {
		case llm.Assistant:
			turns++
		case llm.User:
			for _, tok := range token.FindAllString(msg.Content, -1) {
				m.seen[tok] = true
				turns = 0
			}
		}
	}
	m.mu.Unlock()

	h := fnv.New64a()
	h.Write([]byte(r.FirstUser()))
	dice := rand.New(rand.NewPCG(m.seed^h.Sum64(), uint64(len(r.Messages))))
	text := fmt.Sprintf("Answer %d.", r.Ordinal)
	if m.quick {
		return llmtest.Done(text)
	}
	reply := llmtest.Text(text).After(time.Duration(dice.IntN(30)) * time.Millisecond).Every(time.Duration(dice.IntN(3)) * time.Millisecond)
	// What breaks is another thing each time, or no retry would help.
	switch broken := rand.New(rand.NewPCG(m.seed, uint64(r.Ordinal))).IntN(100); {
	case broken < 2:
		return reply.CutAfter(1 + dice.IntN(3))
	case broken < 3:
		return llmtest.Status(503, "overloaded, says the script")
	}
	switch p := dice.IntN(100); {
	case turns >= 5 || turns > 0 && p < 40 || p < 12:
		return m.withDone(reply, r, dice)
	case p < 46:
		return reply // no call at all: nudged
	case p < 56:
		return reply.Call("read_file", `{"path":"no-such-file"}`)
	case p < 72:
		return m.withEcho(m.withEcho(reply, r, dice, 0), r, dice, 1)
	case p < 80:
		return m.withEcho(reply.Call("read_file", `{"path":"no-such-file"}`), r, dice, 1)
	case p < 87 && slices.Contains(r.ToolNames(), "task") && !strings.Contains(r.FirstUser(), removedToken):
		return m.withJobs(reply, r, dice)
	}
	return m.withEcho(reply, r, dice, 0)
}

func (m *model) withDone(reply llmtest.Reply, r *llmtest.Request, dice *rand.Rand) llmtest.Reply {
	if dice.IntN(4) == 0 {
		reply = m.withEcho(reply, r, dice, 0)
	}
	args, _ := json.Marshal(map[string]string{"result": fmt.Sprintf("Result %d.", r.Ordinal)})
	return reply.Call("attempt_completion", string(args))
}

// withEcho adds a call that leaves a trace in the ledger, the i-th of the answer.
func (m *model) withEcho(reply llmtest.Reply, r *llmtest.Request, dice *rand.Rand, i int) llmtest.Reply {
	trace := fmt.Sprintf("tool-%06d-%d.", r.Ordinal, i)
	id := fmt.Sprintf("call_%d_%d_%s", r.Ordinal, i, "e")
	m.mu.Lock()
	m.issued[trace] = id
	m.mu.Unlock()
	command := fmt.Sprintf("echo %s >> '%s'", trace, m.ledger)
	switch dice.IntN(4) {
	case 0:
		command = fmt.Sprintf("sleep 0.0%d; %s", dice.IntN(10), command)
	case 1:
		command = fmt.Sprintf("%s; sleep 0.0%d", command, dice.IntN(10))
	}
	args, _ := json.Marshal(map[string]string{"command": command})
	return reply.CallID(id, "execute_command", string(args))
}

// withJobs adds a call that sends out subagents, which are asked the same way.
func (m *model) withJobs(reply llmtest.Reply, r *llmtest.Request, dice *rand.Rand) llmtest.Reply {
	var prompts []string
	for i := range 1 + dice.IntN(3) {
		prompts = append(prompts, fmt.Sprintf("job-%06d-%d. do your part", r.Ordinal, i))
	}
	mode := []string{"all", "all", "any", "first_error"}[dice.IntN(4)]
	args, _ := json.Marshal(map[string]any{"description": "parts of it", "prompts": prompts, "mode": mode})
	return reply.Call("task", string(args))
}

func (m *model) issuedCalls() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string]string, len(m.issued))
	for k, v := range m.issued {
		out[k] = v
	}
	return out
}

// messageText makes a message around a token.
func messageText(tok string, dice *rand.Rand) string {
	words := []string{"look again", "größer", "次は", "be brief", "check the dates", "and then?"}
	n := 1 + dice.IntN(3)
	parts := []string{tok}
	for range n {
		parts = append(parts, words[dice.IntN(len(words))])
	}
	return strings.Join(parts, " ") + "\n"
}
