package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/law"
	"github.com/headgate/headgate/internal/test/pacer"
)

// perTenant is a limits file with one limit per tenant.
func perTenant(rate string) string {
	return `
queues:
  webhook:
    kinds: [webhook]
    limits:
      - {name: tenant, per: [tenant], algorithm: token_bucket, rate: ` + rate + `}
`
}

func TestTwoWorkersOneTenant(t *testing.T) {
	const jobs, rate = 1500, 100
	measured(t, perTenant("100/s"), func(s *stage) {
		s.worker()
		s.worker()
		s.bulk(s.jobs("acme", jobs, ""))
		s.wait("", jobs, 60*time.Second)
		calls := s.log()
		s.once(calls, jobs)
		at := times(calls, everyCall)
		s.run.Used("acme", at, rate, 1/1.01)
		s.run.Law("acme", at, rate, 1)
	})
}

func TestTwoHundredTenants(t *testing.T) {
	const tenants, each, rate = 200, 25, 2.5
	measured(t, perTenant("5/2s"), func(s *stage) {
		w := s.worker()
		var lines strings.Builder
		for i := range tenants {
			lines.WriteString(s.jobs(fmt.Sprintf("t%d", i), each, ""))
		}
		s.bulk(lines.String())
		s.wait("", tenants*each, 60*time.Second)
		calls := s.log()
		s.once(calls, tenants*each)
		for i := range tenants {
			tenant := fmt.Sprintf("t%d", i)
			at := times(calls, ofTenant(tenant))
			s.run.Used(tenant, at, rate, 0.99)
			s.run.Law(tenant, at, rate, 1)
		}
		s.t.Logf("slots missed: %s", w.missed(s.t))
	})
}

func TestNoisyNeighbour(t *testing.T) {
	measured(t, perTenant("50/s"), func(s *stage) {
		s.worker()
		s.bulk(s.jobs("noisy", 50_000, ""))
		s.wait("noisy", 50, 10*time.Second)
		began := time.Now()
		s.bulk(s.jobs("quiet", 100, ""))
		s.wait("quiet", 100, 10*time.Second)
		s.run.Took("100 jobs at 50/s beside 50,000 of another tenant", began, slices.MaxFunc(times(s.log(), ofTenant("quiet")), time.Time.Compare), 2200*time.Millisecond)
	})
}

const shared = `
queues:
  webhook:
    kinds: [webhook]
    limits:
      - {name: account, algorithm: leaky_bucket, rate: 300/s}
      - {name: tenant, per: [tenant], algorithm: token_bucket, rate: %s}
tenants:
  heavy: {weight: 3}
`

// TestSharedLimit: tenants that come together divide a limit evenly and use it.
func TestSharedLimit(t *testing.T) {
	const tenants, each, rate = 10, 300, 300
	measured(t, fmt.Sprintf(shared, "100/s"), func(s *stage) {
		var lines strings.Builder
		for i := range tenants {
			lines.WriteString(s.jobs(fmt.Sprintf("t%d", i), each, ""))
		}
		s.bulk(lines.String())
		s.worker()
		s.wait("", tenants*each, 60*time.Second)
		calls := s.log()
		s.once(calls, tenants*each)
		at := times(calls, everyCall)
		s.run.Used("account", at, rate, 0.99)
		s.run.Law("account", at, rate, 1)
		// While all had a backlog: the first 80 % of the calls.
		shares := make([]float64, tenants)
		for _, call := range calls[:len(calls)*8/10] {
			var i int
			if _, err := fmt.Sscanf(call.Tenant, "t%d", &i); err == nil {
				shares[i]++
			}
		}
		if jain := law.Jain(shares); jain < 0.99 {
			s.t.Errorf("Jain's index %.4f: %v", jain, shares)
		}
	})
}

// TestSharedLimitInTurn: of a limit that two tenants share, the one that comes later gets
// its part from the start, whether it is the one with many jobs or the one with few.
func TestSharedLimitInTurn(t *testing.T) {
	const rate = 300
	for name, order := range map[string][2]string{"the big one first": {"big", "small"}, "the small one first": {"small", "big"}} {
		t.Run(name, func(t *testing.T) {
			jobs := map[string]int{"big": 10_000, "small": 800}
			measured(t, fmt.Sprintf(shared, "300/s"), func(s *stage) {
				s.worker()
				s.bulk(s.jobs(order[0], jobs[order[0]], ""))
				s.wait(order[0], 200, 20*time.Second)
				s.bulk(s.jobs(order[1], jobs[order[1]], ""))
				s.wait(order[1], 200, 20*time.Second)
				calls := s.log()
				later := times(calls, ofTenant(order[1]))[:200]
				s.run.Used(order[1]+", who comes later", later, rate/2, 0.97)
				s.run.Law("account", times(calls, everyCall), rate, 1)
				// Of the calls in between each has half.
				var shares [2]float64
				for _, call := range calls {
					if !call.At.Before(later[0]) && !call.At.After(later[len(later)-1]) {
						shares[slices.Index(order[:], call.Tenant)]++
					}
				}
				if jain := law.Jain(shares[:]); jain < 0.99 {
					s.t.Errorf("Jain's index %.4f: %v of %v", jain, shares, order)
				}
			})
		})
	}
}

func TestWeights(t *testing.T) {
	t.Parallel()
	s := newStage(t, fmt.Sprintf(shared, "300/s"))
	s.bulk(s.jobs("light", 1000, "") + s.jobs("heavy", 1500, ""))
	s.worker()
	s.wait("", 1600, 30*time.Second)
	n := map[string]int{}
	for _, call := range s.log()[:1600] {
		n[call.Tenant]++
	}
	if ratio := float64(n["heavy"]) / float64(n["light"]); ratio < 3*0.97 || ratio > 3*1.03 {
		t.Errorf("shares %v: 1 : %.3f, want 1 : 3", n, ratio)
	}
}

// TestScheduledJobs: jobs that come due faster than their limit lets them go leave at it,
// none before its time.
func TestScheduledJobs(t *testing.T) {
	const jobs, rate, perSecond = 1000, 100, 200
	measured(t, perTenant("100/s"), func(s *stage) {
		s.worker()
		due := time.Now().Add(4 * time.Second).Truncate(time.Second)
		var lines strings.Builder
		for i, line := range slices.Collect(strings.Lines(s.jobs("acme", jobs, `,"at":"DUE"`))) {
			lines.WriteString(strings.Replace(line, "DUE", due.Add(time.Duration(i/perSecond)*time.Second).Format(time.RFC3339), 1))
		}
		s.bulk(lines.String())
		if now := time.Now(); now.After(due) {
			s.t.Fatalf("enqueueing took until %v after the first were due", now.Sub(due))
		}
		s.wait("", jobs, 60*time.Second)
		calls := s.log()
		s.once(calls, jobs)
		for _, call := range calls {
			var i int
			if _, err := fmt.Sscanf(call.Job, "acme:acme-%d", &i); err != nil {
				s.t.Fatalf("job %q: %v", call.Job, err)
			}
			if at := due.Add(time.Duration(i/perSecond) * time.Second); call.At.Before(at) {
				s.t.Errorf("%s went %v before its time", call.Job, at.Sub(call.At))
			}
		}
		at := times(calls, everyCall)
		s.run.Took("the first of them after it was due", due, slices.MinFunc(at, time.Time.Compare), 200*time.Millisecond)
		s.run.Used("acme", at, rate, 0.99)
		s.run.Law("acme", at, rate, 1)
	})
}

// BenchmarkTwoThousandASecond: 20,000 jobs of one tenant at 2,000/s keep the law and use
// 0.99 of their limit. A worker, Redis and the receiver take half of two cores for it.
// With -short 2,000 jobs keep the law.
func BenchmarkTwoThousandASecond(b *testing.B) {
	jobs, rate := 20_000, 2000.0
	if testing.Short() {
		jobs = 2000
	}
	s := newStage(b, perTenant("2000/s"))
	s.worker()
	runs := 0
	for b.Loop() {
		pacer.MeasureIn(b, func(r *pacer.Run) {
			s.run = r
			s.pace(s.calls, "/calls")
			runs++
			tenant := fmt.Sprintf("t%d", runs)
			s.bulk(s.jobs(tenant, jobs, ""))
			s.wait(tenant, jobs, 60*time.Second)
			calls := slices.DeleteFunc(s.log(), func(call sandbox.Call) bool { return call.Tenant != tenant })
			s.once(calls, jobs)
			at := times(calls, everyCall)
			r.Law(tenant, at, rate, 1)
			if !testing.Short() {
				b.ReportMetric(r.Used(tenant, at, rate, 0.99), "used")
			}
		})
	}
}

func TestFarOverTheLimitWithOneAttempt(t *testing.T) {
	t.Parallel()
	const jobs = 500
	s := newStage(t, perTenant("100/s"))
	s.worker()
	s.bulk(s.jobs("acme", jobs, `,"max_attempts":1`))
	s.wait("", jobs, 30*time.Second)
	s.once(s.log(), jobs)
	if n := s.redis.Client().ZCard(t.Context(), "asynq:{webhook}:archived").Val(); n != 0 {
		t.Errorf("%d jobs were archived", n)
	}
}

func TestAttemptsAtAReceiverThatFails(t *testing.T) {
	t.Parallel()
	const jobs, attempts = 20, 3
	s := newStage(t, perTenant("500/s"))
	s.order("/fail?n=1000000&status=500")
	s.worker("HEADGATE_BREAKER_FAILURES=0") // or the receiver is down, and attempts are spared
	s.bulk(s.jobs("acme", jobs, fmt.Sprintf(`,"max_attempts":%d`, attempts)))
	archived := func() int64 { return s.redis.Client().ZCard(t.Context(), "asynq:{webhook}:archived").Val() }
	s.until(30*time.Second, "all jobs are archived", func() bool { return archived() == jobs })
	seen, keys := map[string][]string{}, map[string]map[string]bool{}
	for _, call := range s.log() {
		seen[call.Job] = append(seen[call.Job], call.Attempt)
		if keys[call.Job] == nil {
			keys[call.Job] = map[string]bool{}
		}
		keys[call.Job][call.Key] = true
	}
	if len(seen) != jobs {
		t.Errorf("%d jobs were called", len(seen))
	}
	for job, list := range seen {
		if strings.Join(list, " ") != "1 2 3" || len(keys[job]) != 1 {
			t.Errorf("job %s: attempts %v with %d idempotency keys", job, list, len(keys[job]))
		}
	}
}

// TestMail: jobs from a file through a real Redis to an SMTP server.
func TestMail(t *testing.T) {
	const jobs, rate = 300, 50
	pacer.Measure(t, func(t *testing.T, r *pacer.Run) {
		s := newStage(t, strings.ReplaceAll(perTenant("50/s"), "webhook", "email"))
		s.run = r
		s.pace("smtp://"+s.smtp, "/mails")
		s.worker("HEADGATE_SMTP_ADDR="+s.smtp, "HEADGATE_SMTP_TLS=none")
		var lines strings.Builder
		for i := range jobs {
			fmt.Fprintf(&lines, `{"kind":"email","tenant":"acme","payload":{"from":"a@acme.example","to":"you@example.com","subject":"%d","text":"hello"}}`+"\n", i)
		}
		s.bulk(lines.String())
		s.until(20*time.Second, "all mails are there", func() bool { return s.received("/mails", "") >= jobs })
		mails := s.mails()
		s.once(mails, jobs)
		s.run.Used("acme", times(mails, everyCall), rate, 0.98) // six seconds: three slots are 0.01
		s.run.Law("acme", times(mails, everyCall), rate, 1)
	})
}
