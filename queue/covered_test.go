package queue

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestNoCallWithoutALease: a call does not leave while it is not certain that its job is
// still this worker's, and leaves when it is again.
func TestNoCallWithoutALease(t *testing.T) {
	r := startRig(t, 1, limitsOf(), nil)
	id := r.add(t, nil)
	r.hold(t, id, "")
	r.server.Client().HDel(t.Context(), asynqKey(r.queue, "t:"+id), "hg_owner")
	for _, h := range r.worker.handlers {
		h.call = h.fn
	}
	r.worker.redis = r.server.Client()
	clock := &redisClock{redis: r.server.Client(), queue: r.queue}
	if err := clock.sample(t.Context()); err != nil {
		t.Fatal(err)
	}
	renewals := &renewals{since: bootTime() + time.Hour} // a gap, in which others may have taken it
	stopping, ended := make(chan struct{}), make(chan struct{})
	gates, _ := r.worker.parts("w", map[string]*redisClock{r.queue: clock}, newCapacity(10), &atomic.Int64{}, renewals, stopping, ended)
	came := make(chan verdict)
	go func() {
		job := Running{ID: id, Queue: r.queue, Kind: "call", Tenant: "a", Attempt: 1, MaxAttempts: 3}
		came <- gates[r.queue].process(t.Context(), asynq.NewTask("call", []byte(`{}`)), job, "w:1")
	}()
	r.seen.wait(t, "missed", 3)
	if n := len(r.callsOf("a")) + len(r.callsOf("")); n != 0 {
		t.Errorf("%d calls left", n)
	}
	renewals.mu.Lock()
	renewals.since = 0
	renewals.mu.Unlock()
	if v := <-came; v.outcome != Done {
		t.Errorf("it is %s, %v", v.outcome, v.err)
	}
}

// TestWrappedSkipRetry: asynq's word for a failure that is final counts also where it is
// wrapped.
func TestWrappedSkipRetry(t *testing.T) {
	err := fmt.Errorf("no such address: %w", asynq.SkipRetry)
	if v := judge(err, Running{Attempt: 1, MaxAttempts: 3}, false, time.Now()); v.outcome != Archived || answerOf(err) != AnswerPermanent {
		t.Errorf("it is %s, and its answer %s", v.outcome, answerOf(err))
	}
}
