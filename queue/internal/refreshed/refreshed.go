// Package refreshed keeps values of Redis that are read again when they are too old.
package refreshed

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/queue/internal/store"
)

// Value is a value that is read from Redis again when it is too old. Concurrent callers share a
// read. While Redis does not answer, callers that do not need a new value get the last one, so that
// the loss of one node of a Cluster does not stop what others serve.
type Value[T any] struct {
	Read func(context.Context) (T, error) // required

	mu      sync.Mutex
	value   T
	known   bool
	at      time.Time     // when the read of value began
	failed  time.Time     // when the latest read failed, if none succeeded since
	reading chan struct{} // closed when the read under way ends; nil: none is
	err     error         // of the read that ended last
}

const (
	refreshWait  = 100 * time.Millisecond // for a read, before the last value is used
	refreshAgain = time.Second            // after a failed read, unless a new value is needed
)

// Get returns a value that was read at most age ago. If fresh is false, it may be the last value
// that could be read, or if none could, the error of a read that failed a moment ago.
func (r *Value[T]) Get(ctx context.Context, age time.Duration, fresh bool) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := time.Now()
	if r.known && (asked.Sub(r.at) < age || !fresh && asked.Sub(r.failed) < refreshAgain) {
		return r.value, nil
	}
	if !r.known && !fresh && asked.Sub(r.failed) < refreshAgain {
		return r.value, r.err
	}
	var late <-chan time.Time
	if r.known && !fresh {
		late = time.After(refreshWait)
	}
	for {
		if r.reading == nil {
			r.start(ctx)
		}
		reading, expired := r.reading, error(nil)
		r.mu.Unlock()
		select {
		case <-reading:
		case <-late:
		case <-ctx.Done():
			expired = ctx.Err()
		}
		r.mu.Lock()
		switch {
		case r.known && !fresh: // as new as it can be had
			return r.value, nil
		case expired != nil:
			return r.value, expired
		case r.reading == nil && r.err != nil:
			return r.value, r.err
		case r.known && asked.Sub(r.at) < age:
			return r.value, nil
		}
	}
}

// start begins a read. The caller holds mu.
func (r *Value[T]) start(ctx context.Context) {
	began, done := time.Now(), make(chan struct{})
	r.reading = done
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
	go func() {
		defer cancel()
		value, err := r.Read(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.reading, r.err = nil, err; err == nil {
			r.value, r.known, r.at, r.failed = value, true, began, time.Time{}
		} else {
			r.failed = time.Now()
		}
		close(done)
	}()
}
