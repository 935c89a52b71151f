package inspect

import (
	"context"
	"time"
)

const (
	readingAge  = time.Second      // for which a reading is shared, at least,
	maxAge      = 10 * time.Second // and at most
	readingPart = 50               // of the time that reading takes
)

// renewed is something that is read for all who ask, and read anew when it is too old.
type renewed[T any] struct {
	turn     chan struct{} // holds one value: who takes it may read, and use the rest
	last     *T
	at       time.Time // when last was there
	until    time.Time // for which it is shared
	renewing bool      // the next one is being read in the background
}

func newRenewed[T any]() renewed[T] { return renewed[T]{turn: make(chan struct{}, 1)} }

// take waits for a turn, which is given back by the answer.
func take(ctx context.Context, turn chan struct{}) (done func(), err error) {
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readRenewed reads something anew. It calls rest between its pieces, which waits in the
// background alone, so that whoever else asks Redis comes in between.
type readRenewed[T any] func(ctx context.Context, rest func(time.Duration)) (*T, error)

// atOnce is the rest between pieces for which somebody waits: none.
func atOnce(time.Duration) {}

// get is the last reading, or a new one where that is too old; fresh: it was read for this
// question. For `late` after its time nobody waits for the next one: who asks has that read
// in the background. The caller holds the turn.
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

// renew reads in the background. An error is for those to find who ask when the last
// reading has become too old.
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

// sharedFor is how long something is shared that took so long to read.
func sharedFor(took time.Duration) time.Duration {
	return min(max(readingAge, readingPart*took), maxAge)
}
