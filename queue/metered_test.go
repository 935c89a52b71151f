package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// leftScript returns what a tenant's bucket will have left in a second, when all slots that
// were given have passed.
var leftScript = store.NewScript(`
set_calendars(ARGV[2])
local now = clock() + 1000000
for _, entry in ipairs(lane_limits(ARGV[3], now).all) do
  if entry.name == ARGV[4] then return limit_left(entry.spec, bucket(entry, now), now) end
end
return -1
`)

func (r *rig) left(t *testing.T, lane, limit string) int64 {
	t.Helper()
	windows, err := (&effective.Calendars{Queue: r.queue, Redis: r.server.Client()}).Text(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reply, err := leftScript.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, windows, lane, limit)
	if err != nil {
		t.Fatal(err)
	}
	return reply.(int64)
}

// tokens returns a budget that does not refill during a test.
func tokens(most int64, per ...string) limits.Limit {
	return limits.Limit{Per: per, Unit: "tokens", Name: "tokens", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}, Burst: most}
}

// TestThrottledCallCostsNothing: a call that the provider rejects costs nothing of a metered
// limit.
func TestThrottledCallCostsNothing(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(tokens(100)), nil) // a limit of the tenant would begin anew
	refused := false
	r.answer = func(context.Context, Running) error {
		if !refused {
			refused = true
			return throttled{time.Millisecond}
		}
		return nil
	}
	r.add(t, func(job *Job) { job.Costs = map[string]int64{"tokens": 60} })
	r.run(t)
	r.seen.wait(t, string(lifecycle.Throttled), 1)
	r.seen.wait(t, string(lifecycle.Done), 1) // it finds 60 of the 100 again, which come back in 60 hours
}

// TestExpiredJobGivesNothingBack: a job that expires while it waits has taken nothing of a metered limit, so it gives
// nothing back.
func TestExpiredJobGivesNothingBack(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(tokens(100, "tenant")), nil)
	client := r.server.Client()
	if _, err := operate.PauseJobs(t.Context(), client, r.queue, inspect.Scope{Tenant: "a"}, time.Time{}, operate.Operator{Actor: "ann", Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	r.add(t, func(job *Job) {
		job.Costs, job.Deadline = map[string]int64{"tokens": 60}, time.Now().Add(time.Second)
	})
	r.run(t)
	r.seen.wait(t, string(lifecycle.Expired), 1)
	r.stop()
	key := store.Key(r.queue, "b:tokens:a")
	if text := client.Get(t.Context(), key).Val(); text != "" {
		t.Errorf("nothing was taken, and the bucket is %q", text)
	}
	if faults, err := inspect.Faults(t.Context(), client, r.queue); err != nil || len(faults) > 0 {
		t.Errorf("faults %+v, %v", faults, err)
	}
	if left := r.left(t, "a", "tokens"); left != 100 {
		t.Errorf("%d tokens left; want all 100", left)
	}
}

// TestExpiredJobKeepsWhatALostRunTook: the worker of a job died, so its call may have been made, and then the job expires.
// What the call took stays taken.
func TestExpiredJobKeepsWhatALostRunTook(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(tokens(100, "tenant")), nil)
	d := r.dispatcher()
	id := r.add(t, func(job *Job) {
		job.Costs, job.Deadline = map[string]int64{"tokens": 60}, time.Now().Add(time.Hour)
	})
	r.release(t, d, 1)
	r.takeOver(t, id)
	r.expire(t, d, id)
	if left := r.left(t, "a", "tokens"); left != 40 {
		t.Errorf("%d tokens left; want the 40 that the call did not take", left)
	}
}

// expire lets the deadline of a waiting job pass, and settles it as the worker does that gets it.
func (r *rig) expire(t *testing.T, d *dispatcher, id string) {
	t.Helper()
	client := r.server.Client()
	if err := client.ZAddXX(t.Context(), store.Key(r.queue, "deadlines"), zOf(id, 1)).Err(); err != nil {
		t.Fatal(err)
	}
	r.release(t, d, 1)
	q := settleQuestion{id: id, owner: r.field(t, id, "hg_owner"), outcome: settleFailed, text: "expired too late", actual: "tokens=0", to: "archived"}
	if !r.settles(t, q).mine {
		t.Fatalf("job %s was not handed over: it is %s", id, r.field(t, id, "state"))
	}
}

// TestMeteredLimit: the estimate is taken before the call and corrected exactly to what the
// call used. The permits that come back let the next job go.
func TestMeteredLimit(t *testing.T) {
	t.Parallel()
	for name, per := range map[string][]string{"tenant": {"tenant"}, "shared": nil, "attribute": {"model"}} {
		t.Run(name, func(t *testing.T) {
			set := limitsOf(tokens(1000, per...))
			set.Tenants = map[string]limits.Tenant{"a": {SendWindow: always(t)}} // it counts nothing
			r := startRig(t, 4, set, nil)
			r.answer = func(ctx context.Context, job Running) error {
				if job.Costs["tokens"] != 400 {
					t.Errorf("costs %v", job.Costs)
				}
				return SetActual(ctx, map[string]int64{"tokens": 70})
			}
			lane := "a"
			if name == "attribute" {
				lane = "a;model=m"
			}
			for range 4 { // at their estimate only two would ever go
				r.add(t, func(job *Job) {
					job.Costs = map[string]int64{"tokens": 400}
					job.Attributes = map[string]string{"model": "m"}
				})
			}
			r.run(t)
			r.seen.wait(t, string(lifecycle.Done), 4)
			if left := r.left(t, lane, "tokens"); left != 1000-4*70 {
				t.Errorf("%d tokens left; want %d", left, 1000-4*70)
			}
		})
	}
}

// TestMeteredOverrun: a call that used more than its estimate is charged, up to what the
// limit holds, and other jobs wait for that.
func TestMeteredOverrun(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(tokens(1000, "tenant")), nil)
	r.answer = func(ctx context.Context, _ Running) error {
		return SetActual(ctx, map[string]int64{"tokens": 950})
	}
	estimate := func(job *Job) { job.Costs = map[string]int64{"tokens": 100} }
	r.add(t, estimate)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 1)
	if left := r.left(t, "a", "tokens"); left != 50 {
		t.Errorf("%d tokens left; want 50", left)
	}
	r.add(t, estimate)
	r.seen.wait(t, "round", r.seen.outcomes("round")+3)
	if n := r.states(t)["aggregating"]; n != 1 {
		t.Errorf("%d jobs wait; want the one whose estimate is not left", n)
	}
}

// TestUnitsHoldOnlyTheirJobs: limits with a unit do not hold jobs without costs in the unit.
// Jobs with such costs take no more from other limits.
func TestUnitsHoldOnlyTheirJobs(t *testing.T) {
	t.Parallel()
	requests := limits.Limit{Per: []string{"tenant"}, Name: "requests", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}, Burst: 10}
	r := startRig(t, 1, limitsOf(requests, tokens(1000, "tenant")), nil)
	d := r.dispatcher()
	r.add(t, func(job *Job) { job.Costs = map[string]int64{"tokens": 1000} })
	r.add(t, nil)
	r.add(t, func(job *Job) { job.Costs = map[string]int64{"tokens": 0, "cents": 7} })
	if ids := r.release(t, d, 100); len(ids) != 3 {
		t.Errorf("%d of 3 jobs went", len(ids))
	}
	if left := []int64{r.left(t, "a", "requests"), r.left(t, "a", "tokens")}; left[0] != 7 || left[1] != 0 {
		t.Errorf("requests and tokens left: %v; want 7 and 0", left)
	}
	if _, err := r.client.Enqueue(t.Context(), Job{Kind: "call", Queue: r.queue, Tenant: "a", Costs: map[string]int64{"tokens": 1001}}); err == nil ||
		!strings.Contains(err.Error(), `costs.tokens: 1001 is more than limit "tokens" ever admits at once (1000)`) {
		t.Errorf("more than the limit holds: %v", err)
	}
}

// TestUsedUpUnitHoldsOnlyItsJobs: what is left of a shared limit with a unit is kept for the job
// whose turn it is, and only jobs that take of it wait for that.
func TestUsedUpUnitHoldsOnlyItsJobs(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(tokens(1000)), nil)
	d := r.dispatcher()
	add := func(tenant string, cost int64) string {
		return r.add(t, func(job *Job) { job.Tenant, job.Costs = tenant, map[string]int64{"tokens": cost} })
	}
	want := []string{add("a", 500)}
	r.release(t, d, 100)
	large := add("large", 800)
	r.release(t, d, 100)
	for i := range 100 { // more than one round looks at
		add(fmt.Sprintf("small-%02d", i), 1)
	}
	want = append(want, add("zero", 0))
	r.release(t, d, 100)
	want = append(want, add("zero", 0))
	if ids := r.release(t, d, 100); !slices.Equal(ids, want) {
		t.Fatalf("released %v; want what takes no tokens: %v", ids, want)
	}
	plenty := tokens(1000)
	plenty.Rate = throttle.PerSecond(1e6)
	if err := operate.Publish(t.Context(), r.server.Client(), limits.Set{Queues: map[string]limits.Queue{r.queue: limitsOf(plenty).Queues[""]}}); err != nil {
		t.Fatal(err)
	}
	want = append(want, large)
	if ids := r.release(t, d, 150); len(ids) != len(want)+100 || !slices.Equal(ids[:len(want)], want) {
		t.Errorf("with more tokens went %v; want %v first, and 100 more", ids, want)
	}
}

// TestUsedUpUnitPassesPermitsOn: a permit that wakes a job which another limit holds goes to the next one at once.
func TestUsedUpUnitPassesPermitsOn(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(tokens(1000), inFlight(1)), nil)
	d := r.dispatcher()
	add := func(tenant string, cost int64) string {
		return r.add(t, func(job *Job) { job.Tenant, job.Costs = tenant, map[string]int64{"tokens": cost} })
	}
	first := add("a", 1000)
	r.release(t, d, 100)
	for i := range 10 {
		add(fmt.Sprintf("held-%d", i), 10)
	}
	free := add("free", 0)
	r.release(t, d, 100)
	r.settles(t, settleQuestion{id: first, owner: r.field(t, first, "hg_owner"), tenant: "a", kind: "call", outcome: settleDone, to: "gone"})
	for range 20 {
		if slices.Contains(r.release(t, d, 100), free) {
			return
		}
	}
	t.Error("a job that takes no tokens waits beside a free permit")
}

// TestRestOfAWindowIsUsed: what a window has left is not kept for a job that can only go in the next one.
func TestRestOfAWindowIsUsed(t *testing.T) {
	t.Parallel()
	budget := limits.Limit{Unit: "cents", Name: "budget", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 100, Months: 1}, Location: noon(t)}
	r := startRig(t, -1, limitsOf(budget), nil)
	d := r.dispatcher()
	add := func(tenant string, cost int64) string {
		return r.add(t, func(job *Job) { job.Tenant, job.Costs = tenant, map[string]int64{"cents": cost} })
	}
	want := []string{add("a", 60)}
	r.release(t, d, 100)
	add("b", 50)
	r.release(t, d, 100)
	want = append(want, add("c", 30))
	add("d", 30)
	if ids := r.release(t, d, 100); !slices.Equal(ids, want) {
		t.Errorf("released %v; want %v, which cost 90 cents of 100", ids, want)
	}
}

// TestBudget: a tenant that has used its budget of the day waits for the next day.
func TestBudget(t *testing.T) {
	t.Parallel()
	zone := noon(t)
	budget := limits.Limit{Per: []string{"tenant"}, Unit: "cents", Name: "budget", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 100, Period: 24 * time.Hour}, Location: zone}
	r := startRig(t, 1, limitsOf(budget), nil)
	for range 3 {
		r.add(t, func(job *Job) { job.Costs = map[string]int64{"cents": 40} })
	}
	if ids := r.release(t, r.dispatcher(), 100); len(ids) != 2 {
		t.Fatalf("%d jobs of 40 cents went under a budget of 100", len(ids))
	}
	due := r.server.Client().ZScore(t.Context(), store.Key(r.queue, "waiting"), "a;kind=call").Val()
	year, month, day := time.Now().In(zone).Date()
	tomorrow := time.Date(year, month, day+1, 0, 0, 0, 0, zone)
	if got := time.UnixMicro(int64(due)).In(zone); got.Before(tomorrow) || got.After(tomorrow.Add(time.Second)) {
		t.Errorf("the third waits until %v; want %v", got, tomorrow)
	}
}

func TestSetActualOutsideOfAHandler(t *testing.T) {
	if err := SetActual(t.Context(), nil); err == nil {
		t.Error("no error")
	}
}
