package queue

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/lifecycle"
)

// handsTo starts the gate of a worker that asks for no jobs. The test hands jobs to it.
func (r *rig) handsTo(t *testing.T, renewals *renewals) (hand func(id, owner, answer string, asked time.Duration), running *sync.WaitGroup) {
	t.Helper()
	for _, h := range r.worker.handlers {
		h.call = h.fn
	}
	r.worker.redis = r.server.Client()
	s := r.worker.session([]partition.Layout{{Queue: r.queue, N: 1}})
	clock := &redisClock{redis: r.worker.redis, queue: r.queue}
	if err := clock.sample(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.id, s.clocks, s.renewals, s.base = "w", map[string]*redisClock{r.queue: clock}, renewals, t.Context()
	s.prepare()
	t.Cleanup(s.running.Wait)
	return func(id, owner, how string, asked time.Duration) {
		s.dispatchers[0].hand([]handed{{id: id, owner: owner, message: []byte(r.field(t, id, "msg")), asked: asked, grant: grant{answer: answer(how)}}})
	}, &s.running
}

// TestNoCallWithoutALease: a call does not leave while the worker may have lost the job. It
// leaves when the worker certainly has the job again.
func TestNoCallWithoutALease(t *testing.T) {
	r := startRig(t, 1, limitsOf(), nil)
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	renewals := &renewals{since: boottime.Now() + time.Hour} // a gap, in which others may have recovered the job
	hand, running := r.handsTo(t, renewals)
	hand(id, "w:1", "go", boottime.Now())
	r.seen.wait(t, "missed", 3)
	if n := len(r.callsOf("a")) + len(r.callsOf("")); n != 0 {
		t.Errorf("%d calls left", n)
	}
	renewals.mu.Lock()
	renewals.since = 0
	renewals.mu.Unlock()
	running.Wait()
	if n := len(r.callsOf("a")); n != 1 || r.seen.outcomes(lifecycle.Done) != 1 {
		t.Errorf("%d calls left, and %d ended well", n, r.seen.outcomes(lifecycle.Done))
	}
}

// TestNoCallOfAJobLostOnItsWay: a worker is suspended after Redis has handed it a job and before the job's run begins, and
// another worker recovers the job meanwhile. The first one makes no call.
func TestNoCallOfAJobLostOnItsWay(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	id, asked := r.add(t, nil), boottime.Now()-2*unbroken
	r.hold(t, id, "another:1")
	hand, _ := r.handsTo(t, &renewals{last: asked})
	hand(id, "w:1", "go", asked)
	r.seen.wait(t, string(lifecycle.Lost), 1)
	if n := len(r.callsOf("a")); n > 0 {
		t.Errorf("%d calls left", n)
	}
}

// TestWrappedSkipRetry: a wrapped asynq.SkipRetry is a final failure too.
func TestWrappedSkipRetry(t *testing.T) {
	err := fmt.Errorf("no such address: %w", asynq.SkipRetry)
	if v := judge(err, &Running{Attempt: 1, MaxAttempts: 3}, &handler{backoff: defaultBackoff}, time.Now()); v.outcome != lifecycle.Archived || answerOf(err) != lifecycle.AnswerPermanent {
		t.Errorf("it is %s, and its answer %s", v.outcome, answerOf(err))
	}
}
