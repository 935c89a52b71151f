package queue

import (
	"sync"
	"time"
)

// starvation tracks the latest period in which jobs of a queue could go but this worker had
// no room for them. Only jobs that find room get slots, so slots alone do not show that
// there are too few workers.
type starvation struct {
	mu          sync.Mutex
	from, until time.Duration // the period, on the boot clock
	lasts       bool          // the period has not ended
	total       time.Duration // of all periods, up to the latest round
}

// note records whether a round of dispatch was starved. It returns the time since the round
// before if that one was starved, otherwise 0.
func (s *starvation) note(now, before time.Duration, starved bool) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	lasted := s.lasts
	s.lasts = starved
	switch {
	case lasted:
		s.until = now
		s.total += now - before
		return now - before
	case starved:
		s.from, s.until = now, now
	}
	return 0
}

// sum returns how long the worker has been starved, up to the latest round of dispatch.
func (s *starvation) sum() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// since returns from when a job could have gone. accepted is when it was accepted, and slot
// the time of its slot; both and the result are on the boot clock.
func (s *starvation) since(accepted, slot time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot < s.from || slot > s.until && !s.lasts {
		return slot
	}
	return min(slot, max(s.from, accepted))
}
