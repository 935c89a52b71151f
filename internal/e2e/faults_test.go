package e2e

import (
	"syscall"
	"testing"
	"time"
)

func TestPausedWorker(t *testing.T) {
	const jobs, rate = 1500, 100
	s := newStage(t, perTenant("100/s"))
	first := s.worker()
	s.worker()
	s.bulk(s.jobs("acme", jobs, ""))
	s.wait("", 200, 20*time.Second)
	first.signal(syscall.SIGSTOP)
	time.Sleep(5 * time.Second) // the fault itself
	first.signal(syscall.SIGCONT)
	s.allEnd(60 * time.Second)
	calls := s.log()
	s.atLeastOnce(calls, jobs, 2)
	s.lawful("acme", times(calls, everyCall), rate, 1)
}

func TestPausedRedis(t *testing.T) {
	const jobs, rate = 1500, 100
	s := newStage(t, perTenant("100/s"))
	s.worker()
	s.worker()
	s.bulk(s.jobs("acme", jobs, ""))
	s.wait("", 200, 20*time.Second)
	s.redis.Pause()
	time.Sleep(5 * time.Second) // the fault itself
	s.redis.Resume()
	s.allEnd(60 * time.Second)
	calls := s.log()
	s.atLeastOnce(calls, jobs, 0)
	s.lawful("acme", times(calls, everyCall), rate, 1)
}

func TestRestartedRedis(t *testing.T) {
	const jobs, rate = 1000, 100
	s := newStage(t, perTenant("100/s"), "--appendonly", "yes", "--appendfsync", "always")
	s.worker()
	s.bulk(s.jobs("acme", jobs, ""))
	s.wait("", 200, 20*time.Second)
	s.redis.Kill()
	s.redis.Restart()
	s.allEnd(60 * time.Second)
	calls := s.log()
	s.atLeastOnce(calls, jobs, 0) // what was called is kept until Redis is back
	s.lawful("acme", times(calls, everyCall), rate, 1)
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
		s.lawful("acme", at, rate, 1)
		s.enough("across the stop", at, rate, 0.97)
	})
}
