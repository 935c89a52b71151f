package queue

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// TestTimedClockSteps: Redis's clock is set while a tenant has a backlog. Calls go on at the
// tenant's rate, without a burst, and workers do not ask in a busy loop.
func TestTimedClockSteps(t *testing.T) {
	t.Parallel()
	const rate, jobs = 50, 500
	measured(t, func(t *testing.T, run *pacer.Run) {
		steps := []time.Duration{time.Second, -time.Second, 30 * time.Second, -30 * time.Second, time.Hour, -time.Hour}
		rigs := make([]*rig, len(steps))
		var counted sync.Mutex // no two steps note their figures at once
		t.Run("steps", func(t *testing.T) {
			for i, step := range steps {
				t.Run(fmt.Sprint(step), func(t *testing.T) {
					t.Parallel()
					var clock redistest.Clock
					r := startRig(t, -1, limitsOf(perTenant(rate)), func(c *Config) { c.Redis.Dialer = clock.Dial })
					rigs[i] = r
					r.enqueue(t, "a", jobs)
					r.run(t)
					r.seen.wait(t, string(lifecycle.Done), rate)
					asked := r.asked()
					clock.Step(step)
					stepped, done := time.Now(), r.seen.outcomes(lifecycle.Done)
					r.seen.wait(t, string(lifecycle.Done), done+rate)
					came := time.Now()
					asked = r.asked() - asked
					counted.Lock()
					run.Took(fmt.Sprintf("%d calls after a step of %v", rate, step), stepped, came, 5*time.Second)
					run.Number(fmt.Sprintf("slots asked for by %d calls after a step of %v", rate, step), stepped, came, float64(asked), 5*rate)
					counted.Unlock()
					r.stop()
					left := 0
					for _, n := range r.states(t) {
						left += n
					}
					if called := len(r.jobs); called+left != jobs {
						t.Errorf("%d jobs were called and %d are left, of %d", called, left, jobs)
					}
					for id, n := range r.jobs {
						if n != 1 {
							t.Errorf("job %s was called %d times", id, n)
						}
					}
				})
			}
		})
		for i, step := range steps {
			// To the limit, a step forward is time that has passed, so its burst is full.
			burst := 1
			if step > 0 {
				burst = 2
			}
			run.Law(fmt.Sprint(step), rigs[i].all(), rate, burst)
		}
	})
}

// asked counts the worker's requests for a slot.
func (r *rig) asked() int { return r.seen.outcomes("to redis: script:slot") }

// TestDeadlineAfterAStep: after Redis's clock was set back, deadlines go by its new time.
func TestDeadlineAfterAStep(t *testing.T) {
	t.Parallel()
	var clock redistest.Clock
	clock.Step(time.Hour)
	// By this clock, the workers of other tests are dead.
	r := startRigAt(t, redistest.Start(t).Redis(), -1, limitsOf(), func(c *Config) { c.Redis.Dialer = clock.Dial })
	r.enqueue(t, "a", 1)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 1)
	clock.Step(-time.Hour)
	r.add(t, func(job *Job) { job.Deadline = time.Now().Add(30 * time.Minute) })
	r.seen.wait(t, string(lifecycle.Done), 2)
	if expired := r.seen.outcomes(lifecycle.Expired); expired != 0 {
		t.Errorf("%d jobs expired half an hour early", expired)
	}
}

// TestNoCallByADeadlineThatDoesNotCome: a job that is handed over to expire has taken no permit. If Redis's clock is
// set back before its deadline, it waits for its limits as before.
func TestNoCallByADeadlineThatDoesNotCome(t *testing.T) {
	t.Parallel()
	var clock redistest.Clock
	clock.Step(time.Minute)
	clock.Stop() // to the worker, it is set back all the time
	hourly := limits.Limit{Name: "hourly", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}}
	// By this clock, the workers of other tests are dead.
	r := startRigAt(t, redistest.Start(t).Redis(), 1, limitsOf(hourly), func(c *Config) { c.Redis.Dialer = clock.Dial })
	r.enqueue(t, "a", 1)
	id := r.add(t, func(job *Job) { job.Deadline = clock.Now().Add(50 * time.Millisecond) })
	r.run(t)
	until(t, "it waits again", func() bool { return r.field(t, id, "hg_log") != "" })
	r.stop()
	if state := r.field(t, id, "state"); r.jobs[id] != 0 || state != "aggregating" {
		t.Errorf("%d calls of the job, which is %s; want 0, and that it waits", r.jobs[id], state)
	}
}

// TestNoDeadlinePassesByAnOldClock: a worker that has not seen yet that Redis's clock was set back
// asks before it lets a job expire.
func TestNoDeadlinePassesByAnOldClock(t *testing.T) {
	client := redistest.Shared(t).Client()
	for after, expired := range map[time.Duration]bool{30 * time.Minute: false, -time.Minute: true} {
		clock := &redisClock{redis: client, queue: "q"}
		clock.observe(time.Now().Add(time.Hour).UnixMicro(), boottime.Now(), boottime.Now()) // before the step
		r := &run{gate: &gate{clock: clock}, job: &Running{Deadline: time.Now().Add(after)}}
		if is, ok := r.expired(t.Context()); !ok || is != expired {
			t.Errorf("a deadline in %v: expired %v, %v; want %v", after, is, ok, expired)
		}
	}
}

// TestQuotaIfRedisIsDaysAway: a daily quota holds even if the clocks of a worker and of Redis
// are days apart.
func TestQuotaIfRedisIsDaysAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t).Redis() // by these clocks, the workers of other tests are dead
	for _, days := range []int{-400, -10, -2, 2, 10, 400} {
		t.Run(fmt.Sprint(days), func(t *testing.T) {
			t.Parallel()
			var clock redistest.Clock
			clock.Step(time.Duration(days) * 24 * time.Hour)
			daily := limits.Limit{Name: "daily", Per: []string{"tenant"}, Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 2, Period: 24 * time.Hour}, Location: noon(t)}
			r := startRigAt(t, server, -1, limitsOf(daily), func(c *Config) { c.Redis.Dialer = clock.Dial })
			r.enqueue(t, "a", 5)
			r.run(t)
			r.seen.wait(t, string(lifecycle.Done), 2)
			rounds := r.seen.outcomes("round")
			r.seen.wait(t, "round", rounds+3)
			r.stop()
			if done := r.seen.outcomes(lifecycle.Done); done != 2 {
				t.Errorf("%d calls of 2 a day were made", done)
			}
		})
	}
}
