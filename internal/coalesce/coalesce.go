// Package coalesce lets concurrent calls share round trips. A call goes at once while few
// others are under way. Calls that come later gather, and go together in the next round
// trip.
package coalesce

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// MaxFlights is how many round trips a group has under way before calls gather: the
// server answers one while another is written and read here.
const MaxFlights = 2

// Group is where calls gather. Its exported fields are set before its first use.
type Group[C comparable] struct {
	// Send makes one round trip. It stores the answer or the error of each call in the call.
	Send func(ctx context.Context, calls []C)

	// MaxCalls bounds the calls of one round trip.
	MaxCalls int

	// MaxBytes bounds the size of the calls that share a round trip, as Size measures it.
	// A nil Size means that calls are small, and MaxBytes is not used.
	MaxBytes int
	Size     func(C) int

	// Slow is how long a round trip takes after which a goroutine makes that of the next
	// caller, so that the caller can leave; 0 means that callers always make their own.
	Slow time.Duration

	mu      sync.Mutex
	flights int
	slow    bool        // the last round trip was
	waiting []*batch[C] // calls join the last one
}

// batch is calls that are sent together.
type batch[C comparable] struct {
	calls    []C
	bytes    int
	answered chan struct{} // closed then
}

// Do returns nil once the call was answered, and the error of ctx if that is done first:
// then the call no longer belongs to the caller. If it was not sent, it never is, and
// answered is nil. Otherwise answered is closed once the call was answered.
//
// A call that goes alone is sent with ctx by the caller itself, and Do returns when Send
// does.
func (g *Group[C]) Do(ctx context.Context, call C) (answered <-chan struct{}, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g.mu.Lock()
	alone := g.flights < MaxFlights
	if alone {
		g.flights++
	}
	// Clients such as go-redis do not return when ctx is done, so that a caller who makes the
	// round trip waits for the client's timeout in the worst case. A goroutine for it would
	// cost a third of what the call takes: it is started only while the server is slow.
	if alone && (!g.slow || ctx.Done() == nil) {
		g.mu.Unlock()
		began := time.Now()
		g.Send(ctx, []C{call})
		if b := g.next(time.Since(began)); b != nil {
			go g.fly(context.Background(), b)
		}
		return nil, nil
	}
	var b *batch[C]
	if alone {
		b = newBatch(call)
		go g.fly(context.WithoutCancel(ctx), b)
	} else {
		b = g.join(call)
	}
	g.mu.Unlock()
	select {
	case <-b.answered:
		return nil, nil
	case <-ctx.Done():
		if g.leave(b, call) {
			return nil, ctx.Err()
		}
		return b.answered, ctx.Err()
	}
}

// Pending is how many round trips are under way, and how many calls wait for one. It is
// for tests.
func (g *Group[C]) Pending() (flights, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.waiting {
		waiting += len(b.calls)
	}
	return g.flights, waiting
}

func (g *Group[C]) size(call C) int {
	if g.Size == nil {
		return 0
	}
	return g.Size(call)
}

func newBatch[C comparable](call C) *batch[C] {
	return &batch[C]{calls: []C{call}, answered: make(chan struct{})}
}

// join adds a call to those that wait.
func (g *Group[C]) join(call C) *batch[C] {
	size := g.size(call)
	if n := len(g.waiting); n > 0 {
		if b := g.waiting[n-1]; len(b.calls) < g.MaxCalls && b.bytes+size <= g.MaxBytes {
			b.calls, b.bytes = append(b.calls, call), b.bytes+size
			return b
		}
	}
	b := newBatch(call)
	b.bytes = size
	g.waiting = append(g.waiting, b)
	return b
}

// leave removes a call from a batch that was not sent yet. It reports whether it could.
func (g *Group[C]) leave(b *batch[C], call C) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.Index(g.waiting, b)
	if at < 0 {
		return false
	}
	i := slices.Index(b.calls, call)
	if b.calls, b.bytes = slices.Delete(b.calls, i, i+1), b.bytes-g.size(call); len(b.calls) == 0 {
		g.waiting = slices.Delete(g.waiting, at, at+1)
	}
	return true
}

// next is the batch to send after a round trip that took so long. nil: no call waits, and
// the flight is free.
func (g *Group[C]) next(took time.Duration) *batch[C] {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slow = g.Slow > 0 && took > g.Slow
	if len(g.waiting) == 0 {
		g.flights--
		return nil
	}
	b := g.waiting[0]
	g.waiting = slices.Delete(g.waiting, 0, 1)
	return b
}

// fly sends batches until no call waits. The context of one caller does not hold for the
// calls of others: callers leave by their own, and the client's timeouts bound the round
// trip.
func (g *Group[C]) fly(ctx context.Context, b *batch[C]) {
	for b != nil {
		began := time.Now()
		g.Send(ctx, b.calls)
		took := time.Since(began)
		close(b.answered)
		runtime.Gosched() // callers that were just answered and call again join the next batch
		b, ctx = g.next(took), context.Background()
	}
}
