package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"time"
)

// profileVariable names a Unix socket at which the daemon can be profiled. It is
// for those who work on the program, and for scripts/bench:
//
//	GASUPERVISOR_INTERNAL_PPROF=/tmp/pprof.sock gasupervisor run &
//	curl -s --unix-socket /tmp/pprof.sock 'http://./debug/pprof/profile?seconds=10' > cpu
//	go tool pprof -top cpu
//
// A socket and not a port, so that only its owner can reach it: profiles show
// what is in memory.
const profileVariable = "GASUPERVISOR_INTERNAL_PPROF"

// serveProfiles serves runtime profiles where profileVariable asks for it, until
// stop is called.
func serveProfiles(log *slog.Logger) (stop func(), err error) {
	path := os.Getenv(profileVariable)
	if path == "" {
		return func() {}, nil
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("serve profiles (%s): %w", profileVariable, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, fmt.Errorf("serve profiles (%s): %w", profileVariable, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(ln)
	}()
	log.Warn("profiles of this process are served", "socket", path)
	return func() {
		_ = server.Close() // a profile in the making is not waited for
		<-served
	}, nil
}
