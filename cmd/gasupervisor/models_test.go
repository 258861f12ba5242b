package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/config"
)

// Of many rounds that begin at once one asks for the window, and a round that is
// stopped does not wait for a server that says nothing.
func TestWindowIsAskedForOnce(t *testing.T) {
	var asked atomic.Int32
	questions, answer := make(chan struct{}, 100), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		questions <- struct{}{}
		select {
		case <-answer:
			fmt.Fprint(w, `{"data":[{"id":"m","max_model_len":4096}]}`)
		case <-r.Context().Done():
		}
	}))
	defer srv.Close()
	c := config.Default()
	c.LLMs = []config.LLM{{Name: "own", BaseURL: srv.URL, Model: "m", MaxConcurrent: 1}}
	m := newModels(&c, nil, slog.New(slog.DiscardHandler))

	stopped, stop := context.WithCancel(t.Context())
	early := make(chan int)
	go func() {
		model, err := m.choose(stopped, "own", "")
		if err != nil {
			t.Error(err)
		}
		early <- model.ContextWindow
	}()
	<-questions
	stop()
	if w := <-early; w != unknownWindow {
		t.Errorf("stopped, it has the window %d", w)
	}

	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if model, err := m.choose(t.Context(), "own", ""); err != nil || model.ContextWindow != 4096 {
				t.Errorf("window %d, %v", model.ContextWindow, err)
			}
		})
	}
	<-questions
	close(answer)
	all.Wait()
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times", n)
	}
}
