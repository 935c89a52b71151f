package queue

import (
	"context"
	"sync"
	"time"
)

// suspects finds the job whose calls crash their workers. When a worker dies, Redis knows
// which jobs it held, but not which calls were in flight: that would cost a command for
// every job. So suspicion grows in steps, and only jobs that reach a step pay for it.
// recover.lua counts them:
//
//   - A job that was held by a worker that died is marked before each later call
//     ("beside").
//   - A job whose worker died after such a mark is a suspect. A process calls at most one
//     suspect at a time. A few others wait for their turn, for up to a second, and then
//     go back to their lanes for a while. Dispatch gives a suspect no slot: the worker
//     asks for one when its turn has come.
//   - A suspect whose worker dies while no other call was in flight there ("alone") is
//     guilty. If other calls were in flight, the suspect is only one of the candidates.
//     It is guilty when that has happened three times. No other job can cause that many
//     deaths, because it would be a suspect itself after two.
//
// A call that ends clears its job. Other calls never wait for a suspect's call, nor a
// suspect for theirs.
//
// All queues of a worker share one suspects.
type suspects struct {
	waiting chan struct{} // has a value for each suspect that waits; bounds how many do
	free    chan struct{} // has a value while no suspect has the turn

	mu    sync.Mutex
	calls int   // calls in flight, except the suspect's
	turn  *turn // the current turn; nil: none
}

// turn is the right of a suspect to be called.
type turn struct {
	mu    sync.Mutex
	alone bool   // the suspect is marked as alone in Redis
	join  func() // marks the suspect as not alone
}

// suspicious is the number of counted deaths that make a job a suspect.
const suspicious = 2

// turnWait is how long a worker holds a suspect for its turn.
const turnWait = time.Second

func newSuspects(concurrency int) *suspects {
	s := &suspects{waiting: make(chan struct{}, max(concurrency/10, 1)), free: make(chan struct{}, 1)}
	s.free <- struct{}{}
	return s
}

// enter records the start of a call that is not a suspect's. If a suspect's call is in
// flight, enter first marks the suspect as not alone. leave records the end of the call.
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

// take waits for the turn of a suspect. It returns nil if ctx is done first, or if too many
// suspects wait.
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

// mark marks the suspect that has the turn, before its call.
func (s *suspects) mark(t *turn, mark func(alone bool) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.mu.Lock()
	t.alone = s.calls == 0
	s.mu.Unlock()
	return mark(t.alone)
}
