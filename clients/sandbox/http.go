package sandbox

import (
	"context"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// HTTP is a provider that takes POSTs at any path and answers 200, or 429 with
// Retry-After to a call over its limit. The tenant is the caller's
// Headgate-Tenant header.
type HTTP struct {
	meter
	faults

	server   *http.Server
	listener net.Listener
	ended    sync.WaitGroup
	stop     context.CancelFunc
}

// NewHTTP starts a server on a free port of 127.0.0.1. The caller closes it.
func NewHTTP() (*HTTP, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	h := &HTTP{listener: listener, stop: stop}
	h.server = &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	h.ended.Go(func() { _ = h.server.Serve(listener) }) // it ends with Close
	return h, nil
}

// URL is where the server is, without a path.
func (h *HTTP) URL() string { return "http://" + h.listener.Addr().String() }

// Close ends the server and every call that hangs in it.
func (h *HTTP) Close() {
	h.stop()
	_ = h.server.Close()
	h.ended.Wait()
}

// ServeHTTP is one call.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	tenant, err := url.PathUnescape(r.Header.Get("Headgate-Tenant"))
	if err != nil {
		tenant = r.Header.Get("Headgate-Tenant")
	}
	call := Call{
		At: now, Tenant: tenant, Job: r.Header.Get("Headgate-Job"),
		Attempt: r.Header.Get("Headgate-Attempt"), Key: r.Header.Get("Idempotency-Key"),
	}
	if wait := h.admit(tenant, now); wait > 0 {
		call.Status = http.StatusTooManyRequests
		h.record(call, true)
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		http.Error(w, "too many requests", call.Status)
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 16<<20)) // what it says does not matter
	status, drop := h.strike(r.Context())
	if drop {
		h.record(call, false)
		panic(http.ErrAbortHandler)
	}
	if status != 0 {
		call.Status = status
		h.record(call, false)
		http.Error(w, "the sandbox was told to fail", status)
		return
	}
	call.Status, call.Accepted = http.StatusOK, true
	h.record(call, false)
	w.WriteHeader(http.StatusOK)
}
