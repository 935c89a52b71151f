package sandbox

import (
	"context"
	"sync"
	"time"
)

// NoAnswer, in place of a status, closes the connection when the call was read
// completely: the caller cannot know what came of it.
const NoAnswer = 0

// faults is what goes wrong with calls that are within their limits.
type faults struct {
	next       int // calls that still fail
	nextStatus int

	fraction       float64
	fractionStatus int
	owed           float64 // grows by fraction; a whole one is paid with a failure

	hanging chan struct{} // closed by release; nil: calls do not hang
	latency time.Duration
}

// strike decides about one call.
func (f *faults) strike() (status int, struck bool) {
	if f.next > 0 {
		f.next--
		return f.nextStatus, true
	}
	f.owed += f.fraction
	if f.owed+rounding < 1 {
		return 0, false
	}
	f.owed--
	return f.fractionStatus, true
}

// Fail makes the next n calls that are within their limits fail with a
// status of the protocol, or with [NoAnswer]. They use up the limits all the
// same. n ≤ 0 ends it.
func (p *Provider) Fail(n, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults.next, p.faults.nextStatus = max(n, 0), status
}

// Drop makes the next n calls fail with [NoAnswer]; see Fail.
func (p *Provider) Drop(n int) { p.Fail(n, NoAnswer) }

// FailFraction makes a fraction (0 to 1) of the calls within their limits fail
// with a status, evenly: with 0.25 it is every fourth. 0 ends it.
func (p *Provider) FailFraction(fraction float64, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !(fraction > 0) {
		fraction = 0
	}
	p.faults.fraction, p.faults.fractionStatus, p.faults.owed = min(fraction, 1), status, 0
}

// Slow delays all answers by d, refusals too. 0 ends it.
func (p *Provider) Slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults.latency = d
}

// Hang lets the calls within their limits that arrive from now on wait, until
// release is called, their caller goes away, or the provider is closed. Then
// they are answered as others. Calls to release after the first do nothing.
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

// linger waits for as long as the call is to be kept waiting; false when nobody
// is there any more to be answered.
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
