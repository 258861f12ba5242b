package openai

import (
	"net/url"
	"strings"
)

// echo says what of an answer's further fields goes back with the conversation.
type echo int

const (
	// echoDrop leaves reasoning out.
	echoDrop echo = iota
	// echoKeep sends reasoning back as it came.
	echoKeep
	// echoFill also gives answers without reasoning a blank one, since the
	// provider refuses conversations in which an answer has none. Blank is one
	// space: some take an empty string for a missing one.
	echoFill
)

// reasoningFields are the names under which reasoning comes as text.
var reasoningFields = []string{"reasoning_content", "reasoning", "reasoning_text"}

// detailsField holds reasoning as a list of parts, which may be signed.
const detailsField = "reasoning_details"

// thinkField keeps inline reasoning with its tags, for the models that want it
// back at the head of their content. It is never sent as a field.
const thinkField = "_think"

// strictHosts refuse messages with fields that they do not know: OpenAI and Azure
// with "unknown parameter", Mistral with "extra inputs are not permitted", Groq
// with "property is unsupported".
var strictHosts = []string{"api.openai.com", "openai.azure.com", "api.mistral.ai", "api.groq.com", "api.cerebras.ai"}

// echoRule is a line of the table that "auto" looks up. A rule holds where the
// model's name contains one of models and none of but.
type echoRule struct {
	models []string
	but    []string
	echo   echo
}

// echoRules, the first that holds counts:
//   - DeepSeek R1 refused reasoning in conversations. From V3.2 on every answer
//     beside tools must have it back.
//   - Kimi with thinking refuses calls without it; the earlier K2 models know none.
//   - GLM, MiniMax, Qwen, gpt-oss, MiMo, Step and Seed think between calls and do
//     better with their earlier reasoning; their templates drop what they do not want.
//   - A model of another name is taken to want none: most templates ignore it, some
//     servers refuse it, and it costs input.
var echoRules = []echoRule{
	{models: []string{"deepseek-r1", "r1-distill"}, echo: echoDrop},
	{models: []string{"deepseek"}, echo: echoFill},
	{models: []string{"kimi-k2-0711", "kimi-k2-0905", "kimi-k2-instruct", "kimi-k2-turbo", "moonshot-v1"}, echo: echoDrop},
	{models: []string{"kimi", "k2p5", "moonshot"}, echo: echoFill},
	{models: []string{"glm-", "minimax", "qwen3", "qwq", "gpt-oss", "mimo", "step-3", "seed-"}, but: []string{"qwen3-coder"}, echo: echoKeep},
}

// routers pass a model's reasoning on and ask for all of it back.
var routers = []string{"openrouter.ai"}

func (r echoRule) holds(model string) bool {
	contains := func(words []string) bool {
		for _, w := range words {
			if strings.Contains(model, w) {
				return true
			}
		}
		return false
	}
	return contains(r.models) && !contains(r.but)
}

// echoFor returns how a model at a base URL wants its reasoning, and whether the
// host refuses fields it does not know. mode is the configured override.
func echoFor(mode, base, model string) (e echo, strict bool) {
	host := ""
	if u, err := url.Parse(base); err == nil {
		host = strings.ToLower(u.Hostname())
	}
	at := func(hosts []string) bool {
		for _, h := range hosts {
			if host == h || strings.HasSuffix(host, "."+h) {
				return true
			}
		}
		return false
	}
	strict = at(strictHosts)
	model = strings.ToLower(model)
	e = echoDrop
	found := false
	for _, r := range echoRules {
		if r.holds(model) {
			e, found = r.echo, true
			break
		}
	}
	switch mode {
	case "never":
		return echoDrop, strict
	case "always":
		return max(e, echoKeep), false
	}
	if strict {
		return echoDrop, true
	}
	if !found && at(routers) {
		e = echoKeep
	}
	return e, false
}
