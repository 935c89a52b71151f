package main

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// receiver is where the calls of all contenders go. It notes when they arrive.
type receiver struct {
	server *http.Server
	url    string

	mu      sync.Mutex
	calls   map[string][]time.Time // by tenant
	total   int
	want    func() bool // nil: nobody waits; called under mu
	reached chan struct{}
}

func startReceiver() (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + listener.Addr().String(), calls: map[string][]time.Time{}}
	r.server = &http.Server{Handler: http.HandlerFunc(r.call)}
	go func() { _ = r.server.Serve(listener) }() // until Close
	return r, nil
}

func (r *receiver) call(_ http.ResponseWriter, request *http.Request) {
	at := time.Now()
	tenant := request.Header.Get(tenantHeader)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[tenant] = append(r.calls[tenant], at)
	r.total++
	if r.want != nil && r.want() {
		r.want = nil
		close(r.reached)
	}
}

// take gives the calls since it was asked last, by tenant, and their number.
func (r *receiver) take() (map[string][]time.Time, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls, n := r.calls, r.total
	r.calls, r.total = map[string][]time.Time{}, 0
	return calls, n
}

// wait waits until n calls of a tenant, or of all for "", arrived since take, at most so
// long. False: they did not.
func (r *receiver) wait(ctx context.Context, tenant string, n int, most time.Duration) bool {
	enough := func() bool {
		if tenant != "" {
			return len(r.calls[tenant]) >= n
		}
		return r.total >= n
	}
	r.mu.Lock()
	if enough() {
		r.mu.Unlock()
		return true
	}
	reached := make(chan struct{})
	r.want, r.reached = enough, reached
	r.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-reached:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want = nil
	return enough()
}
