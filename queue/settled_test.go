package queue

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// settles settles a job of tenant a directly, as the run "w:1" unless another run is given.
func (r *rig) settles(t *testing.T, q settleQuestion) settled {
	t.Helper()
	q.owner, q.tenant, q.kind = cmp.Or(q.owner, "w:1"), "a", "call"
	client := r.server.Client()
	g := &gate{queue: r.queue, redis: client, limits: &effective.Calendars{Queue: r.queue, Redis: client}, onWake: func() {}, replans: newReplans()}
	answers, err := g.sendSettle([]settleQuestion{q})
	if err != nil {
		t.Fatal(err)
	}
	return answers[0]
}

// giveBack sends jobs back to their lanes, with their slots and permits, like a worker that
// stops.
func (r *rig) giveBack(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if !r.settles(t, settleQuestion{id: id, owner: r.field(t, id, "hg_owner"), outcome: "keep", to: "lane"}).mine {
			t.Fatalf("job %s has no owner", id)
		}
	}
}

// slotOf asks for a slot directly, and returns the answer and the reason.
func (r *rig) slotOf(t *testing.T, id string) string {
	t.Helper()
	return r.slotUntil(t, id, store.Endless)
}

// slotUntil asks as one who waits until a moment of Redis's clock, in µs.
func (r *rig) slotUntil(t *testing.T, id string, until int64) string {
	t.Helper()
	reply, err := store.SlotScript.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, (2 * store.Horizon).Microseconds(), inHand.Microseconds(), "",
		id, "w:1", "a", "", "call", 1, "", time.Minute.Microseconds(), until)
	if err != nil {
		t.Fatal(err)
	}
	values := reply.([]any)
	if len(values) == 6 {
		return fmt.Sprint(values[0], " ", values[4])
	}
	return fmt.Sprint(values[0])
}

// TestSettledJobIsNobodys: a job whose call failed keeps its place in its lane and has no
// owner. Its end frees its key only while the key is its own.
func TestSettledJobIsNobodys(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	for _, outcome := range []settlement{settleFree, settleUnsure, settleRefused} {
		id := r.add(t, nil)
		r.hold(t, id, "w:1") // its place is 77
		q := settleQuestion{id: id, outcome: outcome, to: "lane"}
		if !r.settles(t, q).mine || r.settles(t, q).mine {
			t.Errorf("%s: a run settles its job once", outcome)
		}
		place := client.ZScore(t.Context(), asynqwire.Key(r.queue, "g:"+r.lane("a")), id).Val()
		if slot, state := r.field(t, id, "hg_slot"), r.field(t, id, "state"); slot != "0 0 77" || state != "aggregating" || place != 77 {
			t.Errorf("%s: its slot is %q, it is %s and stands at %v; want its old place, 77", outcome, slot, state, place)
		}
	}
	id := r.add(t, func(job *Job) { job.Key, job.KeyUntil = "k", Ended })
	r.hold(t, id, "w:1")
	lock := store.Key(r.queue, "unique:"+r.field(t, id, "hg_unique"))
	if holder := client.Get(t.Context(), lock).Val(); holder != id {
		t.Fatalf("its key is held by %q", holder)
	}
	client.Set(t.Context(), lock, "another", 0)
	r.settles(t, settleQuestion{id: id, outcome: "done", to: "gone"})
	if holder := client.Get(t.Context(), lock).Val(); holder != "another" {
		t.Errorf("the key of another job is held by %q after the end of this one", holder)
	}
	waits := r.add(t, func(job *Job) { job.Key, job.KeyUntil = "other", Ended })
	lock = store.Key(r.queue, "unique:"+r.field(t, waits, "hg_unique"))
	client.Set(t.Context(), lock, "another", 0)
	if tally, err := operate.Apply(t.Context(), client, r.queue, operate.Cancel, operate.Filter{ID: waits}, ann, nil); err != nil || tally.Jobs != 1 {
		t.Fatalf("%+v, %v", tally, err)
	}
	if holder := client.Get(t.Context(), lock).Val(); holder != "another" {
		t.Errorf("the key of another job is held by %q after this one was cancelled", holder)
	}
}

// TestMissedSlotMoves: a missed slot is not lost if no later slot was given.
func TestMissedSlotMoves(t *testing.T) {
	once := perTenant(1)
	once.Rate = throttle.Rate{Count: 1, Period: time.Hour}
	r := startRig(t, -1, limitsOf(once), nil)
	client := r.server.Client()
	id := r.add(t, nil)
	r.round(t, r.dispatcher())
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "state", "active", "hg_owner", "w:1")
	if got := r.slotOf(t, id); got != "go" {
		t.Errorf("the only slot of an hour was missed: %s; want it to move to now", got)
	}
}

// TestMissedSlotsOfABurst: jobs that all miss their slots of a slow limit lose none of them, although later ones were
// given, and get none more.
func TestMissedSlotsOfABurst(t *testing.T) {
	slow := perTenant(1)
	slow.Rate, slow.Burst = throttle.Rate{Count: 1, Period: time.Hour}, 3
	r := startRig(t, -1, limitsOf(slow), nil)
	client := r.server.Client()
	ids := []string{r.add(t, nil), r.add(t, nil), r.add(t, nil)}
	r.round(t, r.dispatcher())
	for range 2 {
		for _, id := range ids {
			client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "state", "active", "hg_owner", "w:1")
			if got := r.slotOf(t, id); got != "go" {
				t.Errorf("one of three slots was missed: %s; want it to move to now", got)
			}
		}
	}
	another := r.add(t, nil)
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+another), "state", "active", "hg_owner", "w:1")
	if got := r.slotOf(t, another); got != "park limit" {
		t.Errorf("the fourth of three in an hour: %s", got)
	}
}

// TestSlotWaitsForAPause: a held job whose tenant is paused goes back to its lane with the
// reason, and holds no permit there. A job of another run is not changed.
func TestSlotWaitsForAPause(t *testing.T) {
	r := startRig(t, -1, limitsOf(inFlight(1, "tenant")), nil)
	client := r.server.Client()
	id := r.add(t, nil)
	r.round(t, r.dispatcher())
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "state", "active", "hg_owner", "x:1")
	client.HSet(t.Context(), store.Key(r.queue, "pauses"), "a", fmt.Sprint(time.Now().Add(time.Hour).UnixMicro(), " operator why"))
	if got := r.slotOf(t, id); got != "gone" || r.field(t, id, "hg_permits") == "" {
		t.Errorf("of another run: %s, permits %q", got, r.field(t, id, "hg_permits"))
	}
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_owner", "w:1")
	if got := r.slotOf(t, id); got != "park pause" {
		t.Errorf("%s; want it to wait for the end of the pause", got)
	}
	if held, n := r.field(t, id, "hg_permits"), client.ZCard(t.Context(), store.Key(r.queue, "permits:x:a")).Val(); held != "" || n != 0 {
		t.Errorf("it holds %q, and %d permits are taken", held, n)
	}
}

// TestLateRequestForASlot: a request that arrives when nobody waits for it any more takes nothing from the call that goes
// by the answer to the next one.
func TestLateRequestForASlot(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(inFlight(1, "tenant"), perTenant(10)), nil)
	client := r.server.Client()
	id := r.add(t, nil)
	r.round(t, r.dispatcher())
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "state", "active", "hg_owner", "w:1")
	if got := r.slotOf(t, id); got != "go" {
		t.Fatalf("it has its slot: %s", got)
	}
	all := func() string {
		return fmt.Sprint(client.HGetAll(t.Context(), asynqwire.Key(r.queue, "t:"+id)).Val(), client.Get(t.Context(), store.Key(r.queue, "b:tenant:a")).Val(),
			client.ZRange(t.Context(), store.Key(r.queue, "permits:x:a"), 0, -1).Val())
	}
	before := all()
	client.HSet(t.Context(), store.Key(r.queue, "pauses"), "a", fmt.Sprint(time.Now().Add(time.Hour).UnixMicro(), " operator why"))
	if got := r.slotUntil(t, id, 1); got != "late" || all() != before {
		t.Errorf("%s, and it changed\n%s to\n%s", got, before, all())
	}
	// A worker says until when it waits.
	g := &gate{queue: r.queue, redis: client, clock: &redisClock{redis: client, queue: r.queue}, limits: &effective.Calendars{Queue: r.queue, Redis: client}}
	g.clock.observe(time.Now().Add(-time.Hour).UnixMicro(), boottime.Now(), boottime.Now())
	job := &Running{ID: id, owner: "w:1"}
	if _, err := g.askSlot(t.Context(), job, 0); err != errLate {
		t.Errorf("a worker whose clock is an hour behind: %v", err)
	}
	if slot, err := g.askSlot(t.Context(), job, 0); err != nil || slot.answer != answerPark {
		t.Errorf("when it knows the time: %v, %v", slot.answer, err)
	}
}

// TestRecoverLeavesOtherRuns: a job is recovered only from the run that was seen.
func TestRecoverLeavesOtherRuns(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	for _, seen := range [][2]string{{"10", "x:1"}, {"11", "w:1"}, {"", "w:1"}} {
		n, err := store.RecoverScript.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, id, seen[0], seen[1], 1)
		if err != nil || n != int64(0) || r.field(t, id, "state") != "active" {
			t.Errorf("seen with lease %q and owner %q: %v, %v; it is %s", seen[0], seen[1], n, err, r.field(t, id, "state"))
		}
	}
}

// TestRecoverFreesPermits: a recovered job holds no permit.
func TestRecoverFreesPermits(t *testing.T) {
	r := startRig(t, -1, limitsOf(inFlight(1, "tenant")), nil)
	client := r.server.Client()
	id := r.add(t, nil)
	r.round(t, r.dispatcher())
	if client.ZCard(t.Context(), store.Key(r.queue, "permits:x:a")).Val() != 1 {
		t.Fatal("it was released without a permit")
	}
	r.hold(t, id, "w:1")
	r.recover(t, id, "10", true)
	if n := client.ZCard(t.Context(), store.Key(r.queue, "permits:x:a")).Val(); n != 0 || r.field(t, id, "hg_permits") != "" {
		t.Errorf("%d permits are taken, and it says %q", n, r.field(t, id, "hg_permits"))
	}
}

// TestEndsThatMayWait: only settlements of jobs that are done wait for a larger batch, and
// only if no other job waits for them, such as for a permit.
func TestEndsThatMayWait(t *testing.T) {
	// end returns the settlement of a job that is handed over and may ask for a slot.
	end := func(asks bool, limits ...limits.Limit) settleQuestion {
		t.Helper()
		r := startRig(t, -1, limitsOf(limits...), nil)
		var got []handed
		d := r.dispatcher()
		d.hand = func(jobs []handed) { got = jobs }
		id := r.add(t, nil)
		if _, err := d.round(t.Context(), d.room()); err != nil || len(got) != 1 {
			t.Fatalf("%+v was handed over, %v", got, err)
		}
		job, grant := newRunning(r.queue, id, asynqwire.Message{Kind: "call"}), got[0].grant
		job.owner = got[0].owner
		if asks {
			g, ok := &gate{queue: r.queue, redis: d.redis, limits: d.limits, clock: d.clock}, false
			if grant, ok = g.newSlot(t.Context(), job, 0); !ok || grant.answer != "go" {
				t.Fatalf("%+v, %v", grant, ok)
			}
		}
		job.permits = grant.permits
		return job.settled(settleDone)
	}
	inFlight := limits.Limit{Name: "in-flight", Algorithm: throttle.Concurrency, Concurrency: 1, Per: []string{"tenant"}}
	plain := end(false, perTenant(100))
	metered, failed := plain, plain
	metered.actual, failed.outcome = "tokens=1;", "free"
	for name, test := range map[string]struct {
		q     settleQuestion
		taken int64
		want  bool
	}{
		"done":                            {plain, 5, true},
		"done, with a slot that it asked": {end(true, perTenant(100)), 5, true},
		"done, and the worker wants room": {plain, 6, false},
		"gives back tokens":               {metered, 0, false},
		"failed":                          {failed, 0, false},
		"has a permit":                    {end(false, inFlight), 0, false},
		"has a permit, and asked a slot":  {end(true, inFlight), 0, false},
	} {
		g := &gate{capacity: newCapacity(10)}
		g.capacity.taken.Store(test.taken)
		if got := g.mayWait(test.q); got != test.want {
			t.Errorf("%s: it may wait: %t", name, got)
		}
	}
}

// TestSlotOfADamagedJob: a job with a slot that cannot be read gets none, and says so.
func TestSlotOfADamagedJob(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	r.server.Client().HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_slot", "tomorrow")
	if answer := r.slotOf(t, id); answer != "gone" {
		t.Errorf("the answer is %s", answer)
	}
	if text := faultsOf(t, r); text != "job "+id+`: "tomorrow" is no slot` {
		t.Errorf("faults: %s", text)
	}
}

// TestSlotOfAnotherLane: a job in a lane whose name does not have its receiver, as those of asynq's own client have, is
// under the limits of its receiver.
func TestSlotOfAnotherLane(t *testing.T) {
	t.Parallel()
	limit := limits.Limit{Name: "endpoint", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Per: []string{limits.EndpointAttribute}}
	r := startRig(t, -1, limitsOf(limit), nil)
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	reply, err := store.SlotScript.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, time.Second.Microseconds(), inHand.Microseconds(), "",
		id, "w:1", "a", ";endpoint=h:1", "call", 1, "", time.Minute.Microseconds(), store.Endless)
	if err != nil || reply.([]any)[0] != "go" {
		t.Fatal(reply, err)
	}
	if group := r.field(t, id, "group"); !strings.Contains(group, "endpoint=h:1") {
		t.Errorf("its lane is %q", group)
	}
	if keys := redistest.Keys(t, r.server.Client(), store.Key(r.queue, "b:endpoint:*")); len(keys) != 1 || !strings.Contains(keys[0], "h") {
		t.Errorf("it took of the buckets %q", keys)
	}
}

// TestSettledNowhere: a job whose worker names a place that there is not stays with it.
func TestSettledNowhere(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	if r.settles(t, settleQuestion{id: id, owner: "w:1", outcome: settleFree, to: "nowhere"}).mine {
		t.Error("it was settled")
	}
	if state := r.field(t, id, "state"); state != "active" {
		t.Errorf("it is %s", state)
	}
	if text := faultsOf(t, r); text != "job "+id+`: "nowhere" is no place for a job` {
		t.Errorf("faults: %s", text)
	}
}

// TestSlotOfALease: a job that missed slots gets one under a shared limit only where its permits are still leased at the
// end of the slot, and takes them.
func TestSlotOfALease(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]*redistest.Redis{"redis-server": redistest.Any(t), "miniredis": redistest.Of(redistest.Embedded(t))} {
		t.Run(name, func(t *testing.T) { slotOfALease(t, server) })
	}
}

func slotOfALease(t *testing.T, server *redistest.Redis) {
	t.Helper()
	l := newLeased(t, server, sharedLimit(throttle.LeakyBucket, 10, 0))
	home := l.layout.Home("a")
	bucket := store.Key(home, "b:account:")
	for permits, want := range map[int64]string{1: "park", 40: "go"} {
		id := (&rig{client: NewClient(l.client), queue: "q"}).add(t, nil)
		(&rig{server: server, queue: home}).hold(t, id, "w:1")
		from := time.Now().Add(100 * time.Millisecond).UnixMicro()
		text := fmt.Sprintf("l 1 1 0 1000000 0 0 0 100000 1 0 %d 0 %d 0 %d 0", from, from, from+permits*100_000)
		if err := l.client.Set(t.Context(), bucket, text, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		reply, err := store.SlotScript.Run(t.Context(), l.client, store.ScriptKeys(home), home, (2 * store.Horizon).Microseconds(), store.Horizon.Microseconds(), "",
			id, "w:1", "a", "", "call", 1, "", time.Minute.Microseconds(), store.Endless)
		if err != nil || reply.([]any)[0] != want {
			t.Fatalf("%d permits: %v, %v; want %s", permits, reply, err, want)
		}
		if now := l.client.Get(t.Context(), bucket).Val(); (now != text) != (want == "go") {
			t.Errorf("%d permits: %s: the bucket is %s, and was %s", permits, want, now, text)
		}
	}
}
