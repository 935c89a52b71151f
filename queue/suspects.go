package queue

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/queue/internal/store"
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
// suspect for theirs. They wait until Redis knows that the suspect is not alone, but only for
// [store.AwayAfter]. If its partition is away for longer and the worker dies meanwhile, the
// suspect is taken to have been alone.
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
	begin func(func()) // runs a function in the background
	join  func()       // marks the suspect as not alone

	mu    sync.Mutex // held while the suspect is marked
	alone bool       // the suspect is marked as alone in Redis

	joining *joining // guarded by suspects.mu; nil: no call waits for the mark
}

// joining is the wait of calls until a suspect is marked as not alone.
type joining struct {
	done chan struct{}
	late time.Time // when they wait no longer
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
	var wait *joining
	if s.turn != nil {
		wait = s.joinLocked(s.turn)
	}
	s.mu.Unlock()
	if wait != nil {
		late := time.NewTimer(time.Until(wait.late))
		defer late.Stop()
		select {
		case <-wait.done:
		case <-late.C:
		}
	}
	return func() {
		s.mu.Lock()
		s.calls--
		s.mu.Unlock()
	}
}

// joinLocked begins to mark a suspect as not alone, unless this is under way. The mark is
// one for all calls that begin meanwhile, and only the first of them wait for it if it
// takes long.
func (s *suspects) joinLocked(t *turn) *joining {
	if t.joining != nil {
		return t.joining
	}
	wait := &joining{make(chan struct{}), time.Now().Add(store.AwayAfter)}
	t.joining = wait
	t.begin(func() {
		defer close(wait.done)
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.alone {
			t.join()
			t.alone = false
		}
		// Before mark can go on: it sees the calls that share this, or they begin another one.
		s.mu.Lock()
		t.joining = nil
		s.mu.Unlock()
	})
	return wait
}

// take waits for the turn of a suspect. It returns nil if ctx is done first, or if too many
// suspects wait. begin runs a function in the background.
func (s *suspects) take(ctx context.Context, begin func(func()), join func()) *turn {
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
	s.turn = &turn{begin: begin, join: join}
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
