package api

import (
	"fmt"
	"net/http"
	"sync"
)

// slots bounds how many long requests of one sort go on at once, in all and for each key, so that no
// key keeps out the others.
type slots struct {
	what string // such as batches
	most int

	mu    sync.Mutex
	taken int
	keys  map[string]int
}

func newSlots(what string, most int) *slots {
	return &slots{what: what, most: most, keys: map[string]int{}}
}

// take takes a slot for a caller, until the returned function is called.
func (s *slots) take(c caller) (release func(), err error) {
	share := s.most / 2
	if c.actor() == localActor {
		share = s.most // without keys all callers are one
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	full := ""
	switch key := c.actor(); {
	case s.taken >= s.most:
		full = fmt.Sprintf("%d %s are in progress, which is the max", s.most, s.what)
	case s.keys[key] >= share:
		full = fmt.Sprintf("%d %s of this key are in progress, which is its share", share, s.what)
	}
	if full != "" {
		p := newProblem(http.StatusTooManyRequests, codeBusy, "%s: retry later.", full)
		p.retryAfter = fullRetry
		return nil, p
	}
	s.taken++
	s.keys[c.actor()]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken--
		if s.keys[c.actor()]--; s.keys[c.actor()] == 0 {
			delete(s.keys, c.actor())
		}
	}, nil
}
