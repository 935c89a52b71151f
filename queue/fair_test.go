package queue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestOneHugeJobSaysNothingOfOthers: the credit for absence depends on the usual cost of
// jobs, which a single job does not change.
func TestOneHugeJobSaysNothingOfOthers(t *testing.T) {
	t.Parallel()
	tokens := limits.Limit{Unit: "tokens", Name: "tokens", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1e6), Burst: 1e6}
	r := startRig(t, -1, limitsOf(tokens), nil)
	d := r.dispatcher()
	add := func(tenant string, cost int64, n int) {
		for range n {
			r.add(t, func(job *Job) { job.Tenant, job.Costs = tenant, map[string]int64{"tokens": cost} })
		}
	}
	add("huge", 900_000, 1)
	r.release(t, d, 1)
	add("stays", 10, 100)
	r.release(t, d, 40)
	add("returns", 10, 100)
	of := map[string]string{}
	for _, lane := range []string{"stays", "returns"} {
		for _, id := range r.server.Client().ZRange(t.Context(), asynqwire.Key(r.queue, "g:"+r.lane(lane)), 0, -1).Val() {
			of[id] = lane
		}
	}
	went := map[string]int{}
	for _, id := range r.release(t, d, 40) {
		went[of[id]]++
	}
	// Half each, except for two jobs of credit and the jobs given ahead.
	if went["stays"] < 15 || went["returns"] < 15 {
		t.Errorf("of the next 40 jobs went %v; want about as many of each tenant", went)
	}
}

// lane returns the name of a tenant's lane in the rig.
func (r *rig) lane(tenant string) string { return tenant + ";kind=call" }

// TestNoTenantMeetsAFieldOfOurs: no tenant's name collides with a field that Headgate uses:
// Redis has the same data for every name.
func TestNoTenantMeetsAFieldOfOurs(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	server := redistest.Start(t) // footprint looks at all keys of its server
	want := footprint(t, server, "plain")
	for _, name := range []string{
		"~", "*", "**", "*unit", "*parts", "*clock", "*typical", "k:call", "t:x", "w:", ":", ";", "=", "a;b=c", "{x}", "}:pending", "%", "%2A", " ", "ä", "0", "-1", "nan",
	} {
		if got := footprint(t, server, name); !slices.Equal(got, want) {
			t.Errorf("tenant %q: %s", name, difference(got, want))
		}
	}
	if t.Failed() {
		return
	}
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.StringMatching(`[ -~]{1,12}`).Filter(func(name string) bool {
			return check.Text(name, check.MaxTenant) == "" && name != "other" && name != "w" && name != asynqwire.NoTenant // the other tenant, the worker, none
		}).Draw(rt, "tenant")
		if got := footprint(t, server, name); !slices.Equal(got, want) {
			rt.Errorf("%s", difference(got, want))
		}
	})
}

func difference(got, want []string) string {
	var out []string
	for _, name := range got {
		if !slices.Contains(want, name) {
			out = append(out, "+"+name)
		}
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			out = append(out, "-"+name)
		}
	}
	return strings.Join(out, " ")
}

// footprint lists all keys of a queue, and the fields and members with tenants, after
// everything that can happen to a tenant. The tenant's name is replaced by TENANT.
func footprint(t *testing.T, server *redistest.Server, tenant string) []string {
	t.Helper()
	client, ctx, name := server.Client(), t.Context(), redistest.Queue(t)
	tokens := perTenant(1000)
	tokens.Burst = 100
	tokens.Name, tokens.Unit = "tokens", "tokens"
	shared := sharedBy(1000)
	shared.Unit, shared.Algorithm, shared.Burst = "tokens", throttle.TokenBucket, 1000
	set := limits.Set{
		Queues:  map[string]limits.Queue{name: {Limits: []limits.Limit{tokens, shared, inFlight(2, "tenant")}, MaxBacklog: 1000}},
		Tenants: map[string]limits.Tenant{tenant: {Weight: 2}},
	}
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fail(operate.Publish(ctx, client, set))
	slow := throttle.PerSecond(900)
	fail(operate.SetOverride(ctx, client, name, tenant, "tokens", operate.Override{Change: limits.Change{Rate: &slow}, Actor: "ann", Reason: "x"}))
	enqueue := NewClient(client)
	for i := range 4 {
		for _, whose := range []string{tenant, "other"} {
			_, err := enqueue.Enqueue(ctx, Job{Kind: "call", Queue: name, Tenant: whose, Priority: []Priority{Normal, High}[i%2], Costs: map[string]int64{"tokens": 2}})
			fail(err)
		}
	}
	r := &rig{queue: name, server: server.Redis()}
	r.release(t, r.dispatcher(), 4)
	_, err := operate.PauseJobs(ctx, client, name, inspect.Scope{Tenant: tenant}, time.Time{}, ann)
	fail(err)
	r.release(t, r.dispatcher(), 4)

	seen := map[string]bool{}
	escaped := rediskey.Escape(tenant)
	note := func(words ...string) {
		for i, word := range words {
			word = strings.ReplaceAll(word, name, "QUEUE")
			// As a whole: a short name is part of many others.
			if word == escaped || word == "t:"+escaped {
				word = strings.TrimSuffix(word, escaped) + "TENANT"
			}
			for _, around := range [][2]string{{"", ";"}, {":", ";"}, {":", ""}} {
				if around[1] == "" && strings.HasSuffix(word, around[0]+escaped) {
					word = strings.TrimSuffix(word, escaped) + "TENANT"
				} else if around[1] != "" && (strings.HasPrefix(word, escaped+around[1]) && around[0] == "" || around[0] != "" && strings.Contains(word, around[0]+escaped+around[1])) {
					word = strings.Replace(word, around[0]+escaped+around[1], around[0]+"TENANT"+around[1], 1)
				}
			}
			words[i] = word
		}
		seen[strings.Join(words, " | ")] = true
	}
	for _, known := range redistest.Keys(t, client, "*{"+name+"}*") {
		_, rest, _ := strings.Cut(known, "}:")
		if strings.HasPrefix(rest, "t:") || strings.HasPrefix(rest, "answers:") {
			continue
		}
		note(rest)
		switch client.Type(ctx, known).Val() {
		case "hash":
			for _, field := range client.HKeys(ctx, known).Val() {
				note(rest, field)
			}
		case "zset":
			if !strings.HasPrefix(rest, "g:") && !strings.HasPrefix(rest, "permits:") && rest != "lease" {
				for _, member := range client.ZRange(ctx, known, 0, -1).Val() {
					note(rest, member)
				}
			}
		case "set":
			for _, member := range client.SMembers(ctx, known).Val() {
				note(rest, member)
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// TestCrowdThatIsDueAtOnce: if many lanes are due at the same time, a round of dispatch
// handles few of them, and a tenant whose jobs can go does not wait for them.
func TestCrowdThatIsDueAtOnce(t *testing.T) {
	t.Parallel()
	const lanes, rounds = 5000, 12
	c := startCrowd(t, redistest.Start(t), lanes)
	live := c.add(t, nil)
	d := c.dispatcher()
	d.kinds = ",call,mail,"
	var largest float64
	went := 0
	for round := 1; round <= rounds; round++ {
		before := commandStats(t, c.server.Client()).commands
		if _, err := d.round(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		largest = max(largest, commandStats(t, c.server.Client()).commands-before)
		if went == 0 && c.server.Client().HGet(t.Context(), asynqwire.Key(c.queue, "t:"+live), "state").Val() == "active" {
			went = round
		}
	}
	if largest > 1000 {
		t.Errorf("one call of dispatch made %.0f commands", largest)
	}
	if went == 0 || went > 3 {
		t.Errorf("the live tenant's job went in round %d of %d (0: it did not)", went, rounds)
	}
}

// startCrowd returns a rig with many more lanes that are all due now and whose kind is
// paused.
func startCrowd(t testing.TB, server *redistest.Server, lanes int) *rig {
	t.Helper()
	client, ctx, name := server.Client(), t.Context(), "crowd"
	set := limits.Set{Queues: map[string]limits.Queue{name: {Kinds: []string{"call", "mail"}, Limits: []limits.Limit{perTenant(100)}}}}
	if err := operate.Publish(ctx, client, set); err != nil {
		t.Fatal(err)
	}
	enqueue := NewClient(client)
	for from := 0; from < lanes; from += 1000 {
		jobs := make([]Job, min(1000, lanes-from))
		for i := range jobs {
			jobs[i] = Job{Kind: "mail", Queue: name, Tenant: fmt.Sprintf("crowd-%06d", from+i)}
		}
		enqueueAll(t, enqueue, jobs...)
	}
	if _, err := operate.PauseJobs(ctx, client, name, inspect.Scope{Kind: "mail"}, time.Time{}, ann); err != nil {
		t.Fatal(err)
	}
	return &rig{receiver: newReceiver(-1), queue: name, server: server.Redis(), client: enqueue, seen: newCounter()}
}

// TestVirtualTimesAreForgotten: the sweep deletes the virtual finish times of tenants that change nothing any more.
// Tenants that return have their turns and their times as if none had been deleted.
func TestVirtualTimesAreForgotten(t *testing.T) {
	t.Parallel()
	back := []string{"heavy", "light", "served1", "near49", "near20", "near11", "near10", "near9", "near0", "served999", "new"}
	run := func(sweeps bool) (kept map[string]string, turns []string, times map[string]string) {
		set := limitsOf(sharedBy(1e6))
		set.Tenants = map[string]limits.Tenant{"heavy": {Weight: 10}, "light": {Weight: 0.1}}
		r := startRig(t, -1, set, nil)
		client, key := r.server.Client(), store.Key(r.queue, "vtime")
		_, err := client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
			for i := range 1000 { // more than a sweep looks at
				pipe.HSet(t.Context(), key, fmt.Sprint("served", i), float64(i)/100)
			}
			for i := range 50 { // around 98, where the next job of a tenant begins at the earliest
				pipe.HSet(t.Context(), key, fmt.Sprint("near", i), 97+float64(i)/10)
			}
			pipe.HSet(t.Context(), key, "heavy", 99.9, "light", 85, "*", 100, "*unit", "permits", "*typical", 1)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if sweeps {
			r.sweep(t, 100)
		}
		kept = client.HGetAll(t.Context(), key).Val()
		of := map[string]string{}
		for _, tenant := range back {
			for range 3 {
				of[r.add(t, func(job *Job) { job.Tenant = tenant })] = tenant
			}
		}
		for _, id := range r.release(t, r.dispatcher(), 100) {
			turns = append(turns, of[id])
		}
		times = map[string]string{}
		for _, tenant := range back {
			times[tenant] = client.HGet(t.Context(), key, tenant).Val()
		}
		return kept, turns, times
	}
	_, wantTurns, wantTimes := run(false)
	kept, turns, times := run(true)
	if !slices.Equal(turns, wantTurns) || !maps.Equal(times, wantTimes) {
		t.Errorf("tenants had their turns as %v until %v; if nothing is deleted, as %v until %v", turns, times, wantTurns, wantTimes)
	}
	if len(turns) != 3*len(back) {
		t.Errorf("%d jobs went", len(turns))
	}
	maps.DeleteFunc(kept, func(tenant, _ string) bool { return strings.HasPrefix(tenant, "*") })
	// near11 to near49, heavy after 99.8 and light after 80.
	if len(kept) != 39+2 || kept["near10"] != "" || kept["near11"] == "" || kept["heavy"] == "" || kept["light"] == "" {
		t.Errorf("%d times are kept: %v", len(kept), kept)
	}
}
