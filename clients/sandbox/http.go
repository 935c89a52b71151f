package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// HTTP is a provider with HTTP/1.1 on its own loopback port. The tenant is the header
// Headgate-Tenant. A call arrives when its headers were read. A call that exceeds a limit is
// answered with 429 and Retry-After.
type HTTP struct {
	*Provider
	listener net.Listener
	server   *http.Server
	answer   http.Handler
	serving  sync.WaitGroup
	conns    sync.WaitGroup
	stop     func() error
}

// NewHTTP starts a provider. It returns errors of the network. Without a Config, or with the zero
// one, it accepts all calls. Close stops it.
func NewHTTP(config ...Config) (*HTTP, error) {
	h, err := listen(one(config))
	if err != nil {
		return nil, err
	}
	h.serve(h)
	return h, nil
}

// listen returns a provider that accepts no calls until serve.
func listen(config Config) (*HTTP, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	h := &HTTP{Provider: newProvider(config), listener: listener, answer: config.Answer}
	h.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // hostile callers are expected
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				h.conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				h.conns.Done()
			}
		},
	}
	h.stop = sync.OnceValue(func() error {
		close(h.done)
		err := h.server.Close()
		h.serving.Wait() // there are no new connections after this
		h.conns.Wait()
		return err
	})
	return h, nil
}

func (h *HTTP) serve(handler http.Handler) {
	h.server.Handler = handler
	h.serving.Go(func() { h.server.Serve(h.listener) })
}

// URL returns the address, http://127.0.0.1:port, without a trailing slash.
func (h *HTTP) URL() string { return "http://" + h.listener.Addr().String() }

// Close closes all connections and waits for their handlers. It can be called twice.
func (h *HTTP) Close() error { return h.stop() }

// maxBody is the max number of bytes of a call's body.
const maxBody = 8 << 20

// ServeHTTP handles one call. It is exported for servers with their own listener.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := h.arrive(time.Now(), callOf(r.Header.Get), protocol{ok: http.StatusOK, throttled: http.StatusTooManyRequests})
	if err := h.read(w, r); err != nil {
		status := http.StatusBadRequest
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			status = http.StatusRequestEntityTooLarge
		}
		reply(w, status, "unreadable")
		return
	}
	if !h.linger(r.Context(), v) {
		panic(http.ErrAbortHandler)
	}
	switch {
	case v.rejected:
		seconds := max(math.Ceil(v.wait.Seconds()), 1)
		w.Header().Set("Retry-After", strconv.FormatFloat(seconds, 'f', 0, 64))
		reply(w, http.StatusTooManyRequests, "rate_limited")
	case v.struck && v.status == NoAnswer:
		panic(http.ErrAbortHandler)
	case v.struck:
		reply(w, v.status, "fault")
	case h.answer != nil:
		h.answer.ServeHTTP(w, r)
	default:
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"ok":true}`)
	}
}

// read reads the whole body, because only then does a server notice that its caller has
// disconnected. The handler can read it again.
func (h *HTTP) read(w http.ResponseWriter, r *http.Request) error {
	body := http.MaxBytesReader(w, r.Body, maxBody)
	if h.answer == nil {
		_, err := io.Copy(io.Discard, body)
		return err
	}
	content, err := io.ReadAll(body)
	r.Body = io.NopCloser(bytes.NewReader(content))
	return err
}

func reply(w http.ResponseWriter, status int, reason string) {
	if status < 200 || status > 599 {
		status = http.StatusInternalServerError
	}
	writeJSON(w, status, map[string]string{"error": reason})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if status != http.StatusNoContent && status != http.StatusNotModified {
		json.NewEncoder(w).Encode(body)
	}
}
