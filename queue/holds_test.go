package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// holding is a handler's error that holds back more than its job.
type holding struct {
	who         string
	length      time.Duration
	named       bool
	unreachable bool
}

func (h holding) Error() string                        { return "it answered 503" }
func (h holding) Holds() (string, time.Duration, bool) { return h.who, h.length, h.named }
func (h holding) Unreachable() bool                    { return h.unreachable }

// usedUp is a holding error that says that the job is not the cause.
type usedUp struct{ holding }

func (u usedUp) RetryAfter() time.Duration { return u.length }

func (r *rig) webhooks(t *testing.T, tenant, host string, n int) (ids []string) {
	t.Helper()
	for range n {
		ids = append(ids, r.add(t, func(job *Job) {
			job.Kind, job.Tenant, job.Payload = "webhook", tenant, map[string]string{"url": "https://" + host + "/in"}
		}))
	}
	return ids
}

// hookRig returns a rig with a webhook handler that returns answer of the job.
func hookRig(t *testing.T, limits limits.Set, edit func(*Config)) *rig {
	t.Helper()
	r := startRig(t, -1, limits, edit)
	Handle(r.worker, "webhook", func(ctx context.Context, _ json.RawMessage) error {
		r.take(ctx)
		job, _ := Current(ctx)
		return r.answer(ctx, job)
	})
	return r
}

func (r *rig) held(t *testing.T) map[string]inspect.Pause {
	t.Helper()
	pauses, err := inspect.Pauses(t.Context(), r.server.Client(), r.queue)
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]inspect.Pause{}
	for _, p := range pauses {
		held[p.Scope.String()] = p
	}
	return held
}

func (r *rig) callsOf(tenant string) []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls[tenant])
}

// another starts a second worker with the handlers of the first.
func (r *rig) another(t *testing.T) {
	t.Helper()
	worker, err := New(r.worker.config)
	if err != nil {
		t.Fatal(err)
	}
	for kind, h := range r.worker.handlers {
		worker.handlers[kind] = &handler{timeout: h.timeout, repeatUnknown: h.repeatUnknown, fn: h.fn, call: h.fn}
	}
	second := *r
	second.worker = worker
	second.run(t)
}

// TestUsedUpAccount: all workers together send one call per pause to an account that is used
// up. Meanwhile no permits are taken, no attempts are spent, and the jobs keep their order.
func TestUsedUpAccount(t *testing.T) {
	t.Parallel()
	day := limits.Limit{Name: "day", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 1000, Period: 24 * time.Hour}, Location: noon(t)}
	const jobs, pause = 30, 300 * time.Millisecond
	r := startRig(t, -1, limitsOf(day), nil)
	var up atomic.Bool
	var order []string
	var mu sync.Mutex
	r.answer = func(_ context.Context, job Running) error {
		if !up.Load() {
			return usedUp{holding{who: ofAccount, length: pause}}
		}
		mu.Lock()
		defer mu.Unlock()
		order = append(order, job.ID)
		if job.Attempt != 1 {
			t.Errorf("attempt %d", job.Attempt)
		}
		return nil
	}
	r.run(t)
	r.another(t)
	first := r.add(t, nil)
	r.seen.wait(t, "called", 1) // the others come when it is held
	until(t, "it is held", func() bool { return r.held(t)["kind call"].Tried })
	ids := []string{first}
	for range jobs - 1 {
		ids = append(ids, r.add(t, nil))
	}
	until(t, "it was tried three times", func() bool { return len(r.callsOf("a")) >= 4 })
	at := r.callsOf("a")
	for i := 1; i < len(at); i++ {
		if gap, want := at[i].Sub(at[i-1]), pause<<(i-1); gap < want {
			t.Errorf("try %d came %v after the one before it; the pause is %v", i, gap, want)
		}
	}
	used := func() float64 {
		detail, err := inspect.New(r.server.Client()).Tenant(t.Context(), r.queue, "a")
		if err != nil {
			t.Fatal(err)
		}
		return 1000 - detail.Limits[0].Level
	}
	until(t, "nothing is taken but for the tries", func() bool { return used() <= float64(len(r.callsOf("a"))) })
	up.Store(true)
	until(t, "all jobs are done", func() bool { return r.seen.outcomes(lifecycle.Done) == jobs })
	if p, still := r.held(t)["kind call"]; still {
		t.Errorf("it is still held: %+v", p)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(order) != jobs || order[0] != first {
		t.Errorf("%d jobs were done, the first is %s; want %s first of %d", len(order), order[0], first, jobs)
	}
}

// TestEndpointIsHeldAlone: an endpoint that wants no calls for a day holds only its own
// jobs, and no other jobs of its tenant or of another tenant at the same host.
func TestEndpointIsHeldAlone(t *testing.T) {
	t.Parallel()
	r := hookRig(t, limitsOf(perTenant(1000)), nil)
	var well atomic.Bool
	r.answer = func(_ context.Context, job Running) error {
		if !well.Load() && job.Tenant == "a" && store.EndpointIn(job.attributes) == "busy.example%3A443" {
			return usedUp{holding{who: ofEndpoint, length: 24 * time.Hour, named: true}}
		}
		return nil
	}
	r.run(t)
	r.webhooks(t, "a", "busy.example", 1)
	r.seen.wait(t, string(lifecycle.Throttled), 1)
	waits := r.webhooks(t, "a", "BUSY.example:443", 20)[0]
	r.webhooks(t, "a", "well.example", 20)
	r.webhooks(t, "b", "busy.example", 20)
	r.seen.wait(t, string(lifecycle.Done), 40)
	if n := r.seen.outcomes(lifecycle.Throttled); n != 1 {
		t.Errorf("the busy receiver was called %d times", n)
	}
	p := r.held(t)["endpoint busy.example:443 of tenant a"]
	if !p.Tried || p.Reason != "it answered 503" || time.Until(p.Until) < 23*time.Hour {
		t.Errorf("the hold is %+v", p)
	}
	if e := r.explain(t, waits); e.Pause == nil || !strings.Contains(e.String(), "a's webhook waits: endpoint busy.example:443 of tenant a is held back until ") {
		t.Errorf("it is explained as %v", e)
	}
	// An operator can end the hold.
	well.Store(true)
	if was, err := operate.ResumeJobs(t.Context(), r.server.Client(), r.queue, p.Scope, ann); err != nil || !was {
		t.Fatalf("ResumeJobs = %v, %v", was, err)
	}
	r.seen.wait(t, string(lifecycle.Done), 61)
}

// TestHostIsDownForAll: an endpoint to which several tenants cannot connect is held for all
// tenants, and the first call that connects ends the hold for all.
func TestHostIsDownForAll(t *testing.T) {
	t.Parallel()
	r := hookRig(t, limitsOf(perTenant(1000)), nil)
	var up atomic.Bool
	r.answer = func(context.Context, Running) error {
		if up.Load() {
			return nil
		}
		return holding{who: ofEndpoint, length: time.Second, unreachable: true}
	}
	r.run(t)
	const host = "endpoint down.example:443"
	for i, tenant := range []string{"a", "b", "c"} {
		if _, down := r.held(t)[host]; down {
			t.Fatalf("after %d tenants it is held for all", i)
		}
		r.webhooks(t, tenant, "down.example", 1)
		r.seen.wait(t, "called", i+1)
		until(t, "it is held for tenant "+tenant, func() bool { return r.held(t)[host+" of tenant "+tenant].Tried })
	}
	if !r.held(t)[host].Tried {
		t.Fatalf("it is not held for all: %v", r.held(t))
	}
	r.webhooks(t, "d", "down.example", 5)
	r.webhooks(t, "d", "well.example", 1) // its turn is after the others
	r.seen.wait(t, "called", 4)
	if n := len(r.callsOf("d")); n > 1 {
		t.Errorf("tenant d, which never called it, called it %d times", n-1)
	}
	up.Store(true)
	r.seen.wait(t, string(lifecycle.Done), 8)
	until(t, "nothing is held", func() bool { return len(r.held(t)) == 0 })
	if n := r.server.Client().Exists(t.Context(), store.Key(r.queue, "unreachable:down.example%3A443")).Val(); n != 0 {
		t.Error("the tenants that could not connect are still counted")
	}
}

// holdBack writes a hold by hand.
func (r *rig) holdBack(t *testing.T, scope string, ends time.Time, probe string) {
	t.Helper()
	text := fmt.Sprintf("%d tried 1000000 1 %s it answered 503", ends.UnixMicro(), rediskey.Escape(probe))
	_, err := store.NewScript(`pause_set(ARGV[2], ARGV[3], tonumber(ARGV[4])) return 1`).Run(t.Context(), r.server.Client(),
		store.ScriptKeys(r.queue), r.queue, scope, text, ends.Add(time.Hour).UnixMicro())
	if err != nil {
		t.Fatal(err)
	}
}

// TestOneProbe: when the time of a hold is over, one job of all held lanes goes, and another
// one only after the first has had time for its call.
func TestOneProbe(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(1000)), nil)
	for _, tenant := range []string{"a", "b", "c"} {
		r.enqueue(t, tenant, 5)
	}
	r.holdBack(t, store.AccountScope("call"), time.Now().Add(-time.Second), "-")
	d := r.dispatcher()
	d.lease = time.Hour
	if ids := r.release(t, d, 100); len(ids) != 1 {
		t.Fatalf("%d jobs were released while one tries", len(ids))
	}
	p := r.held(t)["kind call"]
	if !p.Probing || time.Until(p.Until) < 50*time.Minute {
		t.Errorf("the hold is %+v", p)
	}
	// The time for its call is over, and its outcome is unknown.
	r.holdBack(t, store.AccountScope("call"), time.Now().Add(-time.Second), "gone")
	if err := effective.Replan(t.Context(), r.server.Client(), r.queue, ""); err != nil {
		t.Fatal(err)
	}
	if ids := r.release(t, d, 100); len(ids) != 2 {
		t.Errorf("%d jobs were released; want the second probe and no more", len(ids))
	}
}

// TestProbeThatWasNotCalled: after a probe whose worker gives it back or dies, another job
// becomes the probe.
func TestProbeThatWasNotCalled(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, r *rig, id string){
		"given back": func(t *testing.T, r *rig, id string) {
			g := &gate{queue: r.queue, redis: r.server.Client(), limits: &effective.Calendars{Queue: r.queue, Redis: r.server.Client()}, onWake: func() {}, replans: newReplans()}
			q := (&Running{ID: id, Tenant: "a", Kind: "call", Probe: true, owner: "w:1"}).settled(settleKeep)
			if _, err := g.sendSettle([]settleQuestion{q}); err != nil {
				t.Fatal(err)
			}
		},
		"its worker died": func(t *testing.T, r *rig, id string) {
			n, err := store.RecoverScript.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, id, "10", "w:1", 1)
			if err != nil || n != int64(1) {
				t.Fatalf("recovered %v, %v", n, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, 0, limitsOf(), nil)
			client, ctx := r.server.Client(), t.Context()
			id := r.add(t, nil)
			client.ZRem(ctx, asynqwire.Key(r.queue, "g:a;kind=call"), id)
			client.LPush(ctx, asynqwire.Key(r.queue, "active"), id)
			client.ZAdd(ctx, asynqwire.Key(r.queue, "lease"), zOf(id, 10))
			client.HSet(ctx, asynqwire.Key(r.queue, "t:"+id), "state", "active", "hg_owner", "w:1")
			r.holdBack(t, store.AccountScope("call"), time.Now().Add(time.Hour), id)
			leave(t, r, id)
			if p := r.held(t)["kind call"]; !p.Tried || p.Probing || p.Until.After(time.Now().Add(time.Second)) {
				t.Errorf("the hold is %+v; want one that waits for the next probe", p)
			}
		})
	}
}

// TestHoldsAreForgotten: the sweep keeps a hold that waits for a probe, and removes a hold
// that had no probe for an hour.
func TestHoldsAreForgotten(t *testing.T) {
	r := startRig(t, 0, limitsOf(), nil)
	r.holdBack(t, store.AccountScope("waits"), time.Now().Add(-time.Minute), "-")
	r.holdBack(t, store.EndpointScope("a", "idle.example%3A443"), time.Now().Add(-2*time.Hour), "-")
	r.sweep(t, 1)
	if held := r.held(t); len(held) != 1 || !held["kind waits"].Tried {
		t.Errorf("held: %+v", held)
	}
}

// TestGrowingHolds: the pause doubles with each probe that fails, up to ten times the first
// pause. Calls that were in flight when the hold began do not change it.
func TestGrowingHolds(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	client := r.server.Client()
	g := &gate{queue: r.queue, redis: client, limits: &effective.Calendars{Queue: r.queue, Redis: client}, onWake: func() {}, replans: newReplans()}
	id := r.add(t, nil)
	fail := func(probe bool) time.Duration {
		t.Helper()
		client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_owner", "w:1", "state", "active")
		q := (&Running{ID: id, Tenant: "a", Kind: "call", Probe: probe, owner: "w:1"}).settled(settleFree)
		q.hold = hold{who: ofAccount, sign: "+", length: time.Minute, reason: "it answered 503"}
		if probe {
			r.tryBy(t, id)
		}
		if _, err := g.sendSettle([]settleQuestion{q}); err != nil {
			t.Fatal(err)
		}
		return time.Until(r.held(t)["kind call"].Until).Round(10 * time.Second)
	}
	for i, want := range []time.Duration{1, 1, 2, 4, 8, 10, 10} {
		if got := fail(i > 1); got != want*time.Minute {
			t.Errorf("after %d failures it is held for %v, want %v", i+1, got, want*time.Minute)
		}
	}
}

// tryBy makes a job the probe of the account's hold.
func (r *rig) tryBy(t *testing.T, id string) {
	t.Helper()
	client, field := r.server.Client(), store.AccountScope("call")
	text := client.HGet(t.Context(), store.Key(r.queue, "pauses"), field).Val()
	client.HSet(t.Context(), store.Key(r.queue, "pauses"), field, strings.Replace(text, " - ", " "+rediskey.Escape(id)+" ", 1))
}

// TestEndpointLanes: however a webhook comes into the queue, it gets the lane of its
// endpoint. Empty lanes are removed.
func TestEndpointLanes(t *testing.T) {
	t.Parallel()
	r := hookRig(t, limitsOf(), nil)
	r.answer = func(context.Context, Running) error { return nil }
	r.webhooks(t, "a", "Hooks.Example.", 1)
	r.add(t, func(job *Job) {
		job.Kind, job.Payload = "webhook", json.RawMessage(`{"url":"http://[2001:db8::1]/x"}`)
	})
	r.add(t, func(job *Job) { job.Kind, job.Payload = "webhook", json.RawMessage(`{"url":7}`) })
	r.add(t, func(job *Job) { job.Payload = json.RawMessage(`{"url":"https://hooks.example"}`) }) // of another kind
	lanes := r.server.Client().SMembers(t.Context(), asynqwire.Key(r.queue, "groups")).Val()
	slices.Sort(lanes)
	want := []string{"a;endpoint=%5B2001%3Adb8%3A%3A1%5D%3A80;kind=webhook", "a;endpoint=hooks.example%3A443;kind=webhook", "a;kind=call", "a;kind=webhook"}
	if !slices.Equal(lanes, want) {
		t.Errorf("lanes %q, want %q", lanes, want)
	}
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 4)
	until(t, "the lanes are forgotten", func() bool {
		return r.server.Client().SCard(t.Context(), asynqwire.Key(r.queue, "groups")).Val() == 0
	})
	_, err := r.client.Enqueue(t.Context(), Job{Kind: "call", Queue: r.queue, Tenant: "a", Attributes: map[string]string{"endpoint": "x"}})
	if err == nil {
		t.Error("an attribute of that name was taken")
	}
}

// TestCountsOfEndpointsAreMended: jobs that asynq's tools deleted from an endpoint's lane
// soon no longer count as waiting.
func TestCountsOfEndpointsAreMended(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	ids := append(r.webhooks(t, "a", "one.example", 3), r.webhooks(t, "a", "two.example", 2)...)
	r.add(t, nil)
	if err := asynq.NewInspectorFromRedisClient(r.server.Client()).DeleteTask(r.queue, ids[0]); err != nil {
		t.Fatal(err)
	}
	r.sweep(t, 1)
	for _, of := range []string{"a", "*"} {
		if n := countsOf(t, r.server.Client(), r.queue, of).Waiting; n != 5 {
			t.Errorf("the backlog of %s is %d, want 5", of, n)
		}
	}
}

// TestPauseThatEndsSoon: a lane whose pause ends within the horizon does not keep other lanes
// from later slots.
func TestPauseThatEndsSoon(t *testing.T) {
	t.Parallel()
	slow := limits.Limit{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: 20 * time.Second}, Per: []string{"tenant"}}
	r := startRig(t, 0, limitsOf(slow), nil)
	r.enqueue(t, "a", 1)
	r.enqueue(t, "b", 2)
	if _, err := operate.PauseJobs(t.Context(), r.server.Client(), r.queue, inspect.Scope{Tenant: "a"}, time.Now().Add(10*time.Second), ann); err != nil {
		t.Fatal(err)
	}
	reply, err := store.DispatchScript.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, 100, 100, time.Minute.Microseconds(), pickup.Microseconds(), "", ",call,", time.Minute.Microseconds(), "w", 1, 0, maxAlone, leadLasts.Milliseconds(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if jobs := reply.([]any)[10].([]any); len(jobs) != 2 {
		t.Errorf("%d jobs were handed over; want the two of tenant b", len(jobs))
	}
}
