//go:build unix

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/llm/llmtest"
	"github.com/gasupervisor/gasupervisor/internal/taskdir"
)

func TestTwoHundredTasksInABurst(t *testing.T) {
	t.Parallel()
	const n = 200
	d := start(t, func(r *llmtest.Request) llmtest.Reply {
		return llmtest.Done("answer to " + number.FindString(r.FirstUser()))
	})
	for i := range n {
		d.begin(fmt.Sprintf("task %d", i), fmt.Sprintf("number<%d>", i))
	}
	for i := range n {
		text := d.output(fmt.Sprintf("task %d", i), 0)
		wants(t, "output", text, fmt.Sprintf("answer to number<%d>", i))
	}
	d.fence("fence")
	asked := map[string]int{}
	for _, r := range d.model.Requests() {
		asked[number.FindString(r.FirstUser())]++
	}
	for i := range n {
		if got := asked[fmt.Sprintf("number<%d>", i)]; got != 1 {
			t.Errorf("task %d was asked for %d times, want once", i, got)
		}
	}
	if got := d.model.Count(); got != n+1 {
		t.Errorf("%d requests, want %d", got, n+1)
	}
}

var number = regexp.MustCompile(`number<\d+>`)

// message is a message of TestThousandMessages: who wrote it, its number, and a
// length and a filling that show whether it is whole.
var message = regexp.MustCompile(`<([a-z]+)-(\d+):(\d+):(x*)>`)

func messageText(writer string, i int) string {
	filling := 1 + rand.IntN(60)
	return fmt.Sprintf("<%s-%d:%d:%s>", writer, i, filling, strings.Repeat("x", filling))
}

// writer is a way in which messages are written: n of them, each by one call of
// write.
type writer struct {
	n     int
	write func(t *testing.T, d *daemon, file, text string)
}

var writers = map[string]writer{
	// A supervisor that writes with `>` writes over what it wrote, so it waits until
	// that is taken: a round for each.
	"overwrite": {60, func(t *testing.T, d *daemon, file, text string) {
		d.until(file+" is taken", func() bool { _, err := os.Lstat(file); return os.IsNotExist(err) })
		slowly(t, file, time.Millisecond, text, "\n")
	}},
	"append": {190, func(t *testing.T, d *daemon, file, text string) {
		appendTo(t, file, text+"\n")
	}},
	// One handle, in pieces: half a message stands in the file for a while.
	"chunks": {190, func(t *testing.T, d *daemon, file, text string) {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		third := len(text) / 3
		for _, piece := range []string{text[:third], text[third : 2*third], text[2*third:], "\n"} {
			if _, err := f.WriteString(piece); err != nil {
				t.Error(err)
			}
			if rand.IntN(4) == 0 {
				time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond)
			}
		}
	}},
	"rename": {60, func(t *testing.T, d *daemon, file, text string) {
		d.until(file+" is taken", func() bool { _, err := os.Lstat(file); return os.IsNotExist(err) })
		temp := strings.Replace(file, "/reply.txt", "/.reply.tmp", 1)
		temp = strings.Replace(temp, "/_intervene", "/.intervene.tmp", 1)
		slowly(t, temp, time.Millisecond, text[:1], text[1:]+"\n")
		if err := os.Rename(temp, file); err != nil {
			t.Error(err)
		}
	}},
}

// A thousand slow and half writes of replies and interventions: none is lost, none
// arrives twice, none in part, and each writer's arrive in their order.
func TestAThousandMessages(t *testing.T) {
	t.Parallel()
	d := start(t, done, "GASUPERVISOR_REPLY_TIMEOUT=1h")
	var writing sync.WaitGroup
	var tasks []string
	for way, by := range writers {
		for _, file := range []string{"reply.txt", "_intervene"} {
			name := way + " " + file
			tasks = append(tasks, name)
			d.begin(name, "begin "+name)
			d.output(name, 0)
			writing.Go(func() {
				for i := range by.n {
					by.write(t, d, d.task(name, file), messageText(way, i))
				}
			})
		}
	}
	writing.Wait()
	for _, name := range tasks {
		way, _, _ := strings.Cut(name, " ")
		each := writers[way].n
		var newest *llmtest.Request
		d.until("the last message for "+name+" arrives", func() bool {
			of := d.requests("begin " + name)
			newest = of[len(of)-1]
			return newest.Has(fmt.Sprintf("<%s-%d:", way, each-1))
		})
		next := 0
		for _, m := range newest.Messages {
			if m.Role != llm.User {
				continue
			}
			found := message.FindAllStringSubmatch(m.Content, -1)
			if strings.Count(m.Content, "<") != len(found) || strings.Count(m.Content, ">") != len(found) {
				t.Errorf("%s: a part of a message in %q", name, m.Content)
			}
			for _, f := range found {
				if f[2] != fmt.Sprint(next) {
					t.Fatalf("%s: message %s where %d was next", name, f[2], next)
				}
				if f[3] != fmt.Sprint(len(f[4])) {
					t.Errorf("%s: message %d is cut: %q", name, next, f[0])
				}
				next++
			}
		}
		if next != each {
			t.Errorf("%s: %d messages arrived, want %d", name, next, each)
		}
	}
	for _, r := range d.model.Refusals() {
		t.Error(r)
	}
	for _, name := range tasks {
		d.comes(name, taskdir.AwaitingReply)
	}
}
