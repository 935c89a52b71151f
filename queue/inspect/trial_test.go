package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/arrivals"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// shown returns a waiting as "P50 P95 MAX".
func shown(w inspect.Waiting) string {
	return fmt.Sprint(w.P50.Round(time.Millisecond), " ", w.P95.Round(time.Millisecond), " ", w.Max.Round(time.Millisecond))
}

// TestTry: each job comes again when it came, and goes when the limits of its tenant let it, those in force and those
// proposed.
func TestTry(t *testing.T) {
	t.Parallel()
	client, queue := redistest.Any(t).Client(), ""
	began := time.Now().Add(-3 * time.Hour).Truncate(24 * time.Hour).Add(13*time.Hour + 500*time.Microsecond)
	came := func(second float64) time.Time { return began.Add(time.Duration(second * 1e9)) }
	var calls []arrivals.Call
	batch := func(tenant string, at float64, n int, took string) {
		for i := range n {
			calls = append(calls, arrivals.Call{Tenant: tenant, Came: came(at), Waited: time.Duration(i) * 100 * time.Millisecond, Took: took})
		}
	}
	bucket := func(name string, count, burst int64, edit func(*limits.Limit)) limits.Limit {
		l := limits.Limit{Name: name, Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(count), Burst: burst, Per: []string{"tenant"}}
		if edit != nil {
			edit(&l)
		}
		return l
	}
	two := throttle.PerSecond(2)
	file := func(q limits.Queue, tenants map[string]limits.Tenant) limits.Set {
		q.Kinds = []string{"call"}
		for name, own := range tenants {
			own.Limits = map[string]map[string]limits.Change{queue: own.Limits[""]}
			tenants[name] = own
		}
		return limits.Set{Queues: map[string]limits.Queue{queue: q}, Tenants: tenants}
	}
	slower := func(rate throttle.Rate) map[string]map[string]limits.Change {
		return map[string]map[string]limits.Change{"": {"tenant": {Rate: &rate}}} // file knows the queue
	}
	tests := map[string]struct {
		calls            func()
		inForce          limits.Queue
		tenants          map[string]limits.Tenant
		override         *limits.Change // of the tenant "a b"
		proposed         limits.Queue
		then             map[string]limits.Tenant
		want             []string // of each tenant: jobs, measured, in force, held by, proposed, held by
		used, held, left string
		full             string // limits that are tried at their full rate
	}{
		"a tenant's own limit": {
			calls:   func() { batch("a b", 0, 11, "") },
			inForce: limits.Queue{Limits: []limits.Limit{bucket("tenant", 10, 1, nil)}}, proposed: limits.Queue{Limits: []limits.Limit{bucket("tenant", 1, 1, nil)}},
			want: []string{"a b: 11, 500ms 1s 1s, 500ms 1s 1s by tenant, 5s 10s 10s by tenant"}, used: "NaN NaN", held: "1s 10s",
		},
		"plans, weights and overrides": {
			calls:   func() { batch("a b", 0, 5, ""); batch("b", 0, 5, ""); batch("c", 0, 5, "") },
			inForce: limits.Queue{Limits: []limits.Limit{bucket("tenant", 10, 1, nil)}}, tenants: map[string]limits.Tenant{"b": {Limits: slower(two)}},
			override: &limits.Change{Rate: &two},
			proposed: limits.Queue{Limits: []limits.Limit{bucket("tenant", 5, 3, nil)}}, then: map[string]limits.Tenant{"c": {Limits: slower(throttle.PerSecond(1))}},
			want: []string{
				"c: 5, 200ms 400ms 400ms, 200ms 400ms 400ms by tenant, 0s 2s 2s by tenant",
				"b: 5, 200ms 400ms 400ms, 1s 2s 2s by tenant, 0s 400ms 400ms by tenant",
				"a b: 5, 200ms 400ms 400ms, 1s 2s 2s by tenant, 0s 1s 1s by tenant",
			}, used: "NaN NaN", held: "4.4s 3.4s",
		},
		"a limit that all share, by weight": {
			calls:    func() { batch("a b", 0, 6, ""); batch("b", 0, 6, "") },
			inForce:  limits.Queue{Limits: []limits.Limit{bucket("all", 10, 1, func(l *limits.Limit) { l.Per = nil })}},
			proposed: limits.Queue{Limits: []limits.Limit{bucket("all", 10, 1, func(l *limits.Limit) { l.Per = nil })}},
			then:     map[string]limits.Tenant{"b": {Weight: 1000}},
			want: []string{
				"b: 6, 200ms 500ms 500ms, 500ms 1.1s 1.1s by all, 300ms 600ms 600ms by all",
				"a b: 6, 200ms 500ms 500ms, 400ms 1s 1s by all, 800ms 1.1s 1.1s by all",
			}, used: "1 1", held: "*",
		},
		"a slot that is given stays with its job": {
			calls:    func() { batch("a b", 0, 5, ""); batch("b", 0.05, 1, "") },
			inForce:  limits.Queue{Limits: []limits.Limit{bucket("all", 10, 1, func(l *limits.Limit) { l.Per = nil })}},
			proposed: limits.Queue{Limits: []limits.Limit{bucket("all", 10, 1, func(l *limits.Limit) { l.Per = nil })}},
			want: []string{
				"a b: 5, 200ms 400ms 400ms, 300ms 500ms 500ms by all, 300ms 500ms 500ms by all",
				"b: 1, 0s 0s 0s, 150ms 150ms 150ms by all, 150ms 150ms 150ms by all",
			}, used: "1 1", held: "*",
		},
		"units, calls without a job, retries and what the model leaves out": {
			calls: func() {
				batch("a b", 0, 3, "2;tokens=300;tokens=900")
				calls = append(calls, arrivals.Call{Tenant: "a b", Direct: true, Came: came(0), Waited: -1, Took: "1;tokens=100"},
					arrivals.Call{Tenant: "a b", Direct: true, Came: came(0.001), Waited: -1, Took: "-1;tokens=100"},
					arrivals.Call{Tenant: "a b", Came: came(0.5), Waited: -1, Took: "1"})
			},
			inForce: limits.Queue{Limits: []limits.Limit{
				bucket("tokens", 300, 300, func(l *limits.Limit) { l.Unit = "tokens" }),
				{Name: "flight", Algorithm: throttle.Concurrency, Concurrency: 1},
			}},
			proposed: limits.Queue{Limits: []limits.Limit{
				bucket("jobs", 1, 1, func(l *limits.Limit) { l.For = limits.Jobs }),
			}},
			want: []string{"a b: 3, 100ms 200ms 200ms, 1s 2s 2s by tokens, 1s 2s 2s by jobs"}, used: "NaN NaN NaN", held: "2.333s 0s 3s", left: "flight",
		},
		"ramps and adaptive limits": {
			calls: func() { batch("a b", 0, 11, "") },
			inForce: limits.Queue{Limits: []limits.Limit{bucket("ramp", 10, 1, func(l *limits.Limit) {
				l.Ramp = &limits.Ramp{From: throttle.PerSecond(1), Over: 24 * time.Hour}
			})}},
			proposed: limits.Queue{Limits: []limits.Limit{bucket("tenant", 5, 1, func(l *limits.Limit) { l.Adaptive = true })}},
			want:     []string{"a b: 11, 500ms 1s 1s, 500ms 1s 1s by ramp, 1s 2s 2s by tenant"}, used: "NaN NaN", held: "1s 2s", full: "ramp tenant",
		},
		"send windows and quotas": {
			calls: func() { batch("a b", 0, 4, "") },
			proposed: limits.Queue{
				SendWindows: map[string]sendwindow.Window{limits.AllKinds: must(t, "13:30-14:00 UTC")},
				Limits:      []limits.Limit{{Name: "day", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 3, Period: 24 * time.Hour}, Location: time.UTC}},
			},
			want: []string{"a b: 4, 100ms 300ms 300ms, 0s 0s 0s by -, 30m0s 24h30m0s 24h30m0s by day"}, used: "0", held: "*",
		},
	}
	for name, test := range tests {
		queue, calls = redistest.Queue(t), nil
		test.calls()
		if err := arrivals.Put(t.Context(), client, queue, calls...); err != nil {
			t.Fatal(err)
		}
		if err := operate.Publish(t.Context(), client, file(test.inForce, test.tenants)); err != nil {
			t.Fatal(err)
		}
		if test.override != nil {
			if err := operate.SetOverride(t.Context(), client, queue, "a b", "tenant", operate.Override{Change: *test.override, Actor: "ann", Reason: "test"}); err != nil {
				t.Fatal(err)
			}
		}
		trial, err := inspect.Try(t.Context(), client, queue, file(test.proposed, test.then), inspect.TrialQuery{N: 10})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got, used, held []string
		for _, of := range trial.Tenants {
			or := func(name string) string {
				if name == "" {
					return "-"
				}
				return name
			}
			got = append(got, fmt.Sprintf("%s: %d, %s, %s by %s, %s by %s", of.Tenant, of.Jobs, shown(of.Measured), shown(of.InForce), or(of.HeldBy), shown(of.Proposed), or(of.WouldHoldBy)))
		}
		for _, all := range [][]inspect.TrialLimit{trial.InForce.Limits, trial.Proposed.Limits} {
			for _, l := range all {
				used, held = append(used, fmt.Sprint(math.Round(l.Used))), append(held, l.Held.Round(time.Millisecond).String())
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
		if text := strings.Join(used, " "); text != test.used {
			t.Errorf("%s: used %s, want %s", name, text, test.used)
		}
		if text := strings.Join(held, " "); test.held != "*" && text != test.held {
			t.Errorf("%s: held %s, want %s", name, text, test.held)
		}
		if left := strings.Join(trial.NotCounted, " "); left != test.left {
			t.Errorf("%s: the model leaves out %q, want %q", name, left, test.left)
		}
		if full := strings.Join(trial.FullRate, " "); full != test.full {
			t.Errorf("%s: tried at the full rate: %q, want %q", name, full, test.full)
		}
		if trial.Calls != len(calls) || trial.Total != len(test.want) {
			t.Errorf("%s: %d calls of %d, %d tenants", name, trial.Calls, len(calls), trial.Total)
		}
	}

	set := file(limits.Queue{}, nil)
	trial, err := inspect.Try(t.Context(), client, queue, set, inspect.TrialQuery{N: 1, Tenant: "nobody"})
	if err != nil || len(trial.Tenants) != 0 || trial.Jobs == 0 {
		t.Errorf("of a tenant without calls: %+v, %v", trial, err)
	}
	for field, query := range map[string]struct {
		queue string
		inspect.TrialQuery
	}{
		"n":      {queue, inspect.TrialQuery{N: inspect.MaxTrial + 1}},
		"tenant": {queue, inspect.TrialQuery{N: 1, Tenant: "a\x00"}},
		"queue":  {"other", inspect.TrialQuery{N: 1}},
	} {
		_, err := inspect.Try(t.Context(), client, query.queue, set, query.TrialQuery)
		if invalid, ok := errors.AsType[*validation.Error](err); !ok || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestTryStops: a trial that nobody waits for any more stops, also once it has read everything.
func TestTryStops(t *testing.T) {
	t.Parallel()
	r := newRig(t, perTenant(10))
	if err := arrivals.Put(t.Context(), r.client, r.queue, arrivals.Call{Tenant: "a", Came: time.Now().Add(-time.Minute)}); err != nil {
		t.Fatal(err)
	}
	client := redis.NewUniversalClient(r.server.Options())
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := 0 // requests until the context is canceled
	client.AddHook(redistest.OnRequest(func(_ context.Context, _ []redis.Cmder, send func() error) error {
		err := send()
		if left--; left == 0 {
			cancel()
		}
		return err
	}))
	set := limits.Set{Queues: map[string]limits.Queue{r.queue: {}}}
	try := func() error {
		trial, err := inspect.Try(ctx, client, r.queue, set, inspect.TrialQuery{N: 1})
		if err == nil && trial.Calls != 1 {
			t.Errorf("%d calls", trial.Calls)
		}
		return err
	}
	for range 2 { // the first one also opens a connection and loads scripts
		left = 0
		if err := try(); err != nil {
			t.Fatal(err)
		}
	}
	left = -left
	if err := try(); !errors.Is(err, context.Canceled) {
		t.Errorf("after all commands of a trial its context was canceled, and it returned %v", err)
	}
}

// TestTryOfFarTooLowLimits: limits that hold jobs for years, and many tenants for longer than a duration can be.
func TestTryOfFarTooLowLimits(t *testing.T) {
	t.Parallel()
	const year = 366 * 24 * time.Hour
	low := perTenant(1)
	low.Rate = throttle.Rate{Count: 1, Period: year}
	for tenants, want := range map[int]time.Duration{3: 6 * year, 1100: 292 * 365 * 24 * time.Hour} {
		r := newRig(t, perTenant(10))
		var calls []arrivals.Call
		for i := range 3 * tenants {
			calls = append(calls, arrivals.Call{Tenant: fmt.Sprint("t", i%tenants), Came: time.Now().Add(-time.Minute)})
		}
		if err := arrivals.Put(t.Context(), r.client, r.queue, calls...); err != nil {
			t.Fatal(err)
		}
		set := limits.Set{Queues: map[string]limits.Queue{r.queue: {Limits: []limits.Limit{low}}}}
		trial, err := inspect.Try(t.Context(), r.client, r.queue, set, inspect.TrialQuery{N: 1})
		if err != nil {
			t.Fatal(err)
		}
		if held := trial.Proposed.Limits[0].Held; held < want-time.Minute || tenants == 3 && held > want {
			t.Errorf("the jobs of %d tenants are held for %v; want %v", tenants, held, want)
		}
	}
}

func must(t *testing.T, text string) sendwindow.Window {
	t.Helper()
	w, err := sendwindow.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// BenchmarkTry: a trial of a million calls of 10,000 tenants as a whole, from reading them to its answer.
func BenchmarkTry(b *testing.B) {
	const calls, tenants, day = 1_000_000, 10_000, 24 * time.Hour
	client, queue := redistest.Any(b).Client(), redistest.Queue(b)
	set := limits.Set{Queues: map[string]limits.Queue{queue: {Kinds: []string{"call"}, Limits: []limits.Limit{
		{Name: "account", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(20), Burst: 20},
		{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 600, Period: 24 * time.Hour}, Burst: 5, Per: []string{"tenant"}},
	}}}}
	if err := operate.Publish(b.Context(), client, set); err != nil {
		b.Fatal(err)
	}
	began := time.Now().Add(-day)
	all := make([]arrivals.Call, calls)
	for i := range all {
		all[i] = arrivals.Call{Tenant: fmt.Sprint("tenant-", i*7919%tenants), Came: began.Add(time.Duration(i) * (day / calls))}
	}
	if err := arrivals.Put(b.Context(), client, queue, all...); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		trial, err := inspect.Try(b.Context(), client, queue, set, inspect.TrialQuery{N: 100})
		if err != nil || trial.Jobs != calls {
			b.Fatalf("a trial of %d jobs, %v; want %d", trial.Jobs, err, calls)
		}
	}
}
