package metrics

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// readingAge is for how long a reading is shown again.
const readingAge = time.Second

// shared lets many ask for what is dear to read: those who ask while it is read, or
// soon after, get the same.
type shared[T any] struct {
	read func(context.Context) (T, error) // with a bound of its own

	mu      sync.Mutex
	last    *result[T] // the latest that was read
	current *result[T] // under way; nil: none is
}

// result is one reading. What could be read is in it beside an error, too.
type result[T any] struct {
	done  chan struct{} // closed when the rest is there
	at    time.Time
	value T
	err   error
}

// get is the reading of just now. When it takes longer than wait, it is the one
// before, unless that is older than oldest: then it is an error.
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
	case <-timer.C: // a silent Redis is waited for longer than any context lasts
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
