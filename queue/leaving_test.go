package queue

import (
	"testing"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/operate"
)

// TestOnTime: a call leaves in its slot, or within a few ms after its end, by both clocks.
func TestOnTime(t *testing.T) {
	now, redis := boottime.Now(), time.Now().UnixMicro()
	g := &gate{clock: &redisClock{}}
	g.clock.observe(redis, now, now)
	at := func(from time.Duration) slot {
		return slot{latest: now + from, latestMicros: redis + from.Microseconds()}
	}
	forward := at(time.Minute) // by the boot clock; Redis's was set forward since
	forward.latestMicros -= time.Hour.Microseconds()
	back := at(time.Minute)
	back.latestMicros += time.Hour.Microseconds()
	for what, test := range map[string]struct {
		slot          slot
		onTime, ahead bool
	}{
		"no end": {slot{}, true, false}, "in a minute": {at(time.Minute), true, true}, "10 ms ago": {at(-10 * time.Millisecond), false, false},
		"by Redis's clock an hour ago": {forward, false, false}, "by Redis's clock in an hour": {back, true, false},
	} {
		if got := g.clock.onTime(test.slot); got != test.onTime {
			t.Errorf("a slot that ends %s: on time is %v", what, got)
		}
		if got := g.ahead(test.slot); got != test.ahead {
			t.Errorf("a slot that ends %s: ahead is %v", what, got)
		}
	}
}

// TestNoCallWhilePaused: no call leaves while any of its scopes is paused, except the probe
// of a hold.
func TestNoCallWhilePaused(t *testing.T) {
	job := &Running{Kind: "call", Tenant: "a", attributes: "endpoint=x;"}
	for scope, held := range map[string]bool{
		"*": false, "a": false, "k:call": false, "a:call": true, "a:call;a": true, "e:a;x": true, "h:x": true,
	} {
		g := &gate{clock: &redisClock{}, pauses: &pauses{}}
		g.pauses.add(scope, g.clock.now(), time.Hour)
		probe := *job
		probe.Probe = true
		if !g.paused(job) || g.paused(&probe) == held {
			t.Errorf("pause of %s: a job waits: %v, a probe: %v", scope, g.paused(job), g.paused(&probe))
		}
	}
	g := &gate{clock: &redisClock{}, pauses: &pauses{}}
	g.pauses.add("b", g.clock.now(), time.Hour)
	if g.paused(job) {
		t.Error("a job waits for another tenant's pause")
	}
}

// TestPlacesForQuietTenants: the last quarter of a worker's places is not given to jobs
// whose slots are still to come.
func TestPlacesForQuietTenants(t *testing.T) {
	r := startRig(t, -1, limitsOf(perTenant(10)), nil)
	r.enqueue(t, "busy", 3) // one now, the others in 100 and 200 ms
	d := r.dispatcher()     // of 100 places
	if _, err := d.round(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	if n := r.server.Client().LLen(t.Context(), asynqwire.Key(r.queue, "active")).Val(); n != 1 {
		t.Errorf("%d were released into the last 20 places; want the one that may go at once", n)
	}
}

// TestScopeOfAFailure: a failure holds back the smallest scope that it is about.
func TestScopeOfAFailure(t *testing.T) {
	job := &Running{Kind: "call", Tenant: "a", attributes: "endpoint=x;"}
	for want, h := range map[string]hold{
		"*": {who: ofAccount}, "a": {who: ofTenant}, "a:call": {who: ofAccount, sign: "+"}, "a:call;a": {who: ofTenant, sign: "="}, "e:a;x": {who: ofEndpoint, sign: "!"},
	} {
		if got := job.scope(h); got != want {
			t.Errorf("%+v holds %s; want %s", h, got, want)
		}
	}
	job.attributes = ""
	if got := job.scope(hold{who: ofEndpoint, sign: "+"}); got != "a:call;a" {
		t.Errorf("without an endpoint it holds %s", got)
	}
}

// TestRoundFollowsPauses: after a round of dispatch the worker knows pauses of other workers.
func TestRoundFollowsPauses(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	if _, err := operate.PauseJobs(t.Context(), r.server.Client(), r.queue, inspect.Scope{Tenant: "a"}, time.Time{}, ann); err != nil {
		t.Fatal(err)
	}
	d := r.dispatcher()
	r.round(t, d)
	if now := d.clock.now(); !d.pauses.holds(now, "a") || d.pauses.holds(now, "b") {
		t.Errorf("it knows the pause: %v; and another tenant is paused: %v", d.pauses.holds(now, "a"), d.pauses.holds(now, "b"))
	}
}
