package queue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/throttle"
)

const replacedReason = "replaced by the job of the next tick of its periodic job"

// tick fires one tick of a periodic job.
func (tm *timer) tick(id string, tick int64) {
	tm.t.Helper()
	tm.loaded = false
	if err := tm.load(tm.t.Context()); err != nil {
		tm.t.Fatal(err)
	}
	for _, table := range tm.tables {
		for _, e := range table.entries {
			if e.id == id {
				e.next = tick
				if table.fire(tm.t.Context(), []*entry{e}, tick, true); len(table.again) > 0 {
					tm.t.Fatalf("tick %d was rejected", tick)
				}
				return
			}
		}
	}
	tm.t.Fatalf("there is no entry %q", id)
}

// TestPeriodicWithoutWorker: a periodic job has eleven ticks while no worker serves its
// queue.
func TestPeriodicWithoutWorker(t *testing.T) {
	t.Parallel()
	const ticks = 11
	tests := map[Overlap]struct {
		waiting, cancelled, skipped int
		first                       bool // the first job waits, not the last
	}{
		"":             {waiting: 1, skipped: ticks - 1, first: true},
		OverlapSkip:    {waiting: 1, skipped: ticks - 1, first: true},
		OverlapQueue:   {waiting: ticks},
		OverlapReplace: {waiting: 1, cancelled: ticks - 1},
	}
	for overlap, want := range tests {
		t.Run("overlap "+string(overlap), func(t *testing.T) {
			t.Parallel()
			tm := newTimer(t)
			ctx := t.Context()
			tm.set(Periodic{ID: "x", Spec: "* * * * * *", Zone: "UTC", Overlap: overlap})
			first := tm.now() - ticks
			last := first + ticks - 1
			for tick := first; tick <= last; tick++ {
				tm.tick("x", tick)
			}
			inspector := asynq.NewInspectorFromRedisClient(tm.client)
			waiting, err := inspector.ListAggregatingTasks("call", "a;kind=call", asynq.PageSize(20))
			if err != nil || len(waiting) != want.waiting {
				t.Fatalf("%d jobs wait, %v; want %d", len(waiting), err, want.waiting)
			}
			if want.waiting == 1 {
				tick := last
				if want.first {
					tick = first
				}
				if got := waiting[0].Headers[asynqwire.HeaderTick]; got != fmt.Sprint(tick) {
					t.Errorf("the job of tick %s waits; want that of %d of %d to %d", got, tick, first, last)
				}
			}
			archived, err := inspector.ListArchivedTasks("call", asynq.PageSize(20))
			if err != nil && want.cancelled > 0 || len(archived) != want.cancelled {
				t.Errorf("%d jobs were cancelled, %v; want %d", len(archived), err, want.cancelled)
			}
			for _, task := range archived {
				e, err := inspect.New(tm.client).Explain(ctx, "call", task.ID)
				if err != nil || e.Outcome != lifecycle.Cancelled || e.Error != replacedReason || e.Periodic != "x" {
					t.Errorf("a job is explained as %+v, %v; want cancelled, because it was %s", e, err, replacedReason)
				}
			}
			list, err := NewClient(tm.client).ListPeriodic(ctx)
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			fired, skipped := last, int64(0)
			if want.skipped > 0 {
				fired, skipped = first, last
			}
			if s := list[0]; s.Skipped != int64(want.skipped) || s.LastFired.Unix() != fired || s.LastSkipped.IsZero() != (skipped == 0) ||
				(skipped > 0 && s.LastSkipped.Unix() != skipped) || (overlap != "" && s.Overlap != overlap) {
				t.Errorf("listed as %+v; want %d skipped, the last at %d, and the last fired at %d", s, want.skipped, skipped, fired)
			}
			if there, err := NewClient(tm.client).RemovePeriodic(ctx, "x"); err != nil || !there {
				t.Error(there, err)
			}
			if keys := redistest.Keys(t, tm.client, store.Key("call", "tick:*")); len(keys) > 0 {
				t.Errorf("the removed entry leaves %q", keys)
			}
		})
	}
}

// TestPeriodicOverlapModel: whatever happens to the jobs of periodic jobs, the next ticks do
// what their Overlap says, each once, and lanes and counters stay right.
func TestPeriodicOverlapModel(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	tm := newTimer(t)
	ctx := t.Context()
	office, err := sendwindow.Parse("mon-fri 09:00-18:00 UTC")
	if err != nil {
		t.Fatal(err)
	}
	// Calendars and a concurrency limit, which cancelling a job needs to know.
	if err := operate.Publish(ctx, tm.client, limits.Set{Queues: map[string]limits.Queue{"call": {Kinds: []string{"call"}, SendWindows: map[string]sendwindow.Window{limits.AllKinds: office}, Limits: []limits.Limit{
		{Name: "daily", Per: []string{"tenant"}, Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 1000, Period: 24 * time.Hour}, Location: time.UTC},
		{Name: "in-flight", Per: []string{"tenant"}, Algorithm: throttle.Concurrency, Concurrency: 2},
	}}}}); err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	pick := rand.New(rand.NewPCG(seed, 0))

	type job struct{ id, tenant, state string }
	type entryModel struct {
		last    *job
		skipped int
	}
	models := map[string]*entryModel{"x": {}, "y": {}, "z": {}}
	ids := slices.Sorted(maps.Keys(models))
	jobs := map[string]*job{}
	key := func(name string) string { return asynqwire.Key("call", name) }
	lane := func(tenant string) string { return tenant + ";kind=call" }
	// become moves a job as a worker does.
	become := func(j *job, state string) {
		p := tm.client.TxPipeline()
		switch j.state {
		case "aggregating":
			p.ZRem(ctx, key("g:"+lane(j.tenant)), j.id)
			countWaiting(t, tm.client, "call", j.tenant, -1)
		case "active":
			p.LRem(ctx, key("active"), 1, j.id)
		case "pending":
			p.LRem(ctx, key("pending"), 1, j.id)
		case "retry":
			p.ZRem(ctx, key("retry"), j.id)
		}
		p.HSet(ctx, key("t:"+j.id), "state", state)
		switch state {
		case "active", "pending":
			p.LPush(ctx, key(state), j.id)
		case "retry":
			p.ZAdd(ctx, key("retry"), zOf(j.id, float64(tm.now()+3600)))
		case "":
			p.Del(ctx, key("t:"+j.id))
		}
		if _, err := p.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		if j.state = state; state == "" {
			delete(jobs, j.id)
		}
	}
	fire := func(tick int64) {
		var batch []shot
		for _, id := range ids {
			if pick.IntN(3) == 0 {
				continue
			}
			tenant := string(rune('a' + pick.IntN(2)))
			a, err := tm.ticks.client.accept(ctx, Job{Kind: "call", Tenant: tenant, Payload: 1}, "call", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			batch = append(batch, shot{entry: &entry{id: id}, tick: tick, home: "call", overlap: overlaps[pick.IntN(len(overlaps))], accepted: a})
		}
		if len(batch) == 0 {
			return
		}
		for range 2 { // the second time as after a lost reply
			if _, err := tm.ticks.enqueue(ctx, batch); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range batch {
			m := models[s.id]
			if m.last != nil && m.last.state != "" && m.last.state != "archived" {
				if s.overlap == OverlapSkip {
					m.skipped++
					continue
				}
				if s.overlap == OverlapReplace && m.last.state != "active" {
					m.last.state = "archived"
				}
			}
			m.last = &job{s.accepted.id, s.accepted.tenant, "aggregating"}
			jobs[m.last.id] = m.last
		}
	}
	check := func(step int) {
		t.Helper()
		backlog := map[string]string{}
		lanes := map[string]int64{}
		for id, j := range jobs {
			if state := tm.client.HGet(ctx, key("t:"+id), "state").Val(); state != j.state {
				t.Fatalf("step %d: job %s is %q, want %q", step, id, state, j.state)
			}
			if j.state == "aggregating" {
				lanes[lane(j.tenant)]++
			}
		}
		if n := len(redistest.Keys(t, tm.client, key("t:*"))); n != len(jobs) {
			t.Fatalf("step %d: %d jobs, want %d", step, n, len(jobs))
		}
		var all int64
		for _, tenant := range []string{"a", "b"} {
			n := tm.client.ZCard(ctx, key("g:"+lane(tenant))).Val()
			if n != lanes[lane(tenant)] {
				t.Fatalf("step %d: %d jobs in lane %s, want %d", step, n, tenant, lanes[lane(tenant)])
			}
			if all += n; n > 0 {
				backlog[tenant] = fmt.Sprint(n)
				if tm.client.ZScore(ctx, store.Key("call", "waiting"), lane(tenant)).Err() != nil || !tm.client.SIsMember(ctx, key("groups"), lane(tenant)).Val() {
					t.Fatalf("step %d: lane %s holds %d jobs, and the dispatcher does not know it", step, tenant, n)
				}
			}
		}
		if all > 0 {
			backlog["*"] = fmt.Sprint(all)
		}
		counted := map[string]string{}
		for tenant, text := range tm.client.HGetAll(ctx, store.TenantsKey("call")).Val() {
			if n := store.ReadCounts(text).Waiting; n != 0 {
				counted[tenant] = fmt.Sprint(n)
			}
		}
		if !maps.Equal(counted, backlog) {
			t.Fatalf("step %d: the backlog is counted as %v, want %v", step, counted, backlog)
		}
		for id, m := range models {
			var state PeriodicState
			state.readTicks(tm.client.Get(ctx, tickKey("call", id)).Val())
			if state.Skipped != int64(m.skipped) {
				t.Fatalf("step %d: %d ticks of %s were skipped, want %d", step, state.Skipped, id, m.skipped)
			}
		}
	}
	tick := tm.now() - 3600
	for step := range 400 {
		var open []*job
		for _, id := range slices.Sorted(maps.Keys(jobs)) {
			if jobs[id].state != "archived" {
				open = append(open, jobs[id])
			}
		}
		// Few jobs are open at a time, so that lanes become empty.
		if pick.IntN(4) < len(open) {
			become(open[pick.IntN(len(open))], []string{"active", "pending", "retry", "", ""}[pick.IntN(5)])
		} else {
			tick++
			fire(tick)
		}
		check(step)
	}
	if faults, err := inspect.Faults(ctx, tm.client, "call"); err != nil || len(faults) > 0 {
		t.Errorf("faults %+v, %v", faults, err)
	}
}

// TestReplacedJobIsNotThere: a tick replaces no job that is not where its state says, because asynq's tools took it.
func TestReplacedJobIsNotThere(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	tm.set(Periodic{ID: "x", Spec: "* * * * * *", Zone: "UTC", Overlap: OverlapReplace})
	first := tm.now() - 5
	tm.tick("x", first)
	lane := asynqwire.Key("call", "g:a;kind=call")
	waiting := tm.client.ZRange(t.Context(), lane, 0, -1).Val()
	if len(waiting) != 1 {
		t.Fatal(waiting)
	}
	tm.client.ZRem(t.Context(), lane, waiting[0])
	tm.tick("x", first+1)
	if state := tm.client.HGet(t.Context(), asynqwire.Key("call", "t:"+waiting[0]), "state").Val(); state != "aggregating" {
		t.Errorf("it is %s", state)
	}
	if now := tm.client.ZRange(t.Context(), lane, 0, -1).Val(); len(now) != 1 || now[0] == waiting[0] {
		t.Errorf("in the lane: %q", now)
	}
}
