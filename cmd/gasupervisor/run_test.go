package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/gasupervisor/gasupervisor/internal/config"
)

// A daemon without a key starts, since it may have other LLMs, and says so at once
// and not only when the first task fails.
func TestStartSaysThatAKeyIsMissing(t *testing.T) {
	for _, tt := range []struct {
		name    string
		environ []string
		want    bool
	}{
		{"no key", []string{}, true},
		{"a key", []string{"OPENAI_API_KEY=sk-test"}, false},
		{"a server that may need none", []string{"OPENAI_BASE_URL=http://127.0.0.1:1/v1", "OPENAI_MODEL=m"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := config.Load(config.Options{Dir: dir, Environ: tt.environ, UserDir: dir, SystemDir: dir, ReadKeys: true})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			logStart(slog.New(slog.NewTextHandler(&out, nil)), l)
			if got := strings.Contains(out.String(), "has no key") && strings.Contains(out.String(), "set OPENAI_API_KEY"); got != tt.want {
				t.Errorf("said: %v, want %v\n%s", got, tt.want, &out)
			}
			if strings.Contains(out.String(), "sk-test") {
				t.Errorf("the log holds the key\n%s", &out)
			}
		})
	}
}
