package e2e

import (
	"syscall"
	"testing"
	"time"
)

// fault judges a tenant's calls at 100/s of two workers around a fault, which comes when
// some of them were made. At most `twice` jobs may be called more than once.
func fault(t *testing.T, jobs, twice int, strike func(*stage), redisConfig ...string) {
	t.Helper()
	measured(t, perTenant("100/s"), func(s *stage) {
		s.worker()
		s.worker()
		s.bulk(s.jobs("acme", jobs, ""))
		s.wait("", 200, 20*time.Second)
		strike(s)
		s.allEnd(60 * time.Second)
		calls := s.log()
		s.atLeastOnce(calls, jobs, twice)
		s.run.Law("acme", times(calls, everyCall), 100, 1)
	}, redisConfig...)
}

func TestPausedWorker(t *testing.T) {
	t.Parallel()
	fault(t, 1000, 2, func(s *stage) {
		s.workers[0].signal(syscall.SIGSTOP)
		time.Sleep(5 * time.Second) // the fault itself
		s.workers[0].signal(syscall.SIGCONT)
	})
}

func TestPausedRedis(t *testing.T) {
	t.Parallel()
	fault(t, 600, 0, func(s *stage) {
		s.redis.Pause()
		time.Sleep(5 * time.Second) // the fault itself
		s.redis.Resume()
	})
}

func TestRestartedRedis(t *testing.T) {
	t.Parallel()
	// What was called is kept until Redis is back, so none is called twice.
	fault(t, 600, 0, func(s *stage) {
		s.redis.Kill()
		s.redis.Restart()
	}, "--appendonly", "yes", "--appendfsync", "always")
}

// TestKilledWorker: kill -9 of one of two workers with 200 calls in flight; all
// of them are made again soon, with the same key, and spend no attempt.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	const jobs = 200
	s := newStage(t, `
queues:
  webhook: {kinds: [webhook], limits: [{name: tenant, per: [tenant], algorithm: token_bucket, rate: 1000/s, burst: 200}]}
`)
	victim := s.worker()
	s.order("/hang")
	s.bulk(s.jobs("acme", jobs, `,"max_attempts":1`))
	inFlight := func() int64 { return s.redis.Client().LLen(t.Context(), "asynq:{webhook}:active").Val() }
	s.until(10*time.Second, "all calls are in flight", func() bool { return inFlight() == jobs })
	s.worker()
	victim.signal(syscall.SIGKILL)
	<-victim.done
	killed := time.Now()
	s.order("/release")
	again := map[string]bool{}
	// Up to 14 s where the dead worker had watched the queue, and the calls themselves.
	s.until(20*time.Second, "all jobs are called again", func() bool {
		for _, call := range s.log() {
			if call.Accepted && call.At.After(killed) {
				again[call.Job] = true
				if call.Attempt != "1" || call.Key != call.Job {
					t.Fatalf("%+v: want the first attempt with the job's own key", call)
				}
			}
		}
		return len(again) == jobs
	})
	t.Logf("all %d jobs ran again within %v", jobs, time.Since(killed))
	s.allEnd(10 * time.Second)
}

func TestGracefulStopUnderLoad(t *testing.T) {
	const jobs, rate = 1000, 200
	measured(t, perTenant("200/s"), func(s *stage) {
		first := s.worker()
		s.worker()
		s.bulk(s.jobs("acme", jobs, ""))
		s.wait("", 200, 20*time.Second)
		first.signal(syscall.SIGTERM)
		<-first.done
		s.allEnd(30 * time.Second)
		calls := s.log()
		s.once(calls, jobs)
		at := times(calls, everyCall)
		s.run.Law("acme", at, rate, 1)
		s.run.Used("across the stop", at, rate, 0.97)
	})
}
