package queue

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/operate"
)

// TestDamagedLanesHoldUpNobody: lanes with damaged jobs, more of them than a round looks at,
// do not block an intact lane behind them.
func TestDamagedLanesHoldUpNobody(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(sharedBy(1000)), nil)
	client := r.server.Client()
	for i := range 80 {
		id := r.add(t, func(job *Job) { job.Tenant = fmt.Sprint("damaged", i) })
		client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_slot", "damaged")
	}
	good := r.add(t, func(job *Job) { job.Tenant = "good" })
	d := r.dispatcher()
	var went []string
	rounds := 0
	for ; rounds < 20; rounds++ {
		wait, err := d.round(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if wait > 0 {
			break
		}
	}
	went = client.LRange(t.Context(), asynqwire.Key(r.queue, "active"), 0, -1).Val()
	if !slices.Equal(went, []string{good}) || rounds == 20 {
		t.Errorf("%v went in %d rounds; want %s, and then nothing to do", went, rounds, good)
	}
}

// TestLowIsNotStarvedUnderAConcurrency: a lane that waits for a permit after each job still
// counts how many jobs of high priority went.
func TestLowIsNotStarvedUnderAConcurrency(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(inFlight(1, "tenant")), nil)
	low := r.add(t, func(job *Job) { job.Priority = Low })
	for range 20 {
		r.add(t, func(job *Job) { job.Priority = High })
	}
	var order []string
	r.answer = func(_ context.Context, job Running) error {
		order = append(order, job.ID) // one at a time
		return nil
	}
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 21)
	r.stop()
	if at := slices.Index(order, low); at != 9 {
		t.Errorf("the low one went as number %d of %d; want 10", at+1, len(order))
	}
}

// TestForwardedAndExpiredAtOnce: a job whose retry time and deadline have both passed is in
// only one place.
func TestForwardedAndExpiredAtOnce(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	id := r.add(t, func(job *Job) { job.At, job.Deadline = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour) })
	past := float64(time.Now().Unix() - 10)
	client.ZAdd(t.Context(), asynqwire.Key(r.queue, "scheduled"), zOf(id, past))
	client.ZAdd(t.Context(), store.Key(r.queue, "deadlines"), zOf(id, past*1e6))
	if _, err := r.dispatcher().round(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	lane := client.ZCard(t.Context(), asynqwire.Key(r.queue, "g:"+r.lane("a"))).Val()
	active := client.LLen(t.Context(), asynqwire.Key(r.queue, "active")).Val()
	if lane+active != 1 {
		t.Errorf("it stands %d times in its lane and %d times among the active", lane, active)
	}
}

// TestTaskWithoutAState: a job without a state stays in its lane.
func TestTaskWithoutAState(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	waits := r.add(t, nil)
	later := r.add(t, func(job *Job) { job.At = time.Now().Add(time.Hour) })
	client.ZAdd(t.Context(), asynqwire.Key(r.queue, "scheduled"), zOf(later, float64(time.Now().Unix()-10)))
	for _, id := range []string{waits, later} {
		client.HDel(t.Context(), asynqwire.Key(r.queue, "t:"+id), "state")
	}
	r.release(t, r.dispatcher(), 100)
	for id, set := range map[string]string{waits: "g:" + r.lane("a"), later: "scheduled"} {
		if err := client.ZScore(t.Context(), asynqwire.Key(r.queue, set), id).Err(); err != nil {
			t.Errorf("%s is not in %s any more", id, set)
		}
	}
}

// TestKeptSlotTakesAPermit: a job comes back with its slot, but the sweep has freed its
// permit meanwhile. The job takes another permit.
func TestKeptSlotTakesAPermit(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(inFlight(1, "tenant")), nil)
	client := r.server.Client()
	id := r.add(t, nil)
	now := client.Time(t.Context()).Val().UnixMicro()
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_slot", fmt.Sprintf("%d %d %d", now, now+5_000_000, now))
	r.release(t, r.dispatcher(), 100)
	if held := r.field(t, id, "hg_permits"); held == "" {
		t.Error("it went without a permit")
	}
}

// TestDamagedVirtualTime: the virtual time of fairness is not a number. No job is lost.
func TestDamagedVirtualTime(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(sharedBy(1000)), nil)
	client := r.server.Client()
	for _, field := range []string{"*", "*typical", "*clock", "*parts", "a"} {
		for _, text := range []string{"nan", "inf", "-inf", "1e300", "x"} {
			client.HSet(t.Context(), store.Key(r.queue, "vtime"), field, text)
			id, other := r.add(t, nil), r.add(t, func(job *Job) { job.Tenant = "b" })
			r.add(t, nil)
			if ids := r.release(t, r.dispatcher(), 100); !slices.Contains(ids, id) || !slices.Contains(ids, other) {
				t.Errorf("vtime %s %s: %v went; want %s and %s, too", field, text, ids, id, other)
			}
			for _, set := range []string{"ready", "waiting"} {
				if left := client.ZRangeWithScores(t.Context(), store.Key(r.queue, set), 0, -1).Val(); len(left) > 0 {
					t.Errorf("vtime %s %s: %v is left in %s", field, text, left, set)
				}
			}
			client.Del(t.Context(), store.Key(r.queue, "vtime"))
		}
	}
}

// TestPermitPassesALaneWithoutJobs: a freed permit passes over a lane whose jobs are all
// deleted or damaged.
func TestPermitPassesALaneWithoutJobs(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(client redis.UniversalClient, task string){
		"deleted": func(client redis.UniversalClient, task string) { client.Del(context.Background(), task) },
		"damaged": func(client redis.UniversalClient, task string) {
			client.HSet(context.Background(), task, "hg_slot", "x")
		},
	} {
		r := startRig(t, -1, limitsOf(inFlight(1)), nil)
		client := r.server.Client()
		d := r.dispatcher()
		first := r.add(t, nil)
		r.release(t, d, 10)
		edit(client, asynqwire.Key(r.queue, "t:"+r.add(t, func(job *Job) { job.Tenant = "b" })))
		good := r.add(t, func(job *Job) { job.Tenant = "c" })
		r.release(t, d, 10)
		// Both wait, and the permit wakes b.
		client.Del(t.Context(), store.Key(r.queue, "permits:x:"), store.Key(r.queue, "waiting"), store.Key(r.queue, "ready"))
		client.SAdd(t.Context(), store.Key(r.queue, "blocked:x:"), r.lane("c"))
		client.ZAdd(t.Context(), store.Key(r.queue, "waiting"), zOf(r.lane("b"), 1))
		if ids := r.release(t, d, 10); !slices.Equal(ids, []string{first, good}) {
			t.Errorf("%s: %v went; want %s after %s", name, ids, good, first)
		}
	}
}

// TestPermitOfALaneThatLeaves: a lane that was woken for a permit loses its only job before its turn, and another one
// gets the permit.
func TestPermitOfALaneThatLeaves(t *testing.T) {
	t.Parallel()
	for name, leaves := range map[string]func(r *rig, id string){
		"cancelled": func(r *rig, id string) {
			tally, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.Cancel, operate.Filter{ID: id}, operate.Operator{Actor: "ann", Reason: "a test"}, nil)
			if err != nil || tally.Jobs != 1 {
				t.Error(tally, err)
			}
		},
		"expired": func(r *rig, id string) {
			r.server.Client().ZAdd(t.Context(), store.Key(r.queue, "deadlines"), zOf(id, 1))
		},
	} {
		r := startRig(t, -1, limitsOf(inFlight(1)), nil)
		client, d := r.server.Client(), r.dispatcher()
		r.add(t, nil)
		r.release(t, d, 10)
		id := r.add(t, func(job *Job) { job.Tenant = "b" })
		r.release(t, d, 10)
		other := r.add(t, func(job *Job) { job.Tenant = "c" })
		r.release(t, d, 10)
		// Both wait, and the permit wakes b.
		client.Del(t.Context(), store.Key(r.queue, "permits:x:"), store.Key(r.queue, "waiting"), store.Key(r.queue, "ready"))
		client.SRem(t.Context(), store.Key(r.queue, "blocked:x:"), r.lane("b"))
		client.ZAdd(t.Context(), store.Key(r.queue, "waiting"), zOf(r.lane("b"), float64(time.Now().Add(time.Hour).UnixMicro())))
		leaves(r, id)
		if ids := r.release(t, d, 10); !slices.Contains(ids, other) {
			t.Errorf("%s: %v are active; want %s among them", name, ids, other)
		}
	}
}

// TestKindsWithoutEnd: with any number of kinds that nobody serves, a worker only asks for
// its own.
func TestKindsWithoutEnd(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	mine := r.add(t, nil)
	d := r.dispatcher()
	d.kinds = ",x,"
	r.release(t, d, 10)
	if there, err := client.SIsMember(t.Context(), store.Key(r.queue, "unserved"), "call").Result(); err != nil || !there {
		t.Fatalf("the kind is unserved: %v, %v", there, err)
	}
	for i := range 1000 {
		client.SAdd(t.Context(), store.Key(r.queue, "unserved"), fmt.Sprint("kind", i))
	}
	d.kinds = ",call,other,"
	if ids := r.release(t, d, 10); !slices.Equal(ids, []string{mine}) {
		t.Errorf("%v went; want %s", ids, mine)
	}
}

// TestAllThatWasPutAside: the jobs of any number of tenants that no worker served go without a pause when one does.
func TestAllThatWasPutAside(t *testing.T) {
	t.Parallel()
	const tenants = 30
	r := startRig(t, -1, limitsOf(), nil)
	for i := range tenants {
		r.add(t, func(job *Job) { job.Tenant = fmt.Sprint("t", i) })
	}
	d := r.dispatcher()
	d.kinds = ",x,"
	for aside := store.Key(r.queue, "unserved:call"); r.server.Client().SCard(t.Context(), aside).Val() < tenants; {
		r.round(t, d)
	}
	went := 0
	d.kinds, d.hand = ",call,", func(jobs []handed) { went += len(jobs) }
	for next := time.Duration(0); next == 0; {
		var err error
		if next, err = d.round(t.Context(), 50); err != nil {
			t.Fatal(err)
		}
	}
	if went != tenants {
		t.Errorf("%d jobs of %d went, and the next round is later", went, tenants)
	}
}

// TestRecountKnowsANewKind: the sweep counts jobs of a new kind that it finds after jobs of
// another kind of the same tenant.
func TestRecountKnowsANewKind(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	for i := range 50 {
		r.add(t, func(job *Job) { job.Tenant = fmt.Sprint("t", i) })
		r.add(t, func(job *Job) { job.Tenant, job.Kind = fmt.Sprint("t", i), "new" })
	}
	r.sweep(t, 1)
	for tenant, text := range client.HGetAll(t.Context(), store.TenantsKey(r.queue)).Val() {
		if n := store.ReadCounts(text).Waiting; tenant != "*" && n != 2 || tenant == "*" && n != 100 {
			t.Errorf("%s: %d jobs wait; want 2, and 100 in all", tenant, n)
		}
	}
}

// TestDamagedLimitOfATenant: if the limits of one tenant are damaged, other tenants go on.
func TestDamagedLimitOfATenant(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`x`, `{"l":{"account":{"a":"x"}}}`, `{"l":{"account":{"a":"tb","b":1,"ahead":0}}}`, `{"l":{"tenant":{"a":"tb","b":"x"}}}`, `{"l":{"account":5}}`, `{"l":5}`, `{"w":1e-320}`, `{"window":5}`,
	} {
		r := startRig(t, -1, limitsOf(sharedBy(1000), perTenant(1000)), nil)
		client := r.server.Client()
		client.HSet(t.Context(), store.Key(r.queue, "limits"), "t:a", text)
		r.add(t, nil)
		good := r.add(t, func(job *Job) { job.Tenant = "good" })
		if ids := r.release(t, r.dispatcher(), 100); !slices.Equal(ids, []string{good}) {
			t.Errorf("%s: %v went; want %s", text, ids, good)
		}
	}
}

// TestDamageIsNotStale: a damaged value that looks like a script's error for changed limits
// is not taken for it.
func TestDamageIsNotStale(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+r.add(t, nil)), "hg_slot", "STALE 1")
	good := r.add(t, func(job *Job) { job.Tenant = "good" })
	if ids := r.release(t, r.dispatcher(), 100); !slices.Equal(ids, []string{good}) {
		t.Errorf("%v went; want %s", ids, good)
	}
}
