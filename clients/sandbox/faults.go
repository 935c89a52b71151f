package sandbox

import (
	"context"
	"sync"
	"time"
)

// faults is what a provider was told to do wrong. The zero value does nothing.
type faults struct {
	mu      sync.Mutex
	fail    int
	status  int
	drop    int
	latency time.Duration
	hang    chan struct{}
}

// Fail makes the next n calls fail with a status of the protocol.
func (f *faults) Fail(n, status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail, f.status = n, status
}

// Drop makes the server close the connection of the next n calls after it took
// them, without an answer.
func (f *faults) Drop(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop = n
}

// Slow delays every answer; 0: not any more.
func (f *faults) Slow(latency time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latency = latency
}

// Hang keeps every call without an answer until release is called.
func (f *faults) Hang() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	hang := make(chan struct{})
	f.hang = hang
	return sync.OnceFunc(func() {
		f.mu.Lock()
		if f.hang == hang {
			f.hang = nil
		}
		f.mu.Unlock()
		close(hang)
	})
}

// strike waits as told, then says what is to go wrong with a call: a status,
// or drop. ctx ends with the caller or the server.
func (f *faults) strike(ctx context.Context) (status int, drop bool) {
	f.mu.Lock()
	latency, hang := f.latency, f.hang
	switch {
	case f.drop > 0:
		f.drop--
		drop = true
	case f.fail > 0:
		f.fail--
		status = f.status
	}
	f.mu.Unlock()
	if latency > 0 {
		timer := time.NewTimer(latency)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
		}
	}
	return status, drop
}
