package queue

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/limitmetrics"
)

// sightings keeps what a rig's client reports of its direct calls.
type sightings struct {
	t     *testing.T
	queue string
	all   []throttle.Observation
}

func (r *rig) observed(t *testing.T) *sightings {
	s := &sightings{t: t, queue: r.queue}
	r.client.Observe(func(seen throttle.Observation) { s.all = append(s.all, seen) })
	return s
}

// one returns the only observation since the last call, and checks which limits were asked, without the queue's name.
func (s *sightings) one(limits ...string) throttle.Observation {
	s.t.Helper()
	if len(s.all) != 1 {
		s.t.Fatalf("%d observations: %+v; want one", len(s.all), s.all)
	}
	seen := s.all[0]
	s.all = nil
	want := []string{s.queue}
	for _, limit := range limits {
		want = append(want, s.queue+"/"+limit)
	}
	if !slices.Equal(seen.Limits, want) || seen.Took <= 0 || seen.Unlimited || seen.Decision.Local {
		s.t.Errorf("observed %+v; want limits %q", seen, want)
	}
	return seen
}

// is checks what an observation without an error says of a limit.
func (s *sightings) is(seen throttle.Observation, allowed bool, limit string, quota, left int64) {
	s.t.Helper()
	if limit = strings.TrimSuffix(s.queue+"/"+limit, "/"); seen.Err != nil || seen.Decision.Allowed != allowed || seen.Decision.Limit != limit || !allowed && seen.Waited != 0 || seen.Decision.Quota != quota || seen.Decision.Remaining != left {
		s.t.Errorf("observed %+v; want allowed %t by limit %s, %d of %d left", seen, allowed, limit, left, quota)
	}
}

// TestObserveTakes: each call of Take is observed once, with the limit that refused it, or else the one of which the
// fewest permits are left.
func TestObserveTakes(t *testing.T) {
	t.Parallel()
	places := limits.Limit{Name: "places", Algorithm: throttle.Concurrency, Concurrency: 2, Per: []string{"tenant"}}
	tokens := perHour("tokens", 9)
	tokens.Unit = "tokens"
	r := startRig(t, 0, limitsOf(perHour("tenant", 4), tokens, places), nil)
	s := r.observed(t)
	take := func(job Job) (*Permit, *RefusedError) {
		t.Helper()
		p, err := r.client.Take(t.Context(), job)
		refused, ok := errors.AsType[*RefusedError](err)
		if err != nil && !ok {
			t.Fatal(err)
		}
		return p, refused
	}
	first, _ := take(r.call("a"))
	if seen := s.one("tenant", "places"); seen.Waited != 0 || seen.Decision.At.IsZero() || seen.Decision.RetryAfter != 0 {
		t.Errorf("a call that went at once: %+v", seen)
	} else {
		s.is(seen, true, "places", 2, 1)
	}
	metered := r.call("a")
	metered.Costs = map[string]int64{"tokens": 8}
	second, _ := take(metered)
	s.is(s.one("tenant", "tokens", "places"), true, "places", 2, 0)
	other := r.call("b")
	other.Costs = map[string]int64{"tokens": 9}
	third, _ := take(other)
	s.is(s.one("tenant", "tokens", "places"), true, "tokens", 9, 0)
	if _, refused := take(r.call("a")); refused == nil || refused.Limit != "places" {
		t.Fatalf("refused: %v", refused)
	}
	s.is(s.one("tenant", "places"), false, "places", 2, 0)
	for _, p := range []*Permit{first, second, third} {
		if err := p.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_, refused := take(metered)
	if seen := s.one("tenant", "tokens", "places"); refused == nil || seen.Decision.RetryAfter != refused.RetryAfter || seen.Decision.ResetAfter < 7*time.Hour || !seen.Decision.At.IsZero() {
		t.Errorf("refused: %v, observed %+v", refused, seen)
	} else {
		s.is(seen, false, "tokens", 9, 1)
	}
	if _, err := operate.PauseJobs(t.Context(), r.server.Client(), r.queue, inspect.Scope{Tenant: "a"}, time.Now().Add(time.Hour), operate.Operator{Actor: "ann", Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	take(r.call("a"))
	s.is(s.one("tenant", "places"), false, "", 0, 0)
}

// TestObserveWhatIsUnlimited: a call of a queue without limits counts for the queue.
func TestObserveWhatIsUnlimited(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	s := r.observed(t)
	if _, err := r.client.Take(t.Context(), r.call("a")); err != nil {
		t.Fatal(err)
	}
	s.is(s.one(), true, "", 0, 0)
}

// TestObserveWaits: a call that waits is observed when it goes, with how long it waited and without how long Redis
// took, whether it gets a slot that is ahead or has to ask again; or as refused when its time is over.
func TestObserveWaits(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{60 * time.Millisecond, 300 * time.Millisecond} {
		own := limits.Limit{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: every}, Per: []string{"tenant"}}
		r := startRig(t, 0, limitsOf(own), nil)
		r.client.direct.pickup = 0 // as in programs: the next slot of 60 ms is near
		s := r.observed(t)
		calls := 0
		for waited := false; !waited; { // on a machine that stalls, a call comes after its slot
			began := time.Now()
			_, err := r.client.Wait(t.Context(), r.call("a"), hang)
			took := time.Since(began)
			calls++
			seen := s.one("tenant")
			if err != nil || calls == 100 || seen.Waited+seen.Took > took {
				t.Fatalf("one in %v: call %d took %v: %v, observed %+v", every, calls, took, err, seen)
			}
			s.is(seen, true, "tenant", 1, 0)
			waited = seen.Waited > every*2/3
		}
		until(t, "a call that is refused", func() bool {
			_, err := r.client.Wait(t.Context(), r.call("a"), time.Millisecond)
			seen := s.one("tenant")
			if s.is(seen, err == nil, "tenant", 1, 0); err != nil && seen.Decision.Delay <= time.Millisecond {
				t.Errorf("a call that was refused: %+v", seen)
			}
			return err != nil
		})
	}
}

// TestObserveGivingUp: a call whose deadline comes while it waits was refused; one that is cancelled was not, nor one
// that nobody could admit.
func TestObserveGivingUp(t *testing.T) {
	t.Parallel()
	one := limits.Limit{Name: "one", Algorithm: throttle.Concurrency, Concurrency: 1}
	r := startRig(t, 0, limitsOf(perHour("tenant", 2), one), nil)
	s := r.observed(t)
	first, err := r.client.Take(t.Context(), r.call("a"))
	if err != nil {
		t.Fatal(err)
	}
	s.is(s.one("tenant", "one"), true, "one", 1, 0)
	until(t, "a call whose deadline comes while it waits", func() bool { // on a machine that stalls, it comes before
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := r.client.Wait(ctx, r.call("b"), hang); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if len(s.all) == 1 && s.all[0].Err != nil {
			s.all = nil
			return false
		}
		s.is(s.one("tenant", "one"), false, "one", 1, 0)
		return true
	})
	cancelled, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	costly := r.call("a")
	costly.Cost = 3
	for name, ask := range map[string]func() error{
		"cancelled":  func() error { _, err := r.client.Wait(cancelled, r.call("b"), hang); return err },
		"too costly": func() error { _, err := r.client.Take(t.Context(), costly); return err },
		"invalid":    func() error { _, err := r.client.Take(t.Context(), Job{Queue: r.queue}); return err },
	} {
		if err := ask(); err == nil || len(s.all) > 0 {
			t.Errorf("%s: %v, observed %+v", name, err, s.all)
		}
	}
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestObserveTransport: calls of a Transport are observed before they are sent.
func TestObserveTransport(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perHour("tenant", 1)), nil)
	s := r.observed(t)
	_, get := r.transported(t, func(http.ResponseWriter, *http.Request) {
		if len(s.all) != 1 {
			t.Errorf("%d observations before the call", len(s.all))
		}
	})
	response, err := get("a")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	s.is(s.one("tenant"), true, "tenant", 1, 0)
	if _, err := get("a"); err == nil {
		t.Fatal("two calls of one")
	}
	s.is(s.one("tenant"), false, "tenant", 1, 0)
}

// TestObserveWithoutRedis: calls that got no answer are counted for their queue, and all of them by limitmetrics.
func TestObserveWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := startRigAt(t, server.Redis(), 0, limitsOf(perHour("tenant", 1)), nil)
	registry := prometheus.NewPedanticRegistry()
	s, counts := r.observed(t), limitmetrics.New(registry)
	keep := r.client.direct.observe
	r.client.Observe(func(seen throttle.Observation) { counts.Observe(seen); keep(seen) })
	take := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.client.Take(ctx, r.call("a"))
		return err
	}
	if err := take(); err != nil {
		t.Fatal(err)
	}
	s.one("tenant")
	if err := take(); err == nil {
		t.Fatal("two calls of one")
	}
	s.one("tenant")
	server.Kill()
	err := take()
	if seen := s.one(); err == nil || !errors.Is(seen.Err, err) || seen.Decision != (throttle.Decision{}) || seen.Waited != 0 {
		t.Errorf("without Redis: %v, observed %+v", err, seen)
	}
	want := strings.ReplaceAll(`
# HELP headgate_limiter_decisions_total Calls, by outcome: allowed, refused by this limit, unknown because Redis did not answer, or unlimited, which went without an answer.
# TYPE headgate_limiter_decisions_total counter
headgate_limiter_decisions_total{decision="allowed",limit="QUEUE"} 1
headgate_limiter_decisions_total{decision="allowed",limit="QUEUE/tenant"} 1
headgate_limiter_decisions_total{decision="refused",limit="QUEUE"} 0
headgate_limiter_decisions_total{decision="refused",limit="QUEUE/tenant"} 1
headgate_limiter_decisions_total{decision="unknown",limit="QUEUE"} 1
headgate_limiter_decisions_total{decision="unknown",limit="QUEUE/tenant"} 0
headgate_limiter_decisions_total{decision="unlimited",limit="QUEUE"} 0
headgate_limiter_decisions_total{decision="unlimited",limit="QUEUE/tenant"} 0
`, "QUEUE", r.queue)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "headgate_limiter_decisions_total"); err != nil {
		t.Error(err)
	}
}
