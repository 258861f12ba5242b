package redact

import (
	"log/slog"
	"regexp"
)

// shapes are how keys look that are made to be found: each begins with words of
// its provider, followed by what is too long and too random to be anything else.
var shapes = regexp.MustCompile(`\b(?:` +
	`sk-[A-Za-z0-9_-]{16,}` + // OpenAI, Anthropic, DeepSeek, OpenRouter and who copied them
	`|(?:gsk|hf|xai|nvapi|pplx|r8|fw|csk)[_-][A-Za-z0-9_-]{16,}` + // Groq, Hugging Face, xAI, NVIDIA, Perplexity, Replicate, Fireworks, Cerebras
	`|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}` +
	`|glpat-[A-Za-z0-9_-]{16,}` +
	`|xox[abeoprs]-[A-Za-z0-9-]{10,}` +
	`|AIza[A-Za-z0-9_-]{30,}` +
	`|(?:AKIA|ASIA)[A-Z0-9]{16}` +
	`|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}` + // Stripe
	`|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|dop_v1_[a-f0-9]{40,}` +
	`|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}` + // JWT
	`)`)

// bearers are headers that carry a key of whatever shape.
var bearers = regexp.MustCompile(`(?i)\b(bearer +|basic +|(?:api[-_]?key|access[-_]?token|authorization)["']?\s*[:=]\s*["']?(?:bearer +)?)[A-Za-z0-9._~+/=-]{12,}`)

// passwords are those of URLs. What has a slash is one only where the @ of a host
// follows: else it is a port and a path, and who is told to correct an address has to
// see it. Without a slash it may be one that was cut off before its @.
var passwords = regexp.MustCompile(`(://[^\s/:@]+:)(?:[A-Za-z0-9._~+/=-]{12,}(@)|[A-Za-z0-9._~+=-]{12,})`)

// privateKey is a block of PEM, with its end or cut off before it.
var privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`)

// Shapes returns s with Mark in place of everything that looks like a key of a
// well-known provider. It is for logs and status only: what is taken out here may
// have been something else.
func Shapes(s string) string {
	if len(s) < MinKey {
		return s
	}
	s = privateKey.ReplaceAllLiteralString(s, Mark)
	s = bearers.ReplaceAllString(s, "${1}"+Mark)
	s = passwords.ReplaceAllString(s, "${1}"+Mark+"${2}")
	return shapes.ReplaceAllLiteralString(s, Mark)
}

// Text returns s without the Replacer's keys and without what looks like one: for
// a line of a log or a status.
func (r *Replacer) Text(s string) string { return Shapes(r.String(s)) }

// Attr is slog.HandlerOptions.ReplaceAttr for logs without keys. It looks at texts,
// errors and what knows how to print itself.
func (r *Replacer) Attr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if s := a.Value.String(); len(s) >= MinKey {
			a.Value = slog.StringValue(r.Text(s))
		}
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error:
			a.Value = slog.StringValue(r.Text(v.Error()))
		case interface{ String() string }:
			a.Value = slog.StringValue(r.Text(v.String()))
		case []string:
			clean := make([]string, len(v))
			for i, s := range v {
				clean[i] = r.Text(s)
			}
			a.Value = slog.AnyValue(clean)
		}
	}
	return a
}
