package metrics

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// readingAge is how long a reading is reused.
const readingAge = time.Second

// shared shares an expensive reading: callers get the reading in progress or a recent one.
type shared[T any] struct {
	read func(context.Context) (T, error) // must have its own timeout

	mu      sync.Mutex
	last    *result[T] // the latest complete reading
	current *result[T] // the reading in progress; nil: none
}

// result is one reading. Even with an error, value has what could be read.
type result[T any] struct {
	done  chan struct{} // closed when the other fields are set
	at    time.Time
	value T
	err   error
}

// get returns a current reading. If that takes longer than wait, get returns the previous one, or
// an error if that is older than oldest.
func (s *shared[T]) get(wait, oldest time.Duration) (T, error) {
	s.mu.Lock()
	last := s.last
	if last != nil && time.Since(last.at) < readingAge {
		s.mu.Unlock()
		return last.value, last.err
	}
	if s.current == nil {
		s.current = &result[T]{done: make(chan struct{})}
		go s.take(s.current)
	}
	current := s.current
	s.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-current.done:
		return current.value, current.err
	case <-timer.C: // the client of a Redis that hangs can wait longer than its context
	}
	if last != nil && time.Since(last.at) < oldest {
		return last.value, last.err
	}
	var none T
	return none, fmt.Errorf("redis did not answer within %v", wait)
}

func (s *shared[T]) take(into *result[T]) {
	into.value, into.err = s.read(context.Background())
	s.mu.Lock()
	into.at = time.Now()
	s.last, s.current = into, nil
	s.mu.Unlock()
	close(into.done)
}
