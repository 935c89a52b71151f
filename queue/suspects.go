package queue

import (
	"context"
	"sync"
	"time"
)

// suspects finds out which job takes its workers with it. When a worker dies, Redis
// knows which jobs it held, but not which of them were being called: that would cost
// a command for every job. So suspicion comes in steps, each of which costs only the
// jobs that have come so far, and recover.lua takes them:
//
//   - Every job that was held by a worker that died is marked from then on before it
//     is called ("beside").
//   - One whose worker died after such a mark is a suspect. At most one suspect at a
//     time is called in a process. A few others wait for their turn, and all that
//     waited for a second go back to their lanes for a while. Dispatch gives a suspect
//     no slot: it asks for one when its turn has come.
//   - A suspect whose worker dies while nothing else was called in it ("alone") is
//     guilty. While other calls are under way it is only one of those that may be:
//     it is guilty when that happened three times. One other job cannot bring it
//     there, because after two deaths that job is a suspect itself.
//
// A call that comes to an end clears its job. No other call ever waits for that of a
// suspect, nor a suspect for those of others.
//
// There is one for all queues of a worker.
type suspects struct {
	waiting chan struct{} // has a value for each that waits: a part of the worker's places
	free    chan struct{} // has a value while no suspect has the turn

	mu    sync.Mutex
	calls int   // under way, but for that of the suspect
	turn  *turn // of the suspect; nil: there is none
}

// turn is that of a suspect to be called.
type turn struct {
	mu    sync.Mutex
	alone bool   // it is marked as such in Redis
	join  func() // marks it as not alone
}

// suspicious is from how many counted deaths on a job is a suspect.
const suspicious = 2

// turnWait is how long a suspect waits in the worker's hands for its turn.
const turnWait = time.Second

func newSuspects(concurrency int) *suspects {
	s := &suspects{waiting: make(chan struct{}, max(concurrency/10, 1)), free: make(chan struct{}, 1)}
	s.free <- struct{}{}
	return s
}

// enter lets a call begin that is no suspect's. A suspect that is called counts as
// not alone from before that moment on.
func (s *suspects) enter() (leave func()) {
	s.mu.Lock()
	s.calls++
	turn := s.turn
	s.mu.Unlock()
	if turn != nil {
		turn.mu.Lock()
		if turn.alone {
			turn.join()
			turn.alone = false
		}
		turn.mu.Unlock()
	}
	return func() {
		s.mu.Lock()
		s.calls--
		s.mu.Unlock()
	}
}

// take gives a suspect the turn; nil: it did not come while ctx lasted, or too many wait.
func (s *suspects) take(ctx context.Context, join func()) *turn {
	select {
	case s.waiting <- struct{}{}:
	default:
		return nil
	}
	defer func() { <-s.waiting }()
	select {
	case <-s.free:
	case <-ctx.Done():
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = &turn{join: join}
	return s.turn
}

// pass ends a turn.
func (s *suspects) pass() {
	s.mu.Lock()
	s.turn = nil
	s.mu.Unlock()
	s.free <- struct{}{}
}

// mark marks the suspect whose turn it is, before its call.
func (s *suspects) mark(t *turn, mark func(alone bool) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.mu.Lock()
	t.alone = s.calls == 0
	s.mu.Unlock()
	return mark(t.alone)
}
