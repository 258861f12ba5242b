package openai

import (
	"encoding/json"
	"html"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxMessage bounds what of a provider's error text is kept, in bytes.
const maxMessage = 2 << 10

// maxErrorBody bounds what of an error's body is read.
const maxErrorBody = 64 << 10

// problem is what an error body says, whatever its shape.
type problem struct {
	message string
	// code and kind are the provider's words, as "insufficient_quota".
	code, kind string
	// status is a HTTP status that the body names, 0 where it names none.
	status int
	// retryAfter is a delay that the body names, as Google's RetryInfo does.
	retryAfter time.Duration
	window     int
}

// parseProblem reads an error body: OpenAI's object, a string or list in its
// place, the shapes of other servers and proxies, an HTML page, plain text. It
// never fails: what it cannot read becomes the message.
func parseProblem(body []byte) problem {
	var p problem
	text := strings.TrimSpace(strings.ToValidUTF8(string(body), "\uFFFD"))
	var v any
	switch {
	case json.Unmarshal([]byte(text), &v) == nil:
		p.walk(v, 0)
		if p.message == "" {
			switch v := v.(type) {
			case map[string]any, []any:
				if !empty(v) {
					p.message = text
				}
			}
		}
	case strings.HasPrefix(text, "<") || strings.Contains(strings.ToLower(clip(text, 1000)), "<html"):
		p.message = pageText(text)
	default:
		p.message = text
	}
	p.message = tidy(p.message)
	p.code, p.kind = clip(tidy(p.code), 100), clip(tidy(p.kind), 100)
	if p.retryAfter == 0 {
		p.retryAfter = delayIn(p.message)
	}
	if p.window == 0 {
		p.window = windowIn(p.message)
	}
	return p
}

// maxShown bounds what is quoted of a body that is no answer.
const maxShown = 200

// noCompletion is the problem of a body that came as a success and cannot be an
// answer: what it says, or what it is.
func noCompletion(body []byte) problem {
	p := parseProblem(body)
	if text := tidy(string(body)); p.message == "" || p.message == text {
		p.message = "the answer is no chat completion: " + clip(text, maxShown)
	}
	return p
}

// empty reports whether a value holds no text or number at any depth.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case map[string]any:
		for _, e := range v {
			if !empty(e) {
				return false
			}
		}
		return true
	case []any:
		for _, e := range v {
			if !empty(e) {
				return false
			}
		}
		return true
	}
	return false
}

// walk collects what v says. Outer values win, but for the message, where the
// innermost text says most.
func (p *problem) walk(v any, depth int) {
	if depth > 6 {
		return
	}
	switch v := v.(type) {
	case string:
		// A JSON text in a string, as proxies pass on what they got.
		var inner any
		if s := strings.TrimSpace(v); strings.HasPrefix(s, "{") && json.Unmarshal([]byte(s), &inner) == nil {
			before := p.message
			p.walk(inner, depth+1)
			if p.message != before {
				return
			}
		}
		p.say(v)
	case []any:
		for i, e := range v {
			if i == 4 {
				break
			}
			p.walk(e, depth+1)
		}
	case map[string]any:
		p.object(v, depth)
	}
}

func (p *problem) object(o map[string]any, depth int) {
	p.codes(o)
	if d, err := time.ParseDuration(word(o["retryDelay"])); err == nil && d > 0 {
		p.retryAfter = d
	}
	if n, ok := o["n_ctx"].(float64); ok && n > 0 && n < 1e9 {
		p.window = int(n)
	}
	for _, name := range []string{"error", "errors", "message", "msg", "detail", "error_description", "error_msg", "error_message", "reason", "title"} {
		// A reason or a title is only a stand-in.
		if standIn := name == "reason" || name == "title"; standIn && p.message != "" {
			continue
		}
		if v, ok := o[name]; ok {
			p.walk(v, depth+1)
		}
	}
	if loc, ok := o["loc"].([]any); ok && len(loc) > 0 {
		parts := make([]string, len(loc))
		for i, l := range loc {
			parts[i] = word(l)
		}
		p.say("at " + strings.Join(parts, "."))
	}
	// Google's details hold the delay, a router's metadata the upstream's own words.
	if d, ok := o["details"].([]any); ok {
		inner := problem{message: "-"}
		for _, e := range d {
			if m, ok := e.(map[string]any); ok {
				inner.object(m, depth+1)
			}
		}
		if inner.retryAfter > 0 {
			p.retryAfter = inner.retryAfter
		}
	}
	if m, ok := o["metadata"].(map[string]any); ok {
		p.walk(m["raw"], depth+1)
	}
}

// codes takes the status and the provider's words for what went wrong.
func (p *problem) codes(o map[string]any) {
	for _, name := range []string{"code", "status", "status_code", "statusCode", "http_code"} {
		w := word(o[name])
		if n, err := strconv.Atoi(w); err == nil && n >= 400 && n < 600 {
			if p.status == 0 {
				p.status = n
			}
			continue
		}
		if p.code == "" && (name == "code" || name == "status") {
			p.code = w
		}
	}
	if kind := word(o["type"]); p.kind == "" && kind != "error" {
		p.kind = kind
	}
}

// word is a text or a number as text; "" for anything else.
func word(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// say adds to the message what is not in it yet.
func (p *problem) say(s string) {
	s = strings.TrimSpace(s)
	switch {
	case s == "" || strings.Contains(p.message, s):
	case p.message == "":
		p.message = clip(s, maxMessage)
	default:
		p.message = clip(p.message+": "+s, maxMessage)
	}
}

// pageText reduces an HTML page to its title and the beginning of its text.
func pageText(page string) string {
	page = clip(page, maxErrorBody)
	title := ""
	if m := htmlTitle.FindStringSubmatch(page); m != nil {
		title = strings.TrimSpace(htmlTag.ReplaceAllString(m[1], " "))
	}
	page = htmlHidden.ReplaceAllString(page, " ")
	page = htmlTag.ReplaceAllString(page, " ")
	text := clip(strings.Join(strings.Fields(html.UnescapeString(page)), " "), 300)
	title = strings.Join(strings.Fields(html.UnescapeString(title)), " ")
	switch {
	case title == "" || strings.HasPrefix(text, title):
		return text
	case text == "":
		return title
	}
	return title + ": " + text
}

var (
	htmlTitle  = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)
	htmlHidden = regexp.MustCompile(`(?is)<(?:head|script|style)\b.*?</(?:head|script|style)>|<!--.*?-->`)
	htmlTag    = regexp.MustCompile(`(?s)<[^>]*>`)
	tryAgain   = regexp.MustCompile(`(?i)(?:try again|retry|wait)(?: in| after| for)? ((?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?) ?(millis|ms|s|m)`)
	windowText = []*regexp.Regexp{
		regexp.MustCompile(`(?i)(?:maximum|max) (?:context|model|prompt) length(?: is| of| \(|:|=)? ?\(?([\d,]+)`),
		regexp.MustCompile(`(?i)context (?:size|length|window) ?(?:is|of|\(|:|=)? ?\(?([\d,]+) ?tokens`),
		regexp.MustCompile(`(?i)token limit: ([\d,]+)`),
		regexp.MustCompile(`(?i)tokens? > ([\d,]+) maximum`),
		regexp.MustCompile(`(?i)max_(?:seq_len|model_len)\D{0,3}([\d,]+)`),
		regexp.MustCompile(`(?i)maximum (?:number of tokens allowed|allowed input length)(?: of)? ?\(?([\d,]+)`),
	}
)

// delayIn finds a delay in words like "Please try again in 7.66s".
func delayIn(s string) time.Duration {
	m := tryAgain.FindStringSubmatch(s)
	if m == nil {
		return 0
	}
	unit := strings.ToLower(m[2])
	if unit == "millis" {
		unit = "ms"
	}
	d, err := time.ParseDuration(strings.ToLower(m[1]) + unit)
	if err != nil || d < 0 {
		return 0
	}
	return d
}

// windowIn finds the size of the window in the text of an overflow.
func windowIn(s string) int {
	for _, re := range windowText {
		if m := re.FindStringSubmatch(s); m != nil {
			if n, err := strconv.Atoi(strings.ReplaceAll(m[1], ",", "")); err == nil && n >= 256 && n < 1e9 {
				return n
			}
		}
	}
	return 0
}

// retryAfter reads the delay that a response's header asks for, 0 where it asks
// for none. limited says that a rate limit refused the request: the headers that
// tell how a rate limit stands come with other answers too, and delay nothing then.
func retryAfter(h http.Header, limited bool, now time.Time) time.Duration {
	seconds := func(s string, unit time.Duration) time.Duration {
		f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil || f <= 0 || f > 1e9 {
			return 0
		}
		return time.Duration(f * float64(unit))
	}
	if d := seconds(h.Get("Retry-After-Ms"), time.Millisecond); d > 0 {
		return d
	}
	if v := h.Get("Retry-After"); v != "" {
		if d := seconds(v, time.Second); d > 0 {
			return d
		}
		if t, err := http.ParseTime(v); err == nil && t.After(now) {
			return t.Sub(now)
		}
	}
	if !limited {
		return 0
	}
	return resetAfter(h, now)
}

// resetAfter is how long it takes until a rate limit that is used up is not any more.
func resetAfter(h http.Header, now time.Time) time.Duration {
	// The resets of what is used up, as durations; OpenAI and Groq send these.
	var longest time.Duration
	for _, what := range []string{"Requests", "Tokens"} {
		if h.Get("X-Ratelimit-Remaining-"+what) != "0" {
			continue
		}
		if d, err := time.ParseDuration(h.Get("X-Ratelimit-Reset-" + what)); err == nil {
			longest = max(longest, d)
		}
	}
	if longest > 0 {
		return longest
	}
	// A moment, in seconds or milliseconds since 1970, or seconds from now.
	if f, err := strconv.ParseFloat(h.Get("X-Ratelimit-Reset"), 64); err == nil && f > 0 {
		switch {
		case f > 1e11 && f < 1e14:
			return max(0, time.UnixMilli(int64(f)).Sub(now))
		case f > 1e8 && f <= 1e11:
			return max(0, time.Unix(int64(f), 0).Sub(now))
		case f < 1e6:
			return time.Duration(f * float64(time.Second))
		}
	}
	return 0
}

// tidy makes a text fit for one readable line: valid, no control characters,
// bounded.
func tidy(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return clip(strings.Join(strings.Fields(s), " "), maxMessage)
}

// clip bounds s to n bytes on whole characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n = max(0, n-3)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}
