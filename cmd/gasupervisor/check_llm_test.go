package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/config"
)

// A list that breaks off is the connection's fault, and nobody should be sent to
// look at base_url for it.
func TestCheckLLMWhoseListBreaksOff(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.Write([]byte(`{"data":[{"id":"m`)) // less than was promised
	}))
	defer server.Close()
	f := checkLLM(t.Context(), &config.LLM{Name: "main", BaseURL: server.URL, Model: "m"})
	if f.Level != levelWarning || !strings.Contains(f.Text, "breaks off") || strings.Contains(f.Do, "base_url") {
		t.Errorf("got %+v, want a warning that the list breaks off", f)
	}
}
