// Package server is the HTTP of Headgate's programs: the page and the API at one
// address, and what is for machines and for debugging there or at another.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/dashboard/web"
	"github.com/headgate/headgate/internal/auditfile"
	"github.com/headgate/headgate/internal/keysfile"
	"github.com/headgate/headgate/queue/operate"
)

// Config says what is served where. The names in errors are those of the settings
// of our programs.
type Config struct {
	// Addr is host:port of the page and the API. Where it is not this machine
	// alone, KeysFile is required.
	Addr string

	// NextFree takes the next ports, up to 20, where that of Addr is taken.
	NextFree bool

	// AdminAddr is host:port of /metrics, /livez, /readyz and /debug/pprof. "":
	// there is no pprof, and the others are at Addr. It is always without TLS.
	AdminAddr string

	// Pprof serves /debug/pprof also where AdminAddr is not this machine alone:
	// whoever can reach it can read what is in the program's memory.
	Pprof bool

	CertFile, KeyFile string // of TLS, at Addr; read again when they change. "": none
	KeysFile          string // of the API; read again when it changes. "": no keys are needed
	AuditFile         string // for changes by operators, or stdout; "": none

	API     api.Config      // all but Keys and Logger
	Metrics http.Handler    // nil: there are none
	Ready   func() error    // nil: always
	Away    func() []string // queues that cannot be served although it is ready; nil: none
	Logger  *slog.Logger    // required
}

// Server listens. [Server.Run] serves.
type Server struct {
	config Config
	api    *api.API
	keys   *keysfile.Store // nil: none
	audit  *auditfile.File // nil: none
	cert   *certificate    // nil: no TLS
	main   net.Listener
	admin  net.Listener // nil: none
}

// Open checks the configuration, reads the files, and begins to listen: Run or
// Close has to follow.
func Open(config Config) (*Server, error) {
	s := &Server{config: config}
	var err error
	if config.CertFile != "" {
		if s.cert, err = openCertificate(config.CertFile, config.KeyFile, config.Logger); err != nil {
			return nil, err
		}
	}
	if config.KeysFile != "" {
		if s.keys, err = keysfile.Open(config.KeysFile, config.Logger); err != nil {
			return nil, fmt.Errorf("HEADGATE_API_KEYS_FILE: %w", err)
		}
		config.API.Keys = s.keys.Keys
	}
	if s.audit, err = auditfile.Open(config.AuditFile, config.Logger); err != nil {
		return nil, fmt.Errorf("HEADGATE_AUDIT_FILE: %w", err)
	}
	config.API.Logger, config.API.Audit = config.Logger, s.audit.Add
	if s.api, err = api.New(config.API); err != nil {
		return nil, err
	}
	if s.main, err = s.listen(); err != nil {
		return nil, fmt.Errorf("HEADGATE_HTTP_ADDR: %w", err)
	}
	if s.keys == nil && !loopback(s.main) {
		s.Close()
		return nil, fmt.Errorf("HEADGATE_HTTP_ADDR: at %s others than this machine can ask, and HEADGATE_API_KEYS_FILE names no file of keys: "+
			`make a key with "enqueue keys new --id NAME --scope admin" and put what it prints into the file; `+
			"or listen on 127.0.0.1, and set HEADGATE_ADMIN_ADDR where only /metrics and the health checks are to be reached", config.Addr)
	}
	if s.keys != nil && s.cert == nil && !loopback(s.main) {
		config.Logger.Warn("API keys cross the network in the clear: set HEADGATE_TLS_CERT and HEADGATE_TLS_KEY, unless something in front does TLS", "http", s.main.Addr().String())
	}
	if config.AdminAddr != "" {
		if s.admin, err = net.Listen("tcp", config.AdminAddr); err != nil {
			s.Close()
			return nil, fmt.Errorf("HEADGATE_ADMIN_ADDR: %w", err)
		}
	}
	return s, nil
}

const maxPorts = 20

func (s *Server) listen() (net.Listener, error) {
	listener, err := net.Listen("tcp", s.config.Addr)
	if err == nil || !s.config.NextFree {
		return listener, err
	}
	host, port, splitErr := net.SplitHostPort(s.config.Addr)
	if splitErr != nil {
		return nil, err
	}
	first, lookErr := net.LookupPort("tcp", port)
	if lookErr != nil {
		return nil, err
	}
	for n := 1; n <= maxPorts && first+n <= 65535; n++ {
		if listener, again := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(first+n))); again == nil {
			return listener, nil
		}
	}
	return nil, err
}

// loopback tells whether only this machine can reach a listener.
func loopback(l net.Listener) bool {
	addr, err := netip.ParseAddrPort(l.Addr().String())
	return err == nil && addr.Addr().Unmap().IsLoopback()
}

// Addr is where the page and the API are.
func (s *Server) Addr() string { return s.main.Addr().String() }

// URL is that address for a browser.
func (s *Server) URL() string {
	scheme := "http"
	if s.cert != nil {
		scheme = "https"
	}
	return scheme + "://" + s.Addr() + "/"
}

// AdminAddr is where the rest is; "" where that is at Addr.
func (s *Server) AdminAddr() string {
	if s.admin == nil {
		return ""
	}
	return s.admin.Addr().String()
}

// Close stops listening, where Run was not called.
func (s *Server) Close() {
	if s.main != nil {
		s.main.Close()
	}
	if s.admin != nil {
		s.admin.Close()
	}
}

// maxEnding bounds what requests under way may take at the end.
const maxEnding = 5 * time.Second

// Run serves until ctx is done. Then streams end, and requests under way are
// finished, for a few seconds. The error is that of a listener that failed.
func (s *Server) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return s.api.Run(ctx) })
	if s.keys != nil {
		parts.Go(func() error { return s.keys.Run(ctx, s.keysChanged) })
	}
	if s.cert != nil {
		parts.Go(func() error { return s.cert.Run(ctx) })
	}
	parts.Go(func() error { return s.serve(ctx, s.main, s.mainHandler(), s.cert) })
	if s.admin != nil {
		parts.Go(func() error { return s.serve(ctx, s.admin, guarded(loopback(s.admin), s.adminHandler()), nil) })
	}
	return parts.Wait()
}

func (s *Server) serve(ctx context.Context, listener net.Listener, handler http.Handler, cert *certificate) error {
	server := &http.Server{
		Handler: handler,
		// From the moment that a connection is accepted: a browser that is slow to use it would lose it.
		ReadTimeout:  30 * time.Second,
		WriteTimeout: time.Minute, // what takes longer sets its own
		IdleTimeout:  2 * time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug), // strangers' mistakes: handshakes, bad requests
	}
	stopped := make(chan struct{})
	end := context.AfterFunc(ctx, func() {
		defer close(stopped)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxEnding)
		defer cancel()
		if server.Shutdown(bounded) != nil {
			server.Close()
		}
	})
	var err error
	if cert != nil {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: cert.get}
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	if !end() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", listener.Addr(), err)
}

func (s *Server) mainHandler() http.Handler {
	mux := http.NewServeMux()
	if s.admin == nil {
		machines := http.NewServeMux()
		s.machines(machines)
		// With keys, a proxy on this machine may pass on its own name.
		for _, path := range []string{"/metrics", "/livez", "/readyz"} {
			mux.Handle("GET "+path, guarded(s.keys == nil && loopback(s.main), machines))
		}
	}
	mux.Handle(api.Base+"/", s.api)
	mux.Handle("/", web.Handler())
	return mux
}

// machines adds what machines ask for: it is not limited and needs no key.
func (s *Server) machines(mux *http.ServeMux) {
	if s.config.Metrics != nil {
		mux.Handle("GET /metrics", s.config.Metrics)
	}
	ready := s.config.Ready
	if ready == nil {
		ready = func() error { return nil }
	}
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", readiness(ready, s.config.Away))
}

func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	s.machines(mux)
	if !s.config.Pprof && !loopback(s.admin) {
		return mux
	}
	profiles(mux)
	return mux
}

// Audit appends a change to the audit file, if there is one.
func (s *Server) Audit(e operate.AuditEntry) { s.audit.Add(e) }

// keysChanged adds to the audit who has access now.
func (s *Server) keysChanged(ctx context.Context, before, after map[string]string) {
	entry := operate.AuditEntry{Action: "keys", Before: before, After: after}
	by := operate.Operator{Reason: "keys file " + s.config.KeysFile, Log: func(e operate.AuditEntry) {
		s.config.Logger.Info("audit entry", "audit", e)
		s.Audit(e)
	}}
	if err := operate.Record(ctx, s.config.API.Redis, entry, by); err != nil {
		s.config.Logger.Error("a change of the keys file is not in the audit", "error", err)
	}
}
