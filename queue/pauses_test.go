package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/operate"
)

// pauseTenantsScript pauses the tenants t0, t1, ... at once, like a provider.
var pauseTenantsScript = store.NewScript(`
for i = tonumber(ARGV[2]), tonumber(ARGV[3]) do pause('t' .. int(i), tonumber(ARGV[4]), 'provider', '429') end
return 1`)

func (r *rig) pauseTenants(t *testing.T, n int, until int64) {
	t.Helper()
	for first := 0; first < n; first += 1000 {
		_, err := pauseTenantsScript.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, first, min(first+1000, n)-1, until)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (r *rig) sweep(t *testing.T, times int) {
	t.Helper()
	c := r.chores()
	for range times {
		if err := c.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEndedPausesArePurged: all ended pauses are removed, however many there are, and the
// others stay.
func TestEndedPausesArePurged(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	client, ctx := r.server.Client(), t.Context()
	const ended, endless = 10_000, int64(9e15)
	r.pauseTenants(t, ended, 1)
	for scope, until := range map[inspect.Scope]time.Time{{Tenant: "holds"}: {}, {Kind: "k"}: time.Now().Add(time.Hour)} {
		if _, err := operate.PauseJobs(ctx, client, r.queue, scope, until, ann); err != nil {
			t.Fatal(err)
		}
	}
	r.sweep(t, 40)
	if n := client.HLen(ctx, store.Key(r.queue, "pauses")).Val(); n != 2 {
		t.Errorf("%d pauses are left of %d that have ended and 2 that hold", n, ended)
	}
	for _, set := range []string{"pause_changes", "pause_ends"} {
		if n := client.ZCard(ctx, store.Key(r.queue, set)).Val(); n > 3 {
			t.Errorf("%d entries are left in %s", n, set)
		}
	}
	if all, err := inspect.Pauses(ctx, client, r.queue); err != nil || len(all) != 2 {
		t.Errorf("Pauses = %+v, %v", all, err)
	}
}

// reading counts a client's requests to Redis and the size of the replies.
type reading struct{ commands, values atomic.Int64 }

func (r *reading) on(_ context.Context, cmds []redis.Cmder, send func() error) error {
	err := send()
	for _, cmd := range cmds {
		r.commands.Add(1)
		switch cmd := cmd.(type) {
		case *redis.MapStringStringCmd:
			r.values.Add(int64(len(cmd.Val())))
		case *redis.SliceCmd:
			r.values.Add(int64(len(cmd.Val())))
		case *redis.ZSliceCmd:
			r.values.Add(int64(len(cmd.Val())))
		default:
			r.values.Add(1)
		}
	}
	return err
}

// watcher is a worker's cache of the pauses.
type watcher struct {
	pauses
	reading
	rig    *rig
	client redis.UniversalClient
}

func (r *rig) watcher(t *testing.T) *watcher {
	t.Helper()
	w := &watcher{rig: r}
	client := redis.NewUniversalClient(r.server.Options())
	t.Cleanup(func() { client.Close() })
	client.AddHook(redistest.OnRequest(w.reading.on))
	w.client = client
	return w
}

// catchUp reads pauses like a round of dispatch, and returns how much it read.
func (w *watcher) catchUp(t *testing.T) (commands, values int64) {
	t.Helper()
	version, err := w.rig.server.Client().HGet(t.Context(), store.Key(w.rig.queue, "totals"), "pauses").Int64()
	if err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	commands, values = w.commands.Load(), w.values.Load()
	if err := w.follow(t.Context(), w.client, w.rig.queue, version, time.Now()); err != nil {
		t.Fatal(err)
	}
	return w.commands.Load() - commands, w.values.Load() - values
}

func (w *watcher) want(t *testing.T, holds bool, scopes ...string) {
	t.Helper()
	for _, scope := range scopes {
		if got := w.holds(time.Now(), scope); got != holds {
			t.Errorf("the worker holds %s: %v; want %v", scope, got, holds)
		}
	}
}

// TestOnePauseAmongMany: a worker reads the same amount for a change, however many pauses
// there are.
func TestOnePauseAmongMany(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	client, ctx := r.server.Client(), t.Context()
	r.pauseTenants(t, 10_000, store.Endless)
	w := r.watcher(t)
	w.catchUp(t)
	w.want(t, true, "t0", "t4711", "t9999")
	w.want(t, false, "one", "t10000")
	bounded := func(what string) {
		t.Helper()
		if commands, values := w.catchUp(t); commands > 2 || values > 4 {
			t.Errorf("%s: %d commands with %d values were read beside 10,000 pauses", what, commands, values)
		}
	}
	if _, err := operate.PauseJobs(ctx, client, r.queue, inspect.Scope{Tenant: "one"}, time.Time{}, ann); err != nil {
		t.Fatal(err)
	}
	bounded("a pause")
	w.want(t, true, "one", "t0", "t9999")
	for _, tenant := range []string{"one", "t4711"} {
		if _, err := operate.ResumeJobs(ctx, client, r.queue, inspect.Scope{Tenant: tenant}, ann); err != nil {
			t.Fatal(err)
		}
	}
	bounded("two resumes")
	w.want(t, false, "one", "t4711")
	w.want(t, true, "t0")
	if commands, _ := w.catchUp(t); commands != 0 {
		t.Errorf("%d commands where nothing changed", commands)
	}
}

// TestWorkersFollowPauses: after any sequence of pauses by operators and providers, resumes
// and purges, a worker that reads the changes has the same pauses as Redis.
func TestWorkersFollowPauses(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	r := startRig(t, 0, limitsOf(), nil)
	client, ctx := r.server.Client(), t.Context()
	workers := []*watcher{r.watcher(t), r.watcher(t), r.watcher(t)}
	check := func(step int, w *watcher) {
		t.Helper()
		w.catchUp(t)
		stored := client.HGetAll(ctx, store.Key(r.queue, "pauses")).Val()
		for i := range 20 {
			scope := fmt.Sprint("t", i)
			want := store.PausedUntil(stored[scope]) > time.Now().UnixMicro()
			if got := w.holds(time.Now(), scope); got != want {
				t.Fatalf("step %d: the worker holds %s: %v; in Redis is %q", step, scope, got, stored[scope])
			}
		}
	}
	for step := range 600 {
		tenant := fmt.Sprint("t", random.IntN(20))
		switch random.IntN(6) {
		case 0, 1:
			until := []time.Time{{}, time.Now().Add(time.Hour), time.Now().Add(2 * time.Hour)}[random.IntN(3)]
			if _, err := operate.PauseJobs(ctx, client, r.queue, inspect.Scope{Tenant: tenant}, until, ann); err != nil {
				t.Fatal(err)
			}
		case 2, 3:
			if _, err := operate.ResumeJobs(ctx, client, r.queue, inspect.Scope{Tenant: tenant}, ann); err != nil {
				t.Fatal(err)
			}
		case 4: // a pause that is over at once
			r.pauseTenants(t, 1+random.IntN(3), time.Now().UnixMicro())
		case 5:
			// Resumed pauses are removed an hour later: now.
			ends, err := client.ZRangeWithScores(ctx, store.Key(r.queue, "pause_ends"), 0, -1).Result()
			if err != nil {
				t.Fatal(err)
			}
			for _, z := range ends {
				if !client.HExists(ctx, store.Key(r.queue, "pauses"), z.Member.(string)).Val() {
					client.ZAdd(ctx, store.Key(r.queue, "pause_ends"), zOf(z.Member.(string), 1))
				}
			}
			r.sweep(t, 1)
		}
		if w := random.IntN(10); w < 2 { // the third one does not read until the end
			check(step, workers[w])
		}
	}
	for _, w := range append(workers, r.watcher(t)) {
		check(600, w)
	}
}

// TestFollowManyChanges: a worker that starts late, or missed more changes than one reply
// has, reads all of them.
func TestFollowManyChanges(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	w := r.watcher(t)
	r.pauseTenants(t, 3*store.MaxKeys+1, store.Endless)
	late := r.watcher(t)
	for _, w := range []*watcher{w, late} {
		w.catchUp(t)
		for i := range 3*store.MaxKeys + 1 {
			w.want(t, true, fmt.Sprint("t", i))
		}
	}
	// Redis lost what was written last, as a failover may.
	w.version += 1000
	w.add("lost", time.Now(), time.Hour)
	w.catchUp(t)
	w.want(t, false, "lost")
	w.want(t, true, "t0", fmt.Sprint("t", 3*store.MaxKeys))
	// It does not read again and again if the count of changes is damaged.
	client := r.server.Client()
	client.HDel(t.Context(), store.Key(r.queue, "totals"), "pauses")
	w.catchUp(t)
	if commands, _ := w.catchUp(t); commands != 0 {
		t.Errorf("%d commands where nothing changed", commands)
	}
	for _, tenant := range []string{"t0", "t1"} {
		if _, err := operate.ResumeJobs(t.Context(), client, r.queue, inspect.Scope{Tenant: tenant}, ann); err != nil {
			t.Fatal(err)
		}
		w.catchUp(t)
		w.want(t, false, tenant)
	}
	// Ended pauses are not kept forever.
	for i := range 100_000 {
		w.add(fmt.Sprint("short", i), time.Now(), 0)
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	if n := len(w.until); n > 10*store.MaxKeys {
		t.Errorf("%d pauses are known, of which %d hold", n, 3*store.MaxKeys+1)
	}
}

// TestUnrecordedPause: a pause that this worker alone knows, because Redis did not take the end of its call, is forgotten when
// pauses are read again.
func TestUnrecordedPause(t *testing.T) {
	t.Parallel()
	w := startRig(t, 0, limitsOf(), nil).watcher(t)
	w.catchUp(t)
	w.add("a", time.Now(), time.Hour)
	w.catchUp(t)
	w.want(t, true, "a")
	w.reread()
	w.catchUp(t)
	w.want(t, false, "a")
}

// TestRereadWhilePausesAreRead: pauses are read again after a call of reread, also if it comes while changes are read.
func TestRereadWhilePausesAreRead(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	w := r.watcher(t)
	r.pauseTenants(t, 1, store.Endless)
	w.catchUp(t)
	w.add("a", time.Now(), time.Hour)
	r.pauseTenants(t, 2, store.Endless)
	var once sync.Once
	w.client.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		once.Do(w.reread)
		return err
	}))
	w.catchUp(t)
	w.catchUp(t)
	w.want(t, false, "a")
}

// TestPauseOfALostRun: a call ends with the provider's wish to wait, but its job has gone to another run meanwhile, so Redis
// does not take the pause. The worker does not keep it either: it goes on with the tenant's jobs. The same if it cannot know
// whether an earlier try of the settlement arrived.
func TestPauseOfALostRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cut  bool // the worker's connections break before it can settle the call
		ends lifecycle.Outcome
	}{
		"settled once":  {false, lifecycle.Lost},
		"settled again": {true, lifecycle.Throttled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wire, edit := wired()
			r := startRig(t, 2, limitsOf(), edit)
			r.answer = func(ctx context.Context, job Running) error {
				if r.seen.outcomes(test.ends) > 0 {
					return nil
				}
				r.server.Client().HSet(ctx, asynqwire.Key(r.queue, "t:"+job.ID), "hg_owner", "other:1")
				if test.cut {
					wire.Refuse(store.SettleScript.Hash())
				}
				return tooMany{after: time.Hour}
			}
			r.run(t)
			r.enqueue(t, "a", 1)
			if test.cut {
				until(t, "a settlement did not arrive", func() bool { return wire.Refused() > 0 })
				wire.Refuse("")
			}
			r.seen.wait(t, string(test.ends), 1)
			r.enqueue(t, "a", 1)
			r.wait(t)
		})
	}
}

// TestFollowProviders: a provider's pause reaches other workers with the settlement, and of
// several pauses in one batch the longest applies.
func TestFollowProviders(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(10), sharedBy(100)), nil)
	client, ctx := r.server.Client(), t.Context()
	w := r.watcher(t)
	g := &gate{queue: r.queue, redis: client, limits: &effective.Calendars{Queue: r.queue, Redis: client}, onWake: func() {}}
	var batch []settleQuestion
	for _, length := range []time.Duration{time.Minute, time.Hour, time.Second} {
		id := r.add(t, nil)
		client.HSet(ctx, asynqwire.Key(r.queue, "t:"+id), "state", "active", "hg_owner", "o")
		batch = append(batch, settleQuestion{id: id, owner: "o", tenant: "a", kind: "call", outcome: "free", hold: hold{who: ofTenant, length: length, reason: "429"}})
	}
	before := time.Now()
	if _, err := g.sendSettle(batch); err != nil {
		t.Fatal(err)
	}
	w.catchUp(t)
	w.want(t, true, "a")
	w.want(t, false, "b", store.WholeQueue)
	all, err := inspect.Pauses(ctx, client, r.queue)
	if err != nil || len(all) != 1 || all[0].By != "provider" || all[0].Until.Before(before.Add(time.Hour)) {
		t.Errorf("Pauses = %+v, %v; want an hour", all, err)
	}
	if end := client.ZScore(ctx, store.Key(r.queue, "pause_ends"), "a").Val(); len(all) == 1 && int64(end) != all[0].Until.UnixMicro() {
		t.Errorf("the pause ends at %v, and is noted for %.0f", all[0].Until, end)
	}
	if was, err := operate.ResumeJobs(ctx, client, r.queue, inspect.Scope{Tenant: "a"}, ann); err != nil || !was {
		t.Errorf("ResumeJobs = %v, %v", was, err)
	}
	w.catchUp(t)
	w.want(t, false, "a")
}
