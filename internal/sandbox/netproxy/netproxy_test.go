package netproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for _, bad := range []string{":443", ".:443", "example.org", "example.org:", "example.org:0", "example.org:70000", "*x.org:1", "a.*.org:1", "example.org:http"} {
		if _, err := Parse([]string{bad}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestCheck(t *testing.T) {
	rules, err := Parse([]string{
		"example.org:443", "*.example.net:443", "any.org:*", "203.0.113.7:80", "10.1.2.3:8080", "[::1]:9000", "intranet.corp:8080", "*:21",
	})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{
		"example.org": "93.184.216.34", "registry.example.net": "104.16.1.1", "example.net": "104.16.1.1", "any.org": "127.0.0.1 169.254.169.254",
		"both.example.net": "127.0.0.1 104.16.1.2", "intranet.corp": "10.1.2.3", "evil.example.net": "10.1.2.3", "mapped.example.net": "::ffff:127.0.0.1",
		"nat.example.net": "64:ff9b::7f00:1", "six.example.net": "2606:4700::1", "sixtofour.example.net": "2002:7f00:1::", "ula.example.net": "fd00::1", "anything.at": "93.184.216.35",
		"zero.example.net": "0.0.0.0", "cgnat.example.net": "100.64.0.1", "multicast.example.net": "224.0.0.1",
	}
	looked := ""
	p := New(Config{Rules: rules, Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
		looked = name
		var addrs []netip.Addr
		for _, a := range strings.Fields(names[name]) {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		return addrs, nil
	}})
	for _, c := range []struct {
		host string
		port int
		want string // "" is refused
	}{
		{"example.org", 443, "93.184.216.34:443"},
		{"EXAMPLE.org.", 443, "93.184.216.34:443"},
		{"example.org", 80, ""},
		{"sub.example.org", 443, ""},
		{"registry.example.net", 443, "104.16.1.1:443"},
		{"example.net", 443, ""},
		{"evilexample.net", 443, ""},
		{"any.org", 80, ""},                         // loopback and the metadata service
		{"both.example.net", 443, "104.16.1.2:443"}, // the public one only
		{"intranet.corp", 8080, "10.1.2.3:8080"},    // both are named
		{"evil.example.net", 443, ""},               // the address is named with another port
		{"mapped.example.net", 443, ""},
		{"nat.example.net", 443, ""},
		{"sixtofour.example.net", 443, ""},
		{"ula.example.net", 443, ""},
		{"zero.example.net", 443, ""},
		{"cgnat.example.net", 443, ""},
		{"multicast.example.net", 443, ""},
		{"six.example.net", 443, "[2606:4700::1]:443"},
		{"10.1.2.3", 8080, "10.1.2.3:8080"},
		{"10.1.2.3", 8081, ""},
		{"127.0.0.1", 21, ""}, // a star is for names, and public addresses
		{"93.184.216.34", 21, "93.184.216.34:21"},
		{"93.184.216.34", 443, ""},
		{"::1", 9000, "[::1]:9000"},
		{"::1", 9001, ""},
		{"::ffff:10.1.2.3", 8080, "10.1.2.3:8080"},
		{"203.0.113.7", 80, "203.0.113.7:80"},
		{"anything.at", 21, "93.184.216.35:21"},
		{"2130706433", 21, ""},
		{"0x7f.1", 21, ""},
		{"127.1", 21, ""},
		{"localhost", 21, ""},
		{"fe80::1%eth0", 21, ""},
		{"", 21, ""},
	} {
		looked = ""
		got, err := p.check(t.Context(), c.host, c.port)
		var refused *Refused
		switch {
		case c.want == "" && err == nil:
			t.Errorf("%s:%d leads to %v", c.host, c.port, got)
		case c.want == "" && !errors.As(err, &refused) && looked == "":
			t.Errorf("%s:%d: %v", c.host, c.port, err)
		case c.want != "" && (err != nil || len(got) != 1 || got[0].String() != c.want):
			t.Errorf("%s:%d leads to %v, %v; want %s", c.host, c.port, got, err, c.want)
		}
		if strings.Contains(c.host, "evilnpm") && looked != "" {
			t.Errorf("%s was looked up, which tells its server that somebody asked", c.host)
		}
	}
}

func TestWithin(t *testing.T) {
	rules := func(patterns ...string) Rules {
		r, err := Parse(patterns)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	lookup := func(_ context.Context, name string) ([]netip.Addr, error) {
		if name == "intranet.corp" {
			return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
	}
	p := New(Config{Lookup: lookup, Rules: rules("*.example.org:443", "intranet.corp:80", "10.0.0.1:80", "1.1.1.1:53").
		Within(rules("a.example.org:*", "intranet.corp:80", "1.1.1.1:53")).Within(rules("*:*", "1.1.1.1:53"))})
	for target, want := range map[string]bool{
		"a.example.org:443": true, "b.example.org:443": false, "a.example.org:80": false, "1.1.1.1:53": true,
		"intranet.corp:80": false, // the outer rules do not have the address
		"10.0.0.1:80":      false,
	} {
		host, port, _ := net.SplitHostPort(target)
		n := map[string]int{"443": 443, "80": 80, "53": 53}[port]
		if _, err := p.check(t.Context(), host, n); (err == nil) != want {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// world is a proxy with a client, and a server behind it under several names.
type world struct {
	client  *http.Client
	proxy   string
	server  *httptest.Server
	port    string
	lookups atomic.Int32
}

func newWorld(t *testing.T, handler http.Handler, tls bool, patterns ...string) *world {
	t.Helper()
	w := &world{server: httptest.NewUnstartedServer(handler)}
	if tls {
		w.server.StartTLS()
	} else {
		w.server.Start()
	}
	t.Cleanup(w.server.Close)
	u, err := url.Parse(w.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	w.port = u.Port()
	for i, p := range patterns {
		patterns[i] = strings.ReplaceAll(p, "PORT", w.port)
	}
	rules, err := Parse(patterns)
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{Rules: rules, Lookup: func(context.Context, string) ([]netip.Addr, error) {
		w.lookups.Add(1)
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Start(l))
	w.proxy = l.Addr().String()
	tr := w.server.Client().Transport.(*http.Transport).Clone()
	tr.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: w.proxy})
	if tr.TLSClientConfig != nil {
		tr.TLSClientConfig.ServerName = "example.com"
	}
	w.client = &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(tr.CloseIdleConnections)
	return w
}

func (w *world) get(t *testing.T, url string) (int, string, http.Header) {
	t.Helper()
	resp, err := w.client.Get(strings.ReplaceAll(url, "PORT", w.port))
	if err != nil {
		return 0, err.Error(), nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

func TestProxy(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "secret")
		w.Header().Set("X-Kept", "yes")
		fmt.Fprintf(w, "%s %s %q", r.Host, r.URL.Path, r.Header["Proxy-Authorization"])
	})
	for _, tls := range []bool{false, true} {
		scheme := map[bool]string{false: "http", true: "https"}[tls]
		w := newWorld(t, echo, tls, "good.test:PORT", "127.0.0.1:PORT", "other.test:1")
		code, body, header := w.get(t, scheme+"://good.test:PORT/x")
		if code != 200 || body != "good.test:"+w.port+" /x []" {
			t.Errorf("%s: %d %q", scheme, code, body)
		}
		if !tls && (header.Get("X-Kept") != "yes" || header.Get("X-Hop") != "") {
			t.Errorf("headers: %v", header)
		}
		if n := w.lookups.Load(); n != 1 {
			t.Errorf("%s: %d lookups", scheme, n)
		}
		if code, body, _ := w.get(t, scheme+"://bad.test:PORT/"); code != 403 && !strings.Contains(body, "Forbidden") {
			t.Errorf("%s: %d %q", scheme, code, body)
		}
		if n := w.lookups.Load(); n != 1 {
			t.Errorf("%s: what is not named was looked up", scheme)
		}
		if code, body, _ := w.get(t, scheme+"://good.test:1/"); code != 403 && !strings.Contains(body, "Forbidden") {
			t.Errorf("%s, another port: %d %q", scheme, code, body)
		}
	}
}

// raw sends text to the proxy and returns the answer's first line and the rest of
// what comes until the proxy closes or answers.
func (w *world) raw(t *testing.T, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", w.proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(c, strings.ReplaceAll(text, "PORT", w.port))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

// What is asked for and what is checked cannot differ.
func TestProxyConfusion(t *testing.T) {
	seen := make(chan string, 10)
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen <- r.Host }), false, "good.test:PORT", "127.0.0.1:PORT")
	for text, want := range map[string]string{
		"GET http://good.test:PORT/ HTTP/1.1\r\nHost: bad.test\r\n\r\n":           "200",
		"GET /x HTTP/1.1\r\nHost: good.test:PORT\r\n\r\n":                         "400",
		"GET https://good.test:PORT/ HTTP/1.1\r\nHost: good.test\r\n\r\n":         "400",
		"GET ftp://good.test:PORT/ HTTP/1.1\r\nHost: good.test\r\n\r\n":           "400",
		"GET http://good.test:PORT@bad.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n": "403",
		"CONNECT bad.test:PORT HTTP/1.1\r\nHost: good.test:PORT\r\n\r\n":          "403",
		"CONNECT good.test:25 HTTP/1.1\r\nHost: good.test:PORT\r\n\r\n":           "403",
		"CONNECT good.test:PORT HTTP/1.1\r\nHost: bad.test\r\n\r\n":               "200",
		"CONNECT localhost:PORT HTTP/1.1\r\nHost: good.test:PORT\r\n\r\n":         "403",
		"CONNECT [::1]:PORT HTTP/1.1\r\nHost: good.test:PORT\r\n\r\n":             "403",
		"CONNECT http://good.test:PORT/ HTTP/1.1\r\nHost: x\r\n\r\n":              "400 403 502",
		"CONNECT 0x7f000001:PORT HTTP/1.1\r\nHost: x\r\n\r\n":                     "403",
		"\x16\x03\x01\r\n\r\n": "400",
		// Addresses that only some programs know.
		"CONNECT 0x7f.1:PORT HTTP/1.1\r\nHost: x\r\n\r\n":                  "403",
		"CONNECT 127.1:PORT HTTP/1.1\r\nHost: x\r\n\r\n":                   "403",
		"CONNECT 2130706433:PORT HTTP/1.1\r\nHost: x\r\n\r\n":              "403",
		"CONNECT 0177.0.0.1:PORT HTTP/1.1\r\nHost: x\r\n\r\n":              "403",
		"CONNECT [::ffff:127.0.0.2]:PORT HTTP/1.1\r\nHost: x\r\n\r\n":      "403",
		"CONNECT [::1%25lo]:PORT HTTP/1.1\r\nHost: x\r\n\r\n":              "400 403",
		"CONNECT good.test:PORT@bad.test:PORT HTTP/1.1\r\nHost: x\r\n\r\n": "400 403 502",
		"CONNECT good.test\tbad.test:PORT HTTP/1.1\r\nHost: x\r\n\r\n":     "400 403",
		"CONNECT bad.test%00.good.test:PORT HTTP/1.1\r\nHost: x\r\n\r\n":   "400 403",
		// One request that could be read as two.
		"POST http://good.test:PORT/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 60\r\n\r\n": "400",
		"POST http://good.test:PORT/ HTTP/1.1\r\nHost: x\r\nContent-Length: 47\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"0\r\n\r\nGET /x HTTP/1.1\r\nHost: bad.test\r\n\r\n": "200 400",
		"POST http://good.test:PORT/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n":                                                            "400 501",
		"POST http://good.test:PORT/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n":                                                   "400",
		"GET http://good.test:PORT/ HTTP/1.1\r\nHost: a\r\nHost: bad.test\r\n\r\n":                                                                          "400",
		"GET http://good.test:PORT/ HTTP/1.1\r\nHost: bad.test\r\nConnection: Host, Content-Length\r\n\r\n":                                                 "200",
		"GET http://good.test:PORT/ HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n": "200",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                  "400 505",
		"GET http://good.test:PORT\\@bad.test/ HTTP/1.1\r\nHost: x\r\n\r\n": "400 403",
	} {
		got := w.raw(t, text)
		f := strings.Fields(got)
		if len(f) < 2 || !strings.Contains(want, f[1]) {
			t.Errorf("%q: got %q, want %s", text, got, want)
		}
	}
	close(seen)
	for host := range seen {
		if host != "good.test:"+w.port {
			t.Errorf("the server was asked as %q", host)
		}
	}
}

// Stopping ends tunnels and waits for them.
func TestStop(t *testing.T) {
	up, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	rules, err := Parse([]string{up.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := New(Config{Rules: rules}).Start(l)
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", up.Addr())
	far, err := up.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatal(line, err)
	}
	stop()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadAll(r); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the tunnel goes on")
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the proxy goes on")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a:1", "*:*", "*.a:1", "[::1]:2", "1.2.3.4:*"} {
		f.Add(s, "host.a", 1)
	}
	f.Fuzz(func(t *testing.T, text, host string, port int) {
		r, err := Parse([]string{text})
		if err != nil {
			return
		}
		p := New(Config{Rules: r, Lookup: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1")}, nil
		}})
		got, err := p.check(t.Context(), host, port)
		// Whatever a rule with a name says, it opens no private address.
		if err == nil && strings.ContainsAny(text, "*") && strings.HasPrefix(text, "*") && len(got) > 0 && !public(got[0].Addr()) {
			t.Errorf("%q opens %s", text, got)
		}
	})
}
