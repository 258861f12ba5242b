// Package netproxy is the one way out for commands that have no network: an HTTP
// proxy in the daemon that lets through what its rules name.
//
// Whoever connects is a command that a model wrote. So nothing that it says is
// trusted: a host has to be named by a rule before it is even looked up; it is
// looked up once, here, and the connection goes to one of the addresses that were
// found then, so that a name cannot mean one thing when it is checked and another
// when it is used; and an address that is not public is refused whatever name led
// to it, unless a rule has the address itself.
//
// CONNECT is for TLS, which is carried unread. Other requests are plain HTTP and
// are sent anew, with the host that was checked in them, and without what belongs
// to the connection to the proxy.
package netproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config says what a proxy lets through.
type Config struct {
	Rules Rules
	// Lookup finds the addresses of a name; nil is the system's way.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Log may be nil.
	Log *slog.Logger
}

// The proxy's limits. They are for programs that behave; those that do not hurt
// themselves alone.
const (
	dialTimeout    = 30 * time.Second
	headerTimeout  = 30 * time.Second
	idleTimeout    = 10 * time.Minute
	maxHeader      = 64 << 10
	maxConnections = 256 // of one listener
)

// Proxy serves the listeners of commands. It may be used by many goroutines.
type Proxy struct {
	config Config
}

// New returns a proxy.
func New(c Config) *Proxy {
	if c.Lookup == nil {
		c.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Proxy{config: c}
}

// Start serves a listener in the background. stop closes the listener and all
// connections, and waits until nothing of them is left.
func (p *Proxy) Start(l net.Listener) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &service{proxy: p, ctx: ctx, conns: map[net.Conn]bool{}, slots: make(chan struct{}, maxConnections)}
	s.transport = &http.Transport{
		Proxy:                  nil,
		DialContext:            s.dial,
		MaxResponseHeaderBytes: maxHeader,
		ResponseHeaderTimeout:  idleTimeout,
		IdleConnTimeout:        30 * time.Second,
		DisableCompression:     true,
	}
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Serve(&limited{Listener: l, slots: s.slots, ctx: ctx})
	}()
	return func() {
		cancel()
		server.Close()
		s.closeAll()
		s.transport.CloseIdleConnections()
		<-done
		s.busy.Wait()
	}
}

// limited accepts so many connections at once, and lets further ones wait.
type limited struct {
	net.Listener
	slots chan struct{}
	ctx   context.Context
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &slotConn{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

type slotConn struct {
	net.Conn
	free func()
}

func (c *slotConn) Close() error {
	c.free()
	return c.Conn.Close()
}

// CloseWrite ends one direction of a tunnel.
func (c *slotConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// service is one listener and its connections.
type service struct {
	proxy     *Proxy
	ctx       context.Context
	transport *http.Transport
	slots     chan struct{}
	busy      sync.WaitGroup // requests and tunnels

	mu      sync.Mutex
	conns   map[net.Conn]bool
	refused int // how many were logged
	closed  bool
}

// enter counts something to wait for at the end; false where that has come.
func (s *service) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.busy.Add(1)
	return true
}

// logRefusal keeps a command from filling the log.
func (s *service) logRefusal(host string, r *Refused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused++; s.refused <= 10 {
		s.proxy.config.Log.Info("a command was refused a connection", "host", host, "why", r.Why)
	}
}

// keep remembers a connection that is to be closed with the service; false where
// that has happened.
func (s *service) keep(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return false
	}
	s.conns[c] = true
	return true
}

func (s *service) drop(c net.Conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	c.Close()
}

func (s *service) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.conns {
		c.Close()
	}
}

// Refused is an error about what the rules do not have.
type Refused struct{ Why string }

func (e *Refused) Error() string { return e.Why }

// check finds the addresses to connect to for host and port.
func (p *Proxy) check(ctx context.Context, host string, port int) ([]netip.AddrPort, error) {
	rules := p.config.Rules
	target := net.JoinHostPort(host, strconv.Itoa(port))
	hint := "a person can add it to network in [sandbox] of config.toml"
	if addr, err := netip.ParseAddr(host); err == nil {
		addr = addr.Unmap()
		if rules.allow(addr, port, false) {
			return []netip.AddrPort{netip.AddrPortFrom(addr, uint16(port))}, nil
		}
		return nil, &Refused{fmt.Sprintf("%s is not in the list of what commands may reach; %s", target, hint)}
	}
	if looksLikeAddress(host) || !rules.every(func(r Rules) bool { return r.name(host, port) }) {
		return nil, &Refused{fmt.Sprintf("%s is not in the list of what commands may reach; %s", target, hint)}
	}
	addrs, err := p.config.Lookup(ctx, canonical(host))
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	var good []netip.AddrPort
	for _, a := range addrs {
		if a = a.Unmap(); rules.allow(a, port, true) {
			good = append(good, netip.AddrPortFrom(a, uint16(port)))
		}
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("look up %s: it has no address", host)
	}
	if len(good) > 0 {
		return good, nil
	}
	return nil, &Refused{fmt.Sprintf("%s leads to %s, which is an address of this machine or of its surroundings; %s", host, addrs[0],
		"a person can add that address itself to network in [sandbox] of config.toml")}
}

// looksLikeAddress catches the spellings of addresses that only some programs
// know, such as 2130706433 or 0x7f.1, before a lookup takes them for one.
func looksLikeAddress(host string) bool {
	last := canonical(host)
	last = last[strings.LastIndexByte(last, '.')+1:]
	if last == "" {
		return true
	}
	_, err := strconv.ParseUint(last, 0, 64)
	return err == nil || strings.Trim(last, "0123456789") == ""
}

// dial connects to what addr names, if the rules have it.
func (s *service) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return nil, &Refused{fmt.Sprintf("%q is no port", port)}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addrs, err := s.proxy.check(ctx, host, n)
	if err != nil {
		return nil, err
	}
	var errs []error
	d := net.Dialer{Timeout: dialTimeout / 3}
	for _, to := range addrs {
		c, err := d.DialContext(ctx, "tcp", to.String())
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// ServeHTTP answers one request of a command.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		return
	}
	defer s.busy.Done()
	var err error
	switch {
	case r.Method == http.MethodConnect:
		err = s.connect(w, r)
	case r.URL.Scheme != "http" || r.URL.Host == "":
		http.Error(w, "this is a proxy: it wants CONNECT, or the whole address of something over http", http.StatusBadRequest)
		return
	default:
		err = s.forward(w, r)
	}
	var refused *Refused
	switch {
	case err == nil:
	case errors.As(err, &refused):
		s.logRefusal(r.Host, refused)
		http.Error(w, "gasupervisor: "+refused.Why, http.StatusForbidden)
	default:
		http.Error(w, "gasupervisor: "+err.Error(), http.StatusBadGateway)
	}
}

// connect carries bytes both ways.
func (s *service) connect(w http.ResponseWriter, r *http.Request) error {
	// The target of CONNECT is the whole request line; the Host header says nothing.
	up, err := s.dial(r.Context(), "tcp", r.RequestURI)
	if err != nil {
		return err
	}
	if !s.keep(up) {
		return net.ErrClosed
	}
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		s.drop(up)
		return errors.New("the connection cannot be taken over")
	}
	down, buffered, err := hijacker.Hijack()
	if err != nil {
		s.drop(up)
		return err
	}
	if !s.keep(down) {
		s.drop(up)
		return nil
	}
	s.busy.Add(1) // beside the one of this request, so never from zero
	go func() {
		defer s.busy.Done()
		defer s.drop(up)
		defer s.drop(down)
		io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n")
		tunnel(up, down, buffered.Reader)
	}()
	return nil
}

// tunnel carries bytes until both sides have ended, or nothing comes for long.
func tunnel(up, down net.Conn, fromDown *bufio.Reader) {
	carry := func(to, from net.Conn, r io.Reader) {
		buf := make([]byte, 32<<10)
		for {
			from.SetReadDeadline(time.Now().Add(idleTimeout))
			n, err := r.Read(buf)
			if n > 0 {
				to.SetWriteDeadline(time.Now().Add(idleTimeout))
				if _, werr := to.Write(buf[:n]); werr != nil {
					break
				}
			}
			if err != nil {
				break
			}
		}
		if c, ok := to.(interface{ CloseWrite() error }); ok {
			c.CloseWrite()
		} else {
			to.Close()
		}
	}
	var group sync.WaitGroup
	group.Go(func() { carry(up, down, fromDown) })
	group.Go(func() { carry(down, up, up) })
	group.Wait()
}

// hopByHop are the headers that belong to one connection (RFC 9110, 7.6.1).
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// forward sends a plain request on and its answer back.
func (s *service) forward(w http.ResponseWriter, r *http.Request) error {
	out := r.Clone(r.Context())
	out.RequestURI = ""
	// What was checked is what is asked for: a Host header says nothing.
	out.Host = r.URL.Host
	strip(out.Header)
	out.Close = false
	resp, err := s.transport.RoundTrip(out)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	strip(resp.Header)
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	flusher, _ := w.(http.Flusher)
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return nil
			}
			if flusher != nil {
				flusher.Flush()
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			// Too late for another status: the client sees the connection break.
			panic(http.ErrAbortHandler)
		}
	}
}

func strip(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		h.Del(name)
	}
}
