package llmtest

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// Script decides what the model answers. It is called once per valid request,
// by several goroutines at once.
type Script func(*Request) Reply

// over is the answer where a script has nothing left to say: final, so that a
// test fails at once and says why.
func over(r *Request, n int) Reply {
	return Status(http.StatusBadRequest, fmt.Sprintf(
		"llmtest: the script has no reply for request %d (turn %d, %d replies given), which ends with %q",
		r.Ordinal, r.Turn(), n, clip(r.Last().Content, 200))).Code("script_over")
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}

// Always gives the same reply to every request.
func Always(reply Reply) Script { return func(*Request) Reply { return reply } }

// Queue gives the replies one after the other, whatever is asked: for one task.
// After the last it answers 400.
func Queue(replies ...Reply) Script {
	var mu sync.Mutex
	next := 0
	return func(r *Request) Reply {
		mu.Lock()
		defer mu.Unlock()
		if next == len(replies) {
			return over(r, next)
		}
		next++
		return replies[next-1]
	}
}

// ByTurn gives reply n to a conversation that holds n-1 answers, so that one
// script serves any number of conversations without keeping count. A request
// that is asked again gets the same reply again.
func ByTurn(replies ...Reply) Script {
	return func(r *Request) Reply {
		if n := r.Turn(); n <= len(replies) {
			return replies[n-1]
		}
		return over(r, len(replies))
	}
}

// PerTask gives every task, told apart by its first user message, a script of
// its own, made when the task is first seen.
func PerTask(make func(first *Request) Script) Script {
	var mu sync.Mutex
	scripts := map[string]Script{}
	return func(r *Request) Reply {
		key := r.FirstUser()
		mu.Lock()
		s := scripts[key]
		if s == nil {
			s = make(r)
			scripts[key] = s
		}
		mu.Unlock()
		return s(r)
	}
}

// Rule is a condition and the script that answers where it holds.
type Rule struct {
	When   func(*Request) bool
	Script Script
}

// Route asks the script of the first rule that holds; where none does the
// answer is 400.
func Route(rules ...Rule) Script {
	return func(r *Request) Reply {
		for _, rule := range rules {
			if rule.When(r) {
				return rule.Script(r)
			}
		}
		return over(r, 0)
	}
}

// Task holds where the first user message contains marker; its replies are a queue.
func Task(marker string, replies ...Reply) Rule {
	return Rule{func(r *Request) bool { return strings.Contains(r.FirstUser(), marker) }, Queue(replies...)}
}

// Otherwise holds always.
func Otherwise(s Script) Rule { return Rule{func(*Request) bool { return true }, s} }
