package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

const (
	discoverTimeout = 10 * time.Second
	maxModels       = 16 << 20
)

// windowFields are the names under which servers list a model's window: vLLM and
// SGLang; Groq; OpenRouter and others; LM Studio and Mistral.
var windowFields = []string{"loaded_context_length", "max_model_len", "context_window", "context_length", "max_context_length", "max_input_tokens", "n_ctx"}

// Discover asks the server's list of models for the context window of the
// client's model, in tokens: 0 where the list does not say, as Ollama's does not.
// It blocks for at most ten seconds. The error is as Complete's; a key that
// does not work and a server that does not run show here too.
func (c *Client) Discover(ctx context.Context) (int, error) {
	models, err := c.models(ctx)
	if err != nil {
		return 0, err
	}
	for _, m := range models {
		if strings.EqualFold(m.id, c.cfg.Model) || len(models) == 1 {
			return m.window, nil
		}
	}
	return 0, nil
}

type model struct {
	id     string
	window int
}

func (c *Client) models(ctx context.Context) ([]model, error) {
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/models", nil)
	if err != nil {
		return nil, c.connectError(err)
	}
	if key := c.key(); key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	req.Header.Set("Accept", "application/json")
	c.headers(req.Header)
	resp, err := c.http.Do(req)
	if err != nil {
		if parent.Err() != nil {
			return nil, fmt.Errorf("list models of LLM %s: %w", c.cfg.Name, parent.Err())
		}
		return nil, c.connectError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		return nil, c.statusError(resp, body, time.Now())
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxModels))
	if err != nil {
		return nil, c.connectError(err)
	}
	var list struct{ Data []map[string]json.RawMessage }
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, &llm.Error{Kind: llm.KindBadRequest, LLM: c.cfg.Name, Status: resp.StatusCode,
			Message: "the list of models is not JSON: is base_url " + redactURL(c.base) + " right? It usually ends in /v1"}
	}
	var out []model
	for _, m := range list.Data {
		var id string
		_ = json.Unmarshal(m["id"], &id)
		out = append(out, model{id, windowOf(m)})
	}
	return out, nil
}

func windowOf(m map[string]json.RawMessage) int {
	for _, name := range windowFields {
		var n float64
		if json.Unmarshal(m[name], &n) == nil && n >= 1 && n < 1e9 {
			return int(n)
		}
	}
	// llama.cpp keeps it under meta, routers under top_provider.
	for _, name := range []string{"meta", "top_provider"} {
		var inner map[string]json.RawMessage
		if json.Unmarshal(m[name], &inner) == nil && inner != nil {
			if n := windowOf(inner); n > 0 {
				return n
			}
		}
	}
	return 0
}
