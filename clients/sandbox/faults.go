package sandbox

import (
	"context"
	"sync"
	"time"
)

// NoAnswer, instead of a status, closes the connection after reading the whole call, so that the
// caller cannot know its outcome.
const NoAnswer = 0

// faults are the failures on demand of calls within their limits.
type faults struct {
	next       int // calls that still fail
	nextStatus int

	hanging chan struct{} // closed by release; nil: calls do not hang
	latency time.Duration
}

// strike decides whether a call fails.
func (f *faults) strike() (status int, struck bool) {
	if f.next > 0 {
		f.next--
		return f.nextStatus, true
	}
	return 0, false
}

// Fail makes the next n calls within their limits fail with a status of the protocol or with
// [NoAnswer]. They are still charged to the limits. n ≤ 0 ends it.
func (p *Provider) Fail(n, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults.next, p.faults.nextStatus = max(n, 0), status
}

// Drop makes the next n calls fail with [NoAnswer]; see Fail.
func (p *Provider) Drop(n int) { p.Fail(n, NoAnswer) }

// Slow delays all answers by d, including refusals. 0 ends it.
func (p *Provider) Slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults.latency = d
}

// Hang makes calls within their limits that arrive from now on wait until release is called,
// their caller disconnects, or the provider is closed. They are then answered normally. Only the
// first call of release has an effect.
func (p *Provider) Hang() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hanging := make(chan struct{})
	p.faults.hanging = hanging
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		close(hanging)
		if p.faults.hanging == hanging {
			p.faults.hanging = nil
		}
	})
}

// linger waits while the call must wait. It returns false if the caller has disconnected.
func (p *Provider) linger(ctx context.Context, v visit) bool {
	if v.hanging != nil {
		select {
		case <-v.hanging:
			p.settle(v)
		case <-ctx.Done():
			return false
		case <-p.done:
			return false
		}
	}
	if v.latency > 0 {
		timer := time.NewTimer(v.latency)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		case <-p.done:
			return false
		}
	}
	return true
}
