package e2e

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/stage"
	"github.com/headgate/headgate/internal/test/testlong"
	"github.com/headgate/headgate/queue"
)

func TestTwoWorkersOneTenant(t *testing.T) {
	t.Parallel()
	const jobs, rate = 1500, 100
	stage.Measured(t, stage.PerTenant("100/s"), func(s *stage.Stage) {
		s.Worker()
		s.Worker()
		s.Bulk(s.Jobs("acme", jobs, ""))
		s.Wait("", jobs, 60*time.Second)
		calls := s.Log()
		s.Once(calls, jobs)
		at := stage.Times(calls, stage.EveryCall)
		s.Run.Used("acme", at, rate, 1/1.01)
		s.Run.Law("acme", at, rate, 1)
	})
}

func TestTwoHundredTenants(t *testing.T) {
	const tenants, each, rate = 200, 25, 2.5
	stage.Measured(t, stage.PerTenant("5/2s"), func(s *stage.Stage) {
		w := s.Worker()
		var lines strings.Builder
		for i := range tenants {
			lines.WriteString(s.Jobs(fmt.Sprintf("t%d", i), each, ""))
		}
		s.Bulk(lines.String())
		s.Wait("", tenants*each, 60*time.Second)
		calls := s.Log()
		s.Once(calls, tenants*each)
		for i := range tenants {
			tenant := fmt.Sprintf("t%d", i)
			at := stage.Times(calls, stage.OfTenant(tenant))
			s.Run.Used(tenant, at, rate, 0.99)
			s.Run.Law(tenant, at, rate, 1)
		}
		s.T.Logf("slots missed: %s", w.Missed(s.T))
	})
}

func TestNoisyNeighbour(t *testing.T) {
	const rate = 50
	stage.Measured(t, stage.PerTenant("50/s"), func(s *stage.Stage) {
		s.Worker()
		s.Bulk(s.Jobs("noisy", 50_000, ""))
		s.Wait("noisy", 50, 10*time.Second)
		quiet := make([]queue.Job, 100)
		for i := range quiet {
			quiet[i] = queue.Job{Kind: "webhook", Tenant: "quiet", Payload: map[string]string{"url": s.Calls + "/"}}
		}
		began := time.Now()
		// By this process: another one would take a part of the time to start.
		for _, result := range queue.NewClient(s.Redis.Client()).EnqueueMany(s.T.Context(), quiet) {
			if result.Err != nil {
				s.T.Fatal(result.Err)
			}
		}
		s.Wait("quiet", len(quiet), 10*time.Second)
		calls := s.Log()
		at := stage.Times(calls, stage.OfTenant("quiet"))
		s.Run.Took("100 jobs at 50/s beside 50,000 of another tenant", began, slices.MaxFunc(at, time.Time.Compare), 2200*time.Millisecond)
		s.Run.Law("quiet", at, rate, 1)
		s.Run.Law("noisy", stage.Times(calls, stage.OfTenant("noisy")), rate, 1)
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
	const tenants, each, rate, perTenant = 10, 300, 300, 100
	stage.Measured(t, fmt.Sprintf(shared, "100/s"), func(s *stage.Stage) {
		var lines strings.Builder
		for i := range tenants {
			lines.WriteString(s.Jobs(fmt.Sprintf("t%d", i), each, ""))
		}
		s.Bulk(lines.String())
		s.Worker()
		s.Wait("", tenants*each, 60*time.Second)
		calls := s.Log()
		s.Once(calls, tenants*each)
		at := stage.Times(calls, stage.EveryCall)
		s.Run.Used("account", at, rate, 0.99)
		s.Run.Law("account", at, rate, 1)
		for i := range tenants {
			tenant := fmt.Sprintf("t%d", i)
			s.Run.Law(tenant, stage.Times(calls, stage.OfTenant(tenant)), perTenant, 1)
		}
		// While all had a backlog: the first 80 % of the calls.
		shares, most := make([]float64, tenants), calls[:len(calls)*8/10]
		for _, call := range most {
			var i int
			if _, err := fmt.Sscanf(call.Tenant, "t%d", &i); err == nil {
				shares[i]++
			}
		}
		for i, n := range shares {
			s.Run.Number(fmt.Sprintf("calls of t%d that are not its part, in percent", i), calls[0].At, most[len(most)-1].At, percentOff(n, float64(len(most))/tenants), 5)
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
			stage.Measured(t, fmt.Sprintf(shared, "300/s"), func(s *stage.Stage) {
				s.Worker()
				s.Bulk(s.Jobs(order[0], jobs[order[0]], ""))
				s.Wait(order[0], 200, 20*time.Second)
				s.Bulk(s.Jobs(order[1], jobs[order[1]], ""))
				s.Wait(order[1], 200, 20*time.Second)
				calls := s.Log()
				later := stage.Times(calls, stage.OfTenant(order[1]))[:200]
				s.Run.Used(order[1]+", who comes later", later, rate/2, 0.97)
				all := stage.Times(calls, stage.EveryCall)
				s.Run.Used("account", all, rate, 0.98)
				s.Run.Law("account", all, rate, 1)
				// Of the calls in between each has half.
				var shares [2]float64
				for _, call := range calls {
					if !call.At.Before(later[0]) && !call.At.After(later[len(later)-1]) {
						shares[slices.Index(order[:], call.Tenant)]++
					}
				}
				for i, n := range shares {
					s.Run.Number("calls of "+order[i]+" that are not its half, in percent", later[0], later[len(later)-1], percentOff(n, (shares[0]+shares[1])/2), 5)
				}
			})
		})
	}
}

// percentOff returns by how many percent a number differs from what is due.
func percentOff(n, due float64) float64 { return 100 * math.Abs(n/due-1) }

// TestWeights: a shared limit is divided by weight, also if the tenants' own limits are a little slower, and have a burst.
func TestWeights(t *testing.T) {
	t.Parallel()
	const rate = 300
	for own, burst := range map[int]int{rate: 1, 280: 5} {
		t.Run(fmt.Sprint(own), func(t *testing.T) {
			stage.Measured(t, fmt.Sprintf(shared, fmt.Sprintf("%d/s, burst: %d", own, burst)), func(s *stage.Stage) {
				s.Bulk(s.Jobs("light", 1000, "") + s.Jobs("heavy", 1500, ""))
				s.Worker()
				s.Wait("", 1600, 30*time.Second)
				calls := s.Log()
				n := map[string]int{}
				for _, call := range calls[:1600] {
					n[call.Tenant]++
				}
				for tenant, part := range map[string]float64{"light": 1. / 4, "heavy": 3. / 4} {
					s.Run.Number("calls of "+tenant+" that are not its part, in percent", calls[0].At, calls[1599].At, percentOff(float64(n[tenant]), 1600*part), 2)
				}
				s.Run.Law("account", stage.Times(calls, stage.EveryCall), rate, 1)
				for tenant := range n {
					s.Run.Law(tenant, stage.Times(calls, stage.OfTenant(tenant)), float64(own), burst)
				}
			})
		})
	}
}

// TestScheduledJobs: jobs that come due faster than their limit lets them go leave at it,
// none before its time.
func TestScheduledJobs(t *testing.T) {
	t.Parallel()
	const jobs, rate, perSecond = 1000, 100, 200
	stage.Measured(t, stage.PerTenant("100/s"), func(s *stage.Stage) {
		s.Worker()
		due := time.Now().Add(4 * time.Second).Truncate(time.Second)
		var lines strings.Builder
		for i, line := range slices.Collect(strings.Lines(s.Jobs("acme", jobs, `,"at":"DUE"`))) {
			lines.WriteString(strings.Replace(line, "DUE", due.Add(time.Duration(i/perSecond)*time.Second).Format(time.RFC3339), 1))
		}
		s.Bulk(lines.String())
		if now := time.Now(); now.After(due) {
			s.T.Fatalf("enqueueing took until %v after the first were due", now.Sub(due))
		}
		s.Wait("", jobs, 60*time.Second)
		calls := s.Log()
		s.Once(calls, jobs)
		for _, call := range calls {
			var i int
			if _, err := fmt.Sscanf(call.Job, "acme:acme-%d", &i); err != nil {
				s.T.Fatalf("job %q: %v", call.Job, err)
			}
			if at := due.Add(time.Duration(i/perSecond) * time.Second); call.At.Before(at) {
				s.T.Errorf("%s went %v before its time", call.Job, at.Sub(call.At))
			}
		}
		at := stage.Times(calls, stage.EveryCall)
		s.Run.Took("the first of them after it was due", due, slices.MinFunc(at, time.Time.Compare), 200*time.Millisecond)
		s.Run.Used("acme", at, rate, 0.99)
		s.Run.Law("acme", at, rate, 1)
	})
}

// TestTwoThousandASecond: 2,000 jobs of one tenant at 2,000/s keep the law, and in make test-long 20,000 jobs use 0.99 of
// their limit. A worker, Redis and the receiver take half of two cores for it.
func TestTwoThousandASecond(t *testing.T) {
	jobs := 2000
	if testlong.On() {
		jobs = 20_000
	}
	const rate = 2000
	stage.Measured(t, stage.PerTenant("2000/s"), func(s *stage.Stage) {
		s.Worker()
		s.Bulk(s.Jobs("acme", jobs, ""))
		s.Wait("acme", jobs, 60*time.Second)
		calls := slices.DeleteFunc(s.Log(), func(call sandbox.Call) bool { return call.Tenant != "acme" })
		s.Once(calls, jobs)
		at := stage.Times(calls, stage.EveryCall)
		s.Run.Law("acme", at, rate, 1)
		if testlong.On() {
			s.Run.Used("acme", at, rate, 0.99)
		}
	})
}

func TestFarOverTheLimitWithOneAttempt(t *testing.T) {
	t.Parallel()
	const jobs, rate = 500, 100
	stage.Measured(t, stage.PerTenant("100/s"), func(s *stage.Stage) {
		s.Worker()
		s.Bulk(s.Jobs("acme", jobs, `,"max_attempts":1`))
		s.Wait("", jobs, 30*time.Second)
		calls := s.Log()
		s.Once(calls, jobs)
		s.Run.Law("acme", stage.Times(calls, stage.EveryCall), rate, 1)
		s.AllEnd(30 * time.Second)
	})
}

func TestAttemptsAtAReceiverThatFails(t *testing.T) {
	t.Parallel()
	const jobs, attempts = 20, 3
	s := stage.New(t, stage.PerTenant("500/s"))
	s.Order("/fail?n=1000000&status=500")
	s.Worker("HEADGATE_BREAKER_FAILURES=0") // or the receiver is down, and attempts are spared
	s.Bulk(s.Jobs("acme", jobs, fmt.Sprintf(`,"max_attempts":%d`, attempts)))
	archived := func() int64 { return s.Redis.Client().ZCard(t.Context(), "asynq:{webhook}:archived").Val() }
	s.Until(30*time.Second, "all jobs are archived", func() bool { return archived() == jobs })
	seen, keys := map[string][]string{}, map[string]map[string]bool{}
	for _, call := range s.Log() {
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
		s := stage.New(t, strings.ReplaceAll(stage.PerTenant("50/s"), "webhook", "email"))
		s.Run = r
		s.Pace("smtp://"+s.SMTP, "/mails")
		s.Worker("HEADGATE_SMTP_ADDR="+s.SMTP, "HEADGATE_SMTP_TLS=none")
		var lines strings.Builder
		for i := range jobs {
			fmt.Fprintf(&lines, `{"kind":"email","tenant":"acme","payload":{"from":"a@acme.example","to":"you@example.com","subject":"%d","text":"hello"}}`+"\n", i)
		}
		s.Bulk(lines.String())
		s.Until(20*time.Second, "all mails are there", func() bool { return s.Received("/mails", "") >= jobs })
		mails := s.Mails()
		s.Once(mails, jobs)
		s.Run.Used("acme", stage.Times(mails, stage.EveryCall), rate, 0.98) // six seconds: three slots are 0.01
		s.Run.Law("acme", stage.Times(mails, stage.EveryCall), rate, 1)
	})
}
