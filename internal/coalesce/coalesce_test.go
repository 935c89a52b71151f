package coalesce

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// call is a number that Send answers with its double.
type call struct{ n, answer int }

// server answers the round trips of a group when the test says so.
type server struct {
	*Group[*call]
	sent    [][]int
	answers chan struct{}
}

func newServer() *server {
	s := &server{answers: make(chan struct{})}
	s.Group = &Group[*call]{MaxCalls: 3, Send: func(_ context.Context, calls []*call) {
		var numbers []int
		for _, c := range calls {
			numbers = append(numbers, c.n)
		}
		s.sent = append(s.sent, numbers)
		<-s.answers
		for _, c := range calls {
			c.answer = 2 * c.n
		}
	}}
	return s
}

// result is what Do returned.
type result struct {
	call     *call
	answered <-chan struct{}
	err      error
}

// start makes a call, and returns once it is under way or waits.
func (s *server) start(ctx context.Context, n int) <-chan result {
	done := make(chan result, 1)
	go func() {
		c := &call{n: n}
		answered, err := s.Do(ctx, c)
		done <- result{c, answered, err}
	}()
	synctest.Wait()
	return done
}

// answer lets one round trip end.
func (s *server) answer() {
	s.answers <- struct{}{}
	synctest.Wait()
}

func (s *server) wantSent(t *testing.T, want ...[]int) {
	t.Helper()
	if !slices.EqualFunc(s.sent, want, slices.Equal) {
		t.Errorf("sent %v, want %v", s.sent, want)
	}
}

// TestCallsGather: calls that come while all flights are taken go together, up to MaxCalls,
// and each has its own answer.
func TestCallsGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var all []<-chan result
		for n := range 7 {
			all = append(all, s.start(t.Context(), n))
		}
		s.wantSent(t, []int{0}, []int{1})
		if flights, waiting := s.Pending(); flights != MaxFlights || waiting != 5 {
			t.Errorf("%d flights, %d calls wait; want %d and 5", flights, waiting, MaxFlights)
		}
		for range 4 {
			s.answer()
		}
		s.wantSent(t, []int{0}, []int{1}, []int{2, 3, 4}, []int{5, 6})
		for n, done := range all {
			if r := <-done; r.err != nil || r.answered != nil || r.call.answer != 2*n {
				t.Errorf("call %d: %+v, %+v", n, r, r.call)
			}
		}
		if flights, waiting := s.Pending(); flights != 0 || waiting != 0 {
			t.Errorf("%d flights, %d calls wait after the last answer", flights, waiting)
		}
	})
}

// TestCallsGatherBySize: calls share a round trip only up to MaxBytes, and one that is
// larger goes alone.
func TestCallsGatherBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.MaxBytes, s.Size = 10, func(c *call) int { return c.n }
		for _, n := range []int{1, 1, 4, 6, 1, 99, 2} {
			s.start(t.Context(), n)
		}
		leaving, leave := context.WithCancel(t.Context())
		left := s.start(leaving, 8)
		leave()
		<-left
		s.start(t.Context(), 7) // there is room again
		for range 6 {
			s.answer()
		}
		s.wantSent(t, []int{1}, []int{1}, []int{4, 6}, []int{1}, []int{99}, []int{2, 7})
	})
}

// TestCallersLeave: a call whose context is done before it was sent never is. One that was
// sent says so, and when it was answered.
func TestCallersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		ended, end := context.WithCancel(t.Context())
		end()
		if r := <-s.start(ended, 9); !errors.Is(r.err, context.Canceled) || r.answered != nil {
			t.Errorf("a context that was done before: %+v", r)
		}
		for n := range MaxFlights {
			s.start(t.Context(), n)
		}
		early, leaveEarly := context.WithCancel(t.Context())
		late, leaveLate := context.WithCancel(t.Context())
		waits, goes := s.start(early, 2), s.start(late, 3)
		leaveEarly()
		if r := <-waits; !errors.Is(r.err, context.Canceled) || r.answered != nil {
			t.Errorf("it was not sent: %+v", r)
		}
		s.answer()
		s.wantSent(t, []int{0}, []int{1}, []int{3})
		leaveLate()
		r := <-goes
		if !errors.Is(r.err, context.Canceled) || r.answered == nil {
			t.Fatalf("it was sent: %+v", r)
		}
		select {
		case <-r.answered:
			t.Error("answered before the answer")
		default:
		}
		s.answer()
		s.answer()
		if <-r.answered; r.call.answer != 6 {
			t.Errorf("%+v; want 6", r.call)
		}
	})
}

// TestCallersLeaveASlowServer: after a slow round trip a caller that goes alone can leave, too.
func TestCallersLeaveASlowServer(t *testing.T) {
	const slow = 20 * time.Millisecond
	for took, leaves := range map[time.Duration]bool{slow: false, slow + 1: true} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			s.Slow = slow
			s.start(t.Context(), 0)
			time.Sleep(took)
			s.answer()
			ctx, cancel := context.WithCancel(t.Context())
			done := s.start(ctx, 1)
			cancel()
			synctest.Wait()
			select {
			case r := <-done:
				if !leaves || !errors.Is(r.err, context.Canceled) || r.answered == nil {
					t.Errorf("after %v: %+v", took, r)
				}
			default:
				if leaves {
					t.Errorf("after %v it did not leave", took)
				}
			}
			s.answer()
		})
	}
}
