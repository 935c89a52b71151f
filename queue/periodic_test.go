package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// timer is a Redis with periodic jobs, and the part of a worker that fires them, one round
// at a time.
type timer struct {
	t      *testing.T
	server *redistest.Server
	client *redis.Client
	*ticks
}

func newTimer(t *testing.T) *timer {
	server := redistest.Start(t)
	client := server.Client()
	return &timer{t, server, client, newTicks(t, client)}
}

func newTicks(t *testing.T, client redis.UniversalClient) *ticks {
	return &ticks{redis: client, client: NewClient(client), logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

func (tm *timer) set(p Periodic) {
	tm.t.Helper()
	if p.Job.Kind == "" {
		p.Job = Job{Kind: "call", Tenant: "a", Payload: json.RawMessage(`{"n":1}`)}
	}
	if err := NewClient(tm.client).SetPeriodic(tm.t.Context(), p); err != nil {
		tm.t.Fatal(err)
	}
}

func (tm *timer) mustRound(of *ticks) time.Duration {
	tm.t.Helper()
	wait, err := of.round(tm.t.Context())
	if err != nil {
		tm.t.Fatal(err)
	}
	of.firing.Wait()
	return wait
}

// aged makes an entry look as if it had been set some time ago.
func (tm *timer) aged(id string, age time.Duration) {
	tm.t.Helper()
	ctx := tm.t.Context()
	text := tm.client.HGet(ctx, periodicKey, id).Val()
	_, rest, ok := strings.Cut(text, ",")
	if !ok {
		tm.t.Fatalf("entry %q is %q", id, text)
	}
	since := strconv.FormatInt(tm.now()-int64(age.Seconds()), 10)
	tm.client.HSet(ctx, periodicKey, id, `{"since":`+since+`,`+rest)
	tm.client.HIncrBy(ctx, periodicKey, "", 1)
}

// attended makes it look as if a worker had fired everything until some time ago.
func (tm *timer) attended(ago time.Duration) {
	tm.client.HSet(tm.t.Context(), periodicFiredKey, "", tm.now()-int64(ago.Seconds()))
}

func (tm *timer) now() int64 {
	tm.t.Helper()
	now, err := tm.client.Time(tm.t.Context()).Result()
	if err != nil {
		tm.t.Fatal(err)
	}
	return now.Unix()
}

// fired counts the jobs of each entry and tick in a queue.
func (tm *timer) fired(queue string) map[string]int {
	tm.t.Helper()
	inspector := asynq.NewInspectorFromRedisClient(tm.client)
	all := map[string]int{}
	keys := redistest.Keys(tm.t, tm.client, asynqwire.Key(queue, "t:*"))
	for _, key := range keys {
		info, err := inspector.GetTaskInfo(queue, strings.TrimPrefix(key, asynqwire.Key(queue, "t:")))
		if err != nil {
			tm.t.Fatal(err)
		}
		all[info.Headers[asynqwire.HeaderPeriodic]+" "+info.Headers[asynqwire.HeaderTick]]++
	}
	return all
}

// drop deletes all jobs, as if they were done.
func (tm *timer) drop(queue string) {
	for _, key := range redistest.Keys(tm.t, tm.client, asynqwire.Key(queue, "*")) {
		tm.client.Del(tm.t.Context(), key)
	}
}

func wantFired(t *testing.T, got map[string]int, id string, ticks ...int64) {
	t.Helper()
	want := map[string]int{}
	for _, tick := range ticks {
		want[fmt.Sprint(id, " ", tick)] = 1
	}
	if !maps.Equal(got, want) {
		t.Errorf("fired %v, want %v", got, want)
	}
}

// TestPeriodicAfterNobodyRan: after no worker ran, the latest missed tick fires once, unless
// it is too late.
func TestPeriodicAfterNobodyRan(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	tm.set(Periodic{ID: "each-minute", Spec: "* * * * *", Zone: "UTC"})
	tm.aged("each-minute", 10*time.Minute)
	tm.set(Periodic{ID: "yearly", Spec: "@yearly", Zone: "UTC"})
	tm.aged("yearly", 800*24*time.Hour)
	minute := tm.now() / 60 * 60
	tm.mustRound(tm.ticks)
	fired := tm.fired("call")
	if later := tm.now() / 60 * 60; fired[fmt.Sprint("each-minute ", later)] > 0 {
		minute = later // it passed before the round
	}
	wantFired(t, fired, "each-minute", minute)
	tm.mustRound(newTicks(t, tm.client))
	if n := len(tm.fired("call")); n > 2 { // a minute may have passed
		t.Errorf("%d jobs after another look", n)
	}
}

func TestPeriodicMaxLate(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	// A tick that is 20 to 30 s old.
	at := (tm.now() - 25) % 86400
	spec := fmt.Sprintf("%d %d %d * * *", at%60, at/60%60, at/3600)
	tm.set(Periodic{ID: "short", Spec: spec, Zone: "UTC", MaxLate: 10 * time.Second})
	tm.aged("short", time.Hour)
	tm.mustRound(tm.ticks)
	wantFired(t, tm.fired("call"), "short")
	tm.set(Periodic{ID: "long", Spec: spec, Zone: "UTC"})
	tm.aged("long", time.Hour)
	tm.client.HDel(t.Context(), periodicFiredKey, "") // no worker ran
	tm.mustRound(newTicks(t, tm.client))
	if got := tm.fired("call"); len(got) != 1 || !strings.HasPrefix(fmt.Sprint(got), "map[long ") {
		t.Errorf("fired %v, want the one that may be an hour late", got)
	}
}

// TestPeriodicMaxLateOfASlowRound: a tick that becomes too late while others are fired is not fired.
func TestPeriodicMaxLateOfASlowRound(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	now := tm.now()
	at := now % 86400
	tm.set(Periodic{ID: "x", Spec: fmt.Sprintf("%d %d %d * * *", at%60, at/60%60, at/3600), Zone: "UTC", MaxLate: 10 * time.Second})
	tm.aged("x", time.Hour)
	if err := tm.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	looks := 0
	tm.tables["call"].fireDue(t.Context(), func() int64 {
		looks++
		return now + int64(looks-1)*60
	}, true)
	wantFired(t, tm.fired("call"), "x")
	if looks != 2 {
		t.Errorf("the clock was asked %d times", looks)
	}
}

// TestPeriodicStall: while workers run, a stall loses no tick.
func TestPeriodicStall(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	tm.set(Periodic{ID: "x", Spec: "* * * * * *", Zone: "UTC", Overlap: OverlapQueue})
	tm.aged("x", time.Hour)
	from := tm.now() - 5
	tm.client.HSet(t.Context(), periodicFiredKey, "x", from)
	tm.attended(5 * time.Second)
	tm.mustRound(tm.ticks)
	got := tm.fired("call")
	for tick := from + 1; tick <= from+5; tick++ {
		if got[fmt.Sprint("x ", tick)] != 1 {
			t.Errorf("tick %d: %d jobs; all: %v", tick, got[fmt.Sprint("x ", tick)], got)
		}
	}
}

// serves makes a queue that of the kind call.
func (tm *timer) serves(queue string) {
	tm.t.Helper()
	if err := operate.Publish(tm.t.Context(), tm.client, limits.Set{Queues: map[string]limits.Queue{queue: {Kinds: []string{"call"}}}}); err != nil {
		tm.t.Fatal(err)
	}
}

// TestPeriodicDeath: if a worker dies at any step of firing, no tick is lost, and the worker
// that goes on repeats none, even if the queue of the kind has changed.
func TestPeriodicDeath(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	// begin does the first steps of firing the last minute's tick and stops.
	begin := func(t *testing.T, queue string) (tm *timer, table *timetable, s []shot) {
		tm = newTimer(t)
		tm.serves(queue)
		tm.set(Periodic{ID: "x", Spec: "@every 24h", Job: Job{Kind: "call", Tenant: "a", Payload: struct{}{}}, MaxLate: 24 * time.Hour})
		tm.aged("x", 48*time.Hour)
		if err := tm.load(ctx); err != nil {
			t.Fatal(err)
		}
		table = tm.tables["call"]
		e := table.entries[0]
		e.next = e.Last(e.since, tm.now())
		s = table.choose(ctx, []shot{{entry: e, tick: e.next, home: queue}})
		if len(s) != 1 {
			t.Fatal(s)
		}
		return tm, table, s
	}
	prepare := func(table *timetable, s []shot) []shot {
		if s = table.prepare(ctx, s); len(s) != 1 {
			t.Fatal(s)
		}
		return s
	}
	t.Run("before the job was enqueued", func(t *testing.T) {
		tm, _, s := begin(t, "call")
		tm.mustRound(newTicks(t, tm.client))
		wantFired(t, tm.fired("call"), "x", s[0].tick)
	})
	t.Run("before the tick was noted", func(t *testing.T) {
		tm, table, s := begin(t, "call")
		if _, err := tm.enqueue(ctx, prepare(table, s)); err != nil {
			t.Fatal(err)
		}
		wantFired(t, tm.fired("call"), "x", s[0].tick)
		tm.drop("call")
		tm.mustRound(newTicks(t, tm.client))
		wantFired(t, tm.fired("call"), "x")
		if fired := tm.client.HGet(ctx, periodicFiredKey, "x").Val(); fired != fmt.Sprint(s[0].tick) {
			t.Errorf("last tick fired: %q", fired)
		}
	})
	t.Run("and its queue changes", func(t *testing.T) {
		tm, table, s := begin(t, "old")
		ready := prepare(table, s)
		tm.serves("new")
		tm.mustRound(newTicks(t, tm.client))
		wantFired(t, tm.fired("old"), "x", s[0].tick)
		wantFired(t, tm.fired("new"), "x")
		if _, err := tm.enqueue(ctx, ready); err != nil { // it was only slow
			t.Fatal(err)
		}
		wantFired(t, tm.fired("old"), "x", s[0].tick)
	})
	t.Run("a straggler did not know that its queue has changed", func(t *testing.T) {
		tm, table, s := begin(t, "old")
		tm.mustRound(newTicks(t, tm.client))
		s[0].home = "new"
		if left := table.choose(ctx, s); len(left) > 0 {
			t.Errorf("%v; want no tick that was fired", left)
		}
	})
	t.Run("a straggler wakes when all is done and forgotten", func(t *testing.T) {
		tm, table, s := begin(t, "call")
		ready := prepare(table, s)
		tm.mustRound(newTicks(t, tm.client))
		tm.drop("call")
		if _, err := tm.enqueue(ctx, ready); err != nil {
			t.Fatal(err)
		}
		wantFired(t, tm.fired("call"), "x")
	})
	t.Run("a straggler wakes after days", func(t *testing.T) {
		tm, table, s := begin(t, "call")
		ready := prepare(table, s)
		ready[0].tick -= 26 * 3600 // there is no record of it
		if _, err := tm.enqueue(ctx, ready); err != nil {
			t.Fatal(err)
		}
		wantFired(t, tm.fired("call"), "x")
	})
	t.Run("a straggler of an entry that was removed", func(t *testing.T) {
		tm, table, s := begin(t, "call")
		ready := prepare(table, s)
		tm.mustRound(newTicks(t, tm.client))
		if there, err := NewClient(tm.client).RemovePeriodic(ctx, "x"); err != nil || !there {
			t.Fatal(there, err)
		}
		tm.drop("call")
		if _, err := tm.enqueue(ctx, ready); err != nil {
			t.Fatal(err)
		}
		wantFired(t, tm.fired("call"), "x")
		tm.mustRound(tm.ticks)
		wantFired(t, tm.fired("call"), "x")
	})
}

// TestPeriodicLostReply: after a lost reply of any script, each tick is still enqueued once.
func TestPeriodicLostReply(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	tm.set(Periodic{ID: "x", Spec: "@every 24h", MaxLate: 24 * time.Hour})
	tm.aged("x", 48*time.Hour)
	lossy := redis.NewClient(&redis.Options{Addr: tm.server.Addr()})
	defer lossy.Close()
	other := newTicks(t, lossy)
	lost := map[any]bool{} // the first reply of each script
	lossy.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); err == nil && strings.HasPrefix(cmd.Name(), "eval") && !lost[args[1]] {
			lost[args[1]] = true
			return io.ErrUnexpectedEOF
		}
		return err
	}))
	until(t, "fired", func() bool {
		_, err := other.round(t.Context())
		other.firing.Wait()
		other.loaded = other.loaded && err == nil // as Run does
		return err == nil && len(other.tables["call"].again) == 0
	})
	if len(lost) < 4 {
		t.Errorf("%d replies were lost", len(lost))
	}
	wantFired(t, tm.fired("call"), "x", tm.now()/86400*86400)
}

// TestPeriodicClockSetBack: after Redis's clock was set back, no tick fires twice.
func TestPeriodicClockSetBack(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	ctx := t.Context()
	tm.set(Periodic{ID: "x", Spec: "* * * * * *", Zone: "UTC"})
	tm.aged("x", 10*time.Hour)
	// All ticks of the next hour were fired, because the clock was an hour ahead.
	ahead := tm.now() + 3600
	tm.client.HSet(ctx, periodicFiredKey, "", ahead, "x", ahead)
	tm.client.ZAdd(ctx, store.Key("call", "periodic"), zOf("x", float64(ahead)))
	tm.mustRound(tm.ticks)
	tm.done = ahead
	tm.mustRound(tm.ticks)
	wantFired(t, tm.fired("call"), "x")
	if done, _ := tm.client.HGet(ctx, periodicFiredKey, "").Int64(); done > tm.now() {
		t.Errorf("everything is said to be fired until %d, which has not come", done)
	}
	// A worker that loaded the entries before the clock was set back fires nothing either.
	e := tm.tables["call"].entries[0]
	e.next = tm.now() - 1
	tm.mustRound(tm.ticks)
	wantFired(t, tm.fired("call"), "x")
}

// TestPeriodicIdleCost: entries that are not due cost Redis nothing, however many there are.
func TestPeriodicIdleCost(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	for i := range 300 {
		tm.set(Periodic{ID: fmt.Sprint(i), Spec: "@yearly", Zone: "UTC"})
	}
	tm.mustRound(tm.ticks)
	const rounds = 100
	before := commandStats(t, tm.client)
	for range rounds {
		tm.mustRound(tm.ticks)
	}
	used := commandStats(t, tm.client)
	// The script and its TIME, HGET and HSET; the version; INFO itself.
	if n := used.commands - before.commands; n > 5*rounds+5 {
		t.Errorf("%.0f commands for %d looks", n, rounds)
	}
}

// TestPeriodicCrowd: 10,000 entries with a tick at the same time, and two workers.
func TestPeriodicCrowd(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	tm := newTimer(t)
	const entries = 10_000
	p := Periodic{ID: "0", Spec: "@every 24h", MaxLate: 24 * time.Hour}
	tm.set(p)
	tm.aged("0", 48*time.Hour)
	text := tm.client.HGet(t.Context(), periodicKey, "0").Val()
	var fields []any
	for i := range entries {
		fields = append(fields, strconv.Itoa(i), text)
	}
	tm.client.HSet(t.Context(), periodicKey, fields...)
	began := time.Now()
	ended := make(chan error, 2)
	for range 2 {
		of := newTicks(t, tm.client)
		go func() { _, err := of.round(t.Context()); of.firing.Wait(); ended <- err }()
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d entries in %v", entries, time.Since(began))
	if n, _ := tm.client.HGet(t.Context(), store.Key("call", "totals"), "enqueued").Int(); n != entries {
		t.Errorf("%d jobs", n)
	}
}

func TestPeriodicOnEmbeddedRedis(t *testing.T) {
	t.Parallel()
	client := redistest.Embedded(t)
	if err := NewClient(client).SetPeriodic(t.Context(), Periodic{ID: "x", Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: Job{Kind: "call", Tenant: "a"}}); err != nil {
		t.Fatal(err)
	}
	text := client.HGet(t.Context(), periodicKey, "x").Val()
	_, rest, _ := strings.Cut(text, ",")
	client.HSet(t.Context(), periodicKey, "x", `{"since":1,`+rest)
	for range 2 {
		of := newTicks(t, client)
		if _, err := of.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		of.firing.Wait()
		if n, _ := client.HGet(t.Context(), store.Key("call", "totals"), "enqueued").Int(); n != 1 {
			t.Errorf("%d jobs", n)
		}
	}
}
