package queue

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestNoSlotBehindTheHorizon: the next permit of a shared limit is near, but a job needs
// several permits, so its slot is far. It waits in its lane.
func TestNoSlotBehindTheHorizon(t *testing.T) {
	shared := sharedBy(10)
	shared.Algorithm, shared.Burst = throttle.TokenBucket, 5
	r := startRig(t, -1, limitsOf(shared), nil)
	five := func(job *Job) { job.Cost = 5 }
	first := r.add(t, five)
	r.add(t, five)
	r.round(t, r.dispatcher())
	r.round(t, r.dispatcher())
	if ids := r.server.Client().LRange(t.Context(), asynqwire.Key(r.queue, "active"), 0, -1).Val(); !slices.Equal(ids, []string{first}) {
		t.Errorf("%v were released; want %s, and the other in half a second", ids, first)
	}
}

// TestThrottledStopsTheBucket: a provider's pause stops the bucket, which starts with one
// permit afterwards. A shorter pause does not shorten it.
func TestThrottledStopsTheBucket(t *testing.T) {
	limit := perTenant(1000)
	limit.Burst = 100
	r := startRig(t, -1, limitsOf(limit), nil)
	r.answer = func(_ context.Context, job Running) error { return throttled{time.Hour} }
	r.run(t)
	r.add(t, nil)
	bucket := func() string { return r.server.Client().Get(t.Context(), store.Key(r.queue, "b:tenant:a")).Val() }
	until(t, "the bucket is paused", func() bool { return strings.Contains(bucket(), " !") })
	r.stop()
	before := bucket()
	r.script(t, `pause_all(lane_limits('a;kind=call', clock()).all, clock(), clock() + 1000000, 'shorter') return 1`)
	if after := bucket(); !strings.HasSuffix(after, before[strings.Index(before, "!"):]) {
		t.Errorf("a pause of a second made %q of %q", after, before)
	}
}

// TestSlotTexts: a stored slot is three or four numbers that are valid times.
func TestSlotTexts(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	for text, good := range map[string]bool{
		"1 2 3": true, "0 0 9007199254740992": true, "99999999999999999 2 3": false, "1 99999999999999999 3": false, "1 2 99999999999999999": false, "1 2": false, "": false,
		"1 2 3 4": true, "1 2 3 ": false, "1 2 3 x": false, "1 2 3 4 5": false, "1 2 3 99999999999999999": false,
	} {
		got := r.script(t, `return {slot_read(ARGV[2])}`, text)
		if refused := strings.Contains(got, "is no slot"); refused == good {
			t.Errorf("%q is read as %s", text, got)
		}
	}
}

// TestBlockedLaneIsAskedAtTheEndOfItsOverride: a concurrency limit is lowered until a time.
// A lane that waits for a permit is looked at again then.
func TestBlockedLaneIsAskedAtTheEndOfItsOverride(t *testing.T) {
	r := startRig(t, -1, limitsOf(inFlight(5, "tenant")), nil)
	client := r.server.Client()
	one := int64(1)
	ends := time.Now().Add(time.Hour)
	if err := operate.SetOverride(t.Context(), client, r.queue, "a", "x", operate.Override{Change: limits.Change{Concurrency: &one}, Until: ends, Actor: "ann", Reason: "why"}); err != nil {
		t.Fatal(err)
	}
	r.enqueue(t, "a", 3)
	r.round(t, r.dispatcher())
	r.round(t, r.dispatcher())
	at := time.UnixMicro(int64(client.ZScore(t.Context(), store.Key(r.queue, "waiting"), r.lane("a")).Val()))
	if n := client.LLen(t.Context(), asynqwire.Key(r.queue, "active")).Val(); n != 1 || at.Sub(ends).Abs() > time.Second {
		t.Errorf("%d went; the lane is asked again at %v; want that at the end of the override, %v", n, at, ends)
	}
}
