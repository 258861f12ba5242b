package openai

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gasupervisor/gasupervisor/internal/llm"
)

// errIdle is the cause with which a silent request is cancelled.
var errIdle = errors.New("idle timeout")

// attempt is one request. It is the HTTPDoer below go-openai: it completes the
// body, turns failures into *llm.Error, and hands the stream up in clean form.
type attempt struct {
	client *Client
	req    llm.Request
	cancel context.CancelCauseFunc

	called bool // go-openai came as far as making the request
	sent   bool // the request went out, or may have
	status int
	events *eventReader
	// unchosen is the beginning of the newest event, while none had a choice.
	unchosen string
	// cause is why the context ended while the answer was read; nil where it had not.
	cause error

	mu      sync.Mutex
	idle    *time.Timer
	timeout time.Duration
	// content is when something other than keep-alive last came.
	content       time.Time
	ending        bool
	onlyKeepAlive atomic.Bool
}

// watch starts the idle timeout.
func (a *attempt) watch(d time.Duration) {
	a.timeout = d
	a.content = time.Now()
	a.idle = time.AfterFunc(d, func() { a.cancel(errIdle) })
}

// alive notes that something came.
func (a *attempt) alive(content bool) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.ending:
		return
	case content:
		a.content = now
	case now.Sub(a.content) > keepAliveFactor*a.timeout:
		a.onlyKeepAlive.Store(true)
		a.cancel(errIdle)
		return
	}
	a.idle.Reset(a.timeout)
}

// tail bounds the wait for what follows a complete answer.
func (a *attempt) tail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ending {
		a.ending = true
		a.idle.Reset(min(tailTimeout, a.timeout))
	}
}

// finish reads the few bytes that end the response, so that its connection can
// be used again, and closes it.
func (a *attempt) finish(closeBody func() error) {
	if a.events != nil && a.events.done {
		stop := time.AfterFunc(drainTimeout, func() { a.cancel(errIdle) })
		_, _ = io.CopyN(io.Discard, a.events.src, 64<<10)
		stop.Stop()
	}
	_ = closeBody()
}

// Do implements go-openai's HTTPDoer.
func (a *attempt) Do(req *http.Request) (*http.Response, error) {
	c := a.client
	a.called = true
	base, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, fmt.Errorf("read base request: %w", err)
	}
	body, err := c.body(base, a.req)
	if err != nil {
		return nil, &llm.Error{Kind: llm.KindBadRequest, LLM: c.cfg.Name, Message: tidy(err.Error()), Err: err}
	}
	req.Body = body.reader()
	req.GetBody = func() (io.ReadCloser, error) { return body.reader(), nil }
	req.ContentLength = body.size()
	// These two belong to a connection, and HTTP/2 refuses them.
	req.Header.Del("Connection")
	req.Header.Del("Cache-Control")
	c.headers(req.Header)

	a.sent = true
	resp, err := c.http.Do(req)
	if err != nil {
		var op *net.OpError
		a.sent = !errors.As(err, &op) || op.Op != "dial"
		return nil, err
	}
	a.status = resp.StatusCode
	a.alive(true)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer resp.Body.Close()
		// What was read of a body that breaks off still says something.
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		return nil, c.statusError(resp, body, time.Now())
	}
	a.events = newEventReader(
		&aliveReader{resp.Body, a},
		func() { a.alive(true) },
		func(data []byte) error {
			p := parseProblem(data)
			return c.problemError(a.status, p)
		})
	a.events.maxEvent = 2 * c.cfg.MaxAnswer
	resp.Body = &eventBody{a.events, resp.Body}
	return resp, nil
}

func (c *Client) headers(h http.Header) {
	h.Set("User-Agent", "gasupervisor")
	for k, v := range c.cfg.Headers {
		h.Set(k, v)
	}
}

type eventBody struct {
	io.Reader
	io.Closer
}

// aliveReader tells the idle timeout of every byte.
type aliveReader struct {
	r io.Reader
	a *attempt
}

func (r *aliveReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		r.a.alive(false)
	}
	return n, err
}

// connectError explains why no response came.
func (c *Client) connectError(err error) *llm.Error {
	e := &llm.Error{Kind: llm.KindNetwork, LLM: c.cfg.Name, Message: plainError(err), Err: err}
	var (
		dns     *net.DNSError
		op      *net.OpError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
		verify  *tls.CertificateVerificationError
		record  tls.RecordHeaderError
	)
	where := redactURL(c.base)
	switch {
	case errors.As(err, &dns):
		e.Message += ": is the host name in " + where + " right, and the network up?"
	case errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &verify):
		e.Kind = llm.KindBadRequest
		e.Message += ": the certificate of " + where + " is not trusted on this machine"
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		e.Kind = llm.KindBadRequest
		e.Message += ": does " + where + " have to begin with http:// ?"
	case strings.Contains(err.Error(), "unsupported protocol scheme"), strings.Contains(err.Error(), "no Host in request URL"),
		strings.Contains(err.Error(), "parse \""):
		e.Kind = llm.KindBadRequest
		e.Message += ": base_url must look like https://host/v1"
	case errors.As(err, &op) && op.Op == "dial":
		e.Message += ": is the server at " + where + " running?"
	}
	e.Message = c.redact(tidy(e.Message))
	return e
}

// plainError returns an error's text without the URL, which may hold a key.
func plainError(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		if u.Op == "parse" {
			return "parse \"base_url\": " + u.Err.Error()
		}
		return u.Err.Error()
	}
	return err.Error()
}

// redactURL returns a URL without password and query.
func redactURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "base_url"
	}
	u.RawQuery, u.Fragment = "", ""
	return u.Redacted()
}

// redact replaces secrets of the configuration in a text.
func (c *Client) redact(s string) string {
	secrets := []string{c.key()}
	for _, v := range c.cfg.Headers {
		_, bare, ok := strings.Cut(v, " ")
		if !ok {
			bare = v
		}
		if len(bare) >= 16 {
			secrets = append(secrets, bare)
		}
	}
	if u, err := url.Parse(c.base); err == nil {
		if pw, ok := u.User.Password(); ok {
			secrets = append(secrets, pw)
		}
	}
	for _, k := range secrets {
		if len(k) >= 8 {
			s = strings.ReplaceAll(s, k, "[redacted]")
		}
	}
	return s
}
