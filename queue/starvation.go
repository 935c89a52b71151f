package queue

import (
	"sync"
	"time"
)

// starvation is when jobs of a queue could go and this worker had no room for
// them. A slot is given to a job that finds room, so the slots alone do not tell
// that there are too few workers.
type starvation struct {
	mu          sync.Mutex
	from, until time.Duration // the latest time, on the boot clock
	lasts       bool
}

// note takes in what a round of dispatch found, and says how much longer it has
// lasted since the round before.
func (s *starvation) note(now, before time.Duration, starved bool) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	lasted := s.lasts
	s.lasts = starved
	switch {
	case lasted:
		s.until = now
		return now - before
	case starved:
		s.from, s.until = now, now
	}
	return 0
}

// since is from when a job could have gone that was accepted at one moment and
// had its slot at another.
func (s *starvation) since(accepted, slot time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot < s.from || slot > s.until && !s.lasts {
		return slot
	}
	return min(slot, max(s.from, accepted))
}
