package queue

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/conformance"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// comes says that so many jobs of a tenant come at a moment.
type comes struct {
	at     time.Duration
	tenant string
	n      int
}

// atRandom returns jobs of tenants that come at random moments, at a rate in all.
func atRandom(seed uint64, tenants int, rate float64, length time.Duration) (load []comes) {
	random := rand.New(rand.NewPCG(seed, 0))
	for at := 0.0; ; {
		if at += random.ExpFloat64() / rate; at >= length.Seconds() {
			return load
		}
		// Of each tenant come twice as many as of the next.
		tenant := min(int(random.ExpFloat64()/0.7), tenants-1)
		load = append(load, comes{time.Duration(at * 1e9), string(rune('a' + tenant)), 1})
	}
}

// play lets jobs come to a queue with limits, and tries others when all have gone. It returns also what was recorded.
func play(t *testing.T, load []comes, set, proposed limits.Set) (inspect.Trial, []comes) {
	t.Helper()
	all := 0
	for _, c := range load {
		all += c.n
	}
	r := startRig(t, all, set, nil)
	r.served(t)
	r.run(t)
	began := time.Now().Truncate(time.Second).Add(time.Second) // windows of the clock are the same in each run
	for _, c := range load {
		time.Sleep(time.Until(began.Add(c.at)))
		r.enqueue(t, c.tenant, c.n)
	}
	r.wait(t)
	proposed.Queues = map[string]limits.Queue{r.queue: proposed.Queues[""]}
	var trial inspect.Trial
	until(t, "its calls are counted", func() bool {
		var err error
		trial, err = inspect.Try(t.Context(), r.server.Client(), r.queue, proposed, inspect.TrialQuery{N: 100})
		if err != nil {
			t.Fatal(err)
		}
		return trial.Jobs == all
	})
	arrivals, err := conformance.ReadArrivals(t.Context(), r.server.Client(), r.queue)
	if err != nil {
		t.Fatal(err)
	}
	var recorded []comes
	for _, c := range arrivals.Calls {
		came := time.UnixMilli(c.Came()).Sub(began)
		recorded = append(recorded, comes{came, store.Unescape(arrivals.Lanes[c.Lane].Tenant), 1})
	}
	slices.SortStableFunc(recorded, func(a, b comes) int { return cmp.Compare(a.at, b.at) })
	return trial, recorded
}

// TestTimedTry: a trial says how jobs wait under limits, those in force and others, whether their load was made or is what
// a queue recorded.
func TestTimedTry(t *testing.T) {
	t.Parallel()
	bursts := perTenant(20)
	bursts.Burst = 10
	// Who of several gets a slot may depend on less than a millisecond, and moves all behind it by a slot of their limit.
	// So the loads at random have slots that are short beside what a trial may be off by.
	var batches []comes
	for i := range 12 {
		batches = append(batches, comes{time.Duration(i) * 250 * time.Millisecond, string(rune('a' + i%5)), 10 + 7*i%30})
	}
	tests := map[string]struct {
		load            []comes
		replay          bool // what a queue recorded when this load came
		inForce, others []limits.Limit
	}{
		"batches under limits per tenant": {batches, false, []limits.Limit{bursts}, []limits.Limit{perTenant(60)}},
		"random ones under a shared limit": {
			atRandom(1, 8, 260, 3*time.Second), false, []limits.Limit{sharedBy(200), perTenant(60)}, []limits.Limit{sharedBy(140), perTenant(100)},
		},
		"a replay of what was recorded": {
			atRandom(3, 7, 220, 3*time.Second), true, []limits.Limit{sharedBy(180), perTenant(80)}, []limits.Limit{sharedBy(140), perTenant(60)},
		},
		"windows": {
			atRandom(2, 6, 90, 3*time.Second), false,
			[]limits.Limit{windowOf("quota", 4, 200*time.Millisecond, "tenant"), slidingOf("all", 16, 400*time.Millisecond)},
			[]limits.Limit{windowOf("quota", 3, 200*time.Millisecond, "tenant"), {Name: "log", Algorithm: throttle.SlidingWindowLog, Rate: throttle.PerSecond(50)}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			measured(t, func(t *testing.T, run *pacer.Run) {
				load := test.load
				if test.replay {
					_, load = play(t, load, counted(perTenant(90)), counted())
				}
				was, _ := play(t, load, counted(test.inForce...), counted(test.others...))
				real, _ := play(t, load, counted(test.others...), counted(test.inForce...))
				like := func(what string, of inspect.Trial, model, measured inspect.Waiting) {
					t.Helper()
					t.Logf("%s: %+v in the model, %+v measured", what, model, measured)
					for _, p := range []struct {
						name            string
						model, measured time.Duration
					}{{"p50", model.P50, measured.P50}, {"p95", model.P95, measured.P95}, {"p99", model.P99, measured.P99}} {
						run.Most(what+": "+p.name+" is off by", of.From, of.To, (p.model - p.measured).Abs(), max(p.measured/20, 50*time.Millisecond))
					}
				}
				like("limits in force", was, was.InForce.Waiting, was.Measured)
				like("proposed limits", real, was.Proposed.Waiting, real.Measured)
			})
		})
	}
}

// TestTriedOnce: a job that the provider throttles is one job, which came once.
func TestTriedOnce(t *testing.T) {
	set := counted()
	q := set.Queues[""]
	var calls atomic.Int64
	r := startRecord(t, redistest.Any(t), q, func(context.Context, Running) error {
		if calls.Add(1) <= 3 {
			return throttled{time.Millisecond}
		}
		return nil
	})
	r.add(t, Job{})
	until(t, "four calls are counted", func() bool {
		trial, err := inspect.Try(t.Context(), r.client, r.queue, limits.Set{Queues: map[string]limits.Queue{r.queue: q}}, inspect.TrialQuery{N: 1})
		if err != nil {
			t.Fatal(err)
		}
		if trial.Calls == 4 && trial.Jobs != 1 {
			t.Fatalf("of %d calls, %d are the first of a job", trial.Calls, trial.Jobs)
		}
		return trial.Calls == 4
	})
}
