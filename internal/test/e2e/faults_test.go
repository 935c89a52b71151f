package e2e

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/stage"
)

// fault judges a tenant's calls at 100/s of two workers around a fault, which comes when
// some of them were made. At most `twice` jobs may be called more than once.
func fault(t *testing.T, jobs, twice int, strike func(*stage.Stage), redisConfig ...string) {
	t.Helper()
	stage.Measured(t, stage.PerTenant("100/s"), func(s *stage.Stage) {
		s.Worker()
		s.Worker()
		s.Bulk(s.Jobs("acme", jobs, ""))
		s.Wait("", 200, 20*time.Second)
		strike(s)
		s.AllEnd(60 * time.Second)
		calls := s.Log()
		s.AtLeastOnce(calls, jobs, twice)
		s.Run.Law("acme", stage.Times(calls, stage.EveryCall), 100, 1)
	}, redisConfig...)
}

func TestPausedWorker(t *testing.T) {
	t.Parallel()
	fault(t, 1000, 2, func(s *stage.Stage) {
		s.Workers[0].Signal(syscall.SIGSTOP)
		time.Sleep(5 * time.Second) // the fault itself
		s.Workers[0].Signal(syscall.SIGCONT)
	})
}

func TestPausedRedis(t *testing.T) {
	t.Parallel()
	fault(t, 600, 0, func(s *stage.Stage) {
		s.Redis.Pause()
		time.Sleep(5 * time.Second) // the fault itself
		s.Redis.Resume()
	})
}

func TestRestartedRedis(t *testing.T) {
	t.Parallel()
	// What was called is kept until Redis is back, so none is called twice.
	fault(t, 600, 0, func(s *stage.Stage) {
		s.Redis.Kill()
		s.Redis.Restart()
	}, "--appendonly", "yes", "--appendfsync", "always")
}

// TestKilledWorker: kill -9 of one of two workers with 200 calls in flight. Within 15 s they are made
// again, as fast as their limit allows, with the same key, and spend no attempt. Those of the
// dead worker and those of the other keep the limit.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	const jobs, rate, burst, recovery = 200, 200, 20, 15 * time.Second
	limits := fmt.Sprintf(`
queues:
  webhook: {kinds: [webhook], limits: [{name: tenant, per: [tenant], algorithm: token_bucket, rate: %d/s, burst: %d}]}
`, rate, burst)
	pacer.Measure(t, func(t *testing.T, r *pacer.Run) {
		s := stage.New(t, limits)
		s.Run = r
		paced := &stage.Stage{T: t, Bin: s.Bin, Run: r} // all calls of the other receiver hang
		paced.Receive()
		paced.Pace(paced.Calls, "/calls")
		victim := s.Worker()
		s.Order("/hang")
		s.Bulk(s.Jobs("acme", jobs, `,"max_attempts":1`))
		inFlight := func() int64 { return s.Redis.Client().LLen(t.Context(), "asynq:{webhook}:active").Val() }
		s.Until(10*time.Second, "all calls are in flight", func() bool { return inFlight() == jobs && len(s.Log()) == jobs })
		s.Worker()
		victim.Signal(syscall.SIGKILL)
		<-victim.Done
		killed := time.Now()
		s.Order("/release")
		again := map[string]time.Time{} // the first call of each job after the kill
		s.Until(30*time.Second, "all jobs are called again", func() bool {
			for _, call := range s.Log() {
				if call.Accepted && call.At.After(killed) {
					if at, ok := again[call.Job]; !ok || call.At.Before(at) {
						again[call.Job] = call.At
					}
					if call.Attempt != "1" || call.Key != call.Job {
						t.Fatalf("%+v: want the first attempt with the job's own key", call)
					}
				}
			}
			return len(again) == jobs
		})
		at := slices.SortedFunc(maps.Values(again), time.Time.Compare)
		r.Took("the first job again after the kill", killed, at[0], recovery)
		r.Took("the last job again after the kill", killed, at[jobs-1], recovery+(jobs-burst)*time.Second/rate)
		s.AllEnd(10 * time.Second)
		calls := s.Log()
		if len(calls) != 2*jobs {
			t.Errorf("%d calls of %d jobs; want two of each", len(calls), jobs)
		}
		r.Law("acme", stage.Times(calls, stage.EveryCall), rate, burst)
	})
}

func TestGracefulStopUnderLoad(t *testing.T) {
	const jobs, rate = 1000, 200
	stage.Measured(t, stage.PerTenant("200/s"), func(s *stage.Stage) {
		first := s.Worker()
		s.Worker()
		s.Bulk(s.Jobs("acme", jobs, ""))
		s.Wait("", 200, 20*time.Second)
		first.Signal(syscall.SIGTERM)
		<-first.Done
		s.AllEnd(30 * time.Second)
		calls := s.Log()
		s.Once(calls, jobs)
		at := stage.Times(calls, stage.EveryCall)
		s.Run.Law("acme", at, rate, 1)
		s.Run.Used("across the stop", at, rate, 0.97)
	})
}
