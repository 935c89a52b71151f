package inspect

import (
	"context"
	"time"
)

const (
	readingAge  = time.Second      // how long a reading is shared at least,
	maxAge      = 10 * time.Second // and at most
	readingPart = 50               // times as long as the reading took
)

// renewed is something that is read once for several users, and again when it is too old.
type renewed[T any] struct {
	turn     chan struct{} // a lock for reading and for the other fields; see take
	last     *T
	at       time.Time // when last was set
	until    time.Time // until when last is shared
	renewing bool      // the next one is being read in the background
}

func newRenewed[T any]() renewed[T] { return renewed[T]{turn: make(chan struct{}, 1)} }

// take waits for a turn. Call done to give it back.
func take(ctx context.Context, turn chan struct{}) (done func(), err error) {
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readRenewed reads something. Between its pieces it calls rest, which waits only in the
// background, so that other clients of Redis are served in between.
type readRenewed[T any] func(ctx context.Context, rest func(time.Duration)) (*T, error)

// atOnce is the rest when a caller waits for the reading: none.
func atOnce(time.Duration) {}

// get returns the last reading, or a new one if that is too old; fresh reports that it
// was read for this question. For `late` after its time, the last reading is returned and
// the next one read in the background. The caller holds the turn.
func (r *renewed[T]) get(ctx context.Context, late time.Duration, read readRenewed[T]) (last *T, fresh bool, err error) {
	now := time.Now()
	switch {
	case r.last == nil:
	case now.Before(r.until), r.renewing:
		return r.last, false, nil
	case now.Sub(r.until) < late:
		r.renewing = true
		go r.renew(read)
		return r.last, false, nil
	}
	next, err := read(ctx, atOnce)
	if err != nil {
		return nil, false, err
	}
	r.set(next, time.Since(now))
	return next, true, nil
}

func (r *renewed[T]) set(next *T, took time.Duration) {
	r.last, r.at = next, time.Now()
	r.until = r.at.Add(sharedFor(took))
}

// renew reads in the background. It drops an error: callers meet it themselves when the
// last reading is too old.
func (r *renewed[T]) renew(read readRenewed[T]) {
	began, rested := time.Now(), time.Duration(0)
	next, err := read(context.Background(), func(d time.Duration) {
		rested += d
		time.Sleep(d)
	})
	took := time.Since(began) - rested
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.renewing = false
	if err == nil && r.at.Before(began) {
		r.set(next, took)
	}
}

// sharedFor returns how long a reading is shared that took this long.
func sharedFor(took time.Duration) time.Duration {
	return min(max(readingAge, readingPart*took), maxAge)
}
