package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
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

// TestPeriodicDeath: if a worker dies at any step of firing, no tick is lost, and the worker
// that goes on repeats none, even if the queue of the kind has changed.
func TestPeriodicDeath(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	// begin does the first steps of firing the last minute's tick and stops.
	begin := func(t *testing.T, queue string) (tm *timer, table *timetable, s []shot) {
		tm = newTimer(t)
		tm.set(Periodic{ID: "x", Spec: "@every 24h", Job: Job{Kind: "call", Tenant: "a", Queue: queue, Payload: struct{}{}}, MaxLate: 24 * time.Hour})
		tm.aged("x", 48*time.Hour)
		if err := tm.load(ctx); err != nil {
			t.Fatal(err)
		}
		table = tm.tables[queue]
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
		// As if the kind's queue had changed. The schedule is the same.
		text := tm.client.HGet(ctx, periodicKey, "x").Val()
		tm.client.HSet(ctx, periodicKey, "x", strings.Replace(text, `"Queue":"old"`, `"Queue":"new"`, 1))
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
	hook := &losing{lost: map[any]bool{}}
	lossy.AddHook(hook)
	until(t, "fired", func() bool {
		_, err := other.round(t.Context())
		other.firing.Wait()
		other.loaded = other.loaded && err == nil // as Run does
		return err == nil && len(other.tables["call"].again) == 0
	})
	if len(hook.lost) < 4 {
		t.Errorf("%d replies were lost", len(hook.lost))
	}
	wantFired(t, tm.fired("call"), "x", tm.now()/86400*86400)
}

// losing loses the first reply of each script.
type losing struct{ lost map[any]bool }

func (*losing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *losing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); err == nil && strings.HasPrefix(cmd.Name(), "eval") && !l.lost[args[1]] {
			l.lost[args[1]] = true
			err = io.ErrUnexpectedEOF
			cmd.SetErr(err)
		}
		return err
	}
}

func (*losing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
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

// full returns a job that the queue call does not accept, because it has one, its maximum.
func (tm *timer) full(t *testing.T) Job {
	t.Helper()
	if err := operate.Publish(t.Context(), tm.client, limits.Set{Queues: map[string]limits.Queue{"call": {Kinds: []string{"call"}, MaxBacklog: 1}}}); err != nil {
		t.Fatal(err)
	}
	job := Job{Kind: "call", Tenant: "a", Payload: struct{}{}}
	if _, err := tm.ticks.client.Enqueue(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	return job
}

// TestPeriodicRefused: a tick whose job is rejected is tried again until it is accepted, or
// until the next tick.
func TestPeriodicRefused(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	ctx, full := t.Context(), tm.full(t)
	tm.set(Periodic{ID: "x", Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: full})
	tm.set(Periodic{ID: "other", Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: Job{Kind: "call", Tenant: "b", Payload: struct{}{}}})
	tm.aged("x", 48*time.Hour)
	tm.aged("other", 48*time.Hour)
	today := tm.now() / 86400 * 86400
	for range 3 {
		if wait := tm.mustRound(tm.ticks); wait < 100*time.Millisecond {
			t.Errorf("it is tried again after %v", wait)
		}
		if got := tm.fired("call"); len(got) != 2 || got[fmt.Sprint("other ", today)] != 1 {
			t.Errorf("fired %v, want the other one and the job that was there", got)
		}
	}
	tm.drop("call")
	tm.client.Del(ctx, store.TenantsKey("call"))
	tm.mustRound(tm.ticks)
	wantFired(t, tm.fired("call"), "x", today)
}

// TestPeriodicRefusedAndLoadedAgain: a tick that was rejected is not lost when the entries are loaded again, because
// one of them changed or because Redis did not answer, or by another worker after the only one was restarted.
func TestPeriodicRefusedAndLoadedAgain(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted %v", restarted), func(t *testing.T) { refusedAndLoadedAgain(t, restarted) })
	}
}

func refusedAndLoadedAgain(t *testing.T, restarted bool) {
	t.Parallel()
	tm := newTimer(t)
	ctx, full := t.Context(), tm.full(t)
	for _, id := range []string{"x", "changed"} {
		tm.set(Periodic{ID: id, Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: full})
		tm.aged(id, 48*time.Hour)
	}
	today := tm.now() / 86400 * 86400
	tm.mustRound(tm.ticks)
	tm.set(Periodic{ID: "changed", Spec: "@every 12h", MaxLate: 24 * time.Hour, Job: full}) // its ticks of before were not missed
	tm.mustRound(tm.ticks)
	tm.loaded = false
	tm.mustRound(tm.ticks)
	tm.drop("call")
	tm.client.Del(ctx, store.TenantsKey("call"))
	if restarted {
		tm.ticks = newTicks(t, tm.client)
	}
	tm.mustRound(tm.ticks)
	wantFired(t, tm.fired("call"), "x", today)
}

// TestPeriodicBesideAQueueAway: while the Redis of one queue does not answer, or answers with errors, the ticks of
// others are fired in time. The queue's own go on afterwards.
func TestPeriodicBesideAQueueAway(t *testing.T) {
	for _, name := range []string{"waiting", "limits"} { // the key of which nothing is known
		for _, silent := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, silent %v", name, silent), func(t *testing.T) {
				t.Parallel()
				tm := newTimer(t)
				word, end := store.Key("away", name), make(chan struct{})
				client := redis.NewClient(&redis.Options{Addr: tm.server.Addr()})
				defer client.Close()
				var away atomic.Bool
				away.Store(true)
				client.AddHook(while{&away, redistest.Silent{Word: word, End: end}})
				for _, queue := range []string{"away", "other"} {
					for i := range 3 {
						tm.set(Periodic{ID: fmt.Sprint(queue, i), Spec: "* * * * * *", Zone: "UTC", Overlap: OverlapQueue,
							Job: Job{Kind: queue, Tenant: fmt.Sprint("t", i), Payload: struct{}{}}})
					}
				}
				if !silent {
					close(end)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { newTicks(t, client).Run(ctx) })
				from, began := tm.now()+1, time.Now()
				const seconds = 5
				got := map[string]int{}
				until(t, "fired in the other queue", func() bool {
					got = tm.fired("other")
					for i := range 3 {
						if got[fmt.Sprint("other", i, " ", from+seconds-1)] == 0 {
							return false
						}
					}
					return true
				})
				if took := time.Since(began); took > (seconds+2)*time.Second {
					t.Errorf("%d ticks in a row were fired after %v", seconds, took)
				}
				for i := range 3 {
					for tick := from; tick < from+seconds; tick++ {
						if got[fmt.Sprint("other", i, " ", tick)] != 1 {
							t.Errorf("tick %d of entry %d: not fired once; all: %v", tick, i, got)
						}
					}
				}
				if got := tm.fired("away"); len(got) > 0 {
					t.Errorf("fired into the queue that is away: %v", got)
				}
				away.Store(false)
				if silent {
					close(end)
				}
				back := tm.now()
				until(t, "fired in the queue that is back", func() bool { return tm.fired("away")[fmt.Sprint("away0 ", back+2)] == 1 })
				cancel()
				running.Wait()
				for tick, n := range tm.fired("away") {
					if n != 1 {
						t.Errorf("%d jobs of %s", n, tick)
					}
				}
			})
		}
	}
}

// while is a hook that works as long as its flag is set.
type while struct {
	on *atomic.Bool
	redistest.Silent
}

func (w while) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	hooked := w.Silent.ProcessHook(next)
	return func(ctx context.Context, cmd redis.Cmder) error {
		if w.on.Load() {
			return hooked(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

// TestPeriodicDamaged: a damaged queue blocks only its own ticks, and damaged records of
// fired ticks are replaced.
func TestPeriodicDamaged(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	ctx := t.Context()
	for _, queue := range []string{"call", "mail"} {
		tm.set(Periodic{ID: queue, Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: Job{Kind: queue, Tenant: "a", Payload: struct{}{}}})
		tm.aged(queue, 48*time.Hour)
	}
	today := tm.now() / 86400 * 86400
	for _, name := range []string{store.Key("call", "periodic"), periodicFiredKey} {
		if err := tm.client.Set(ctx, name, "damaged", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	tm.mustRound(tm.ticks)
	wantFired(t, tm.fired("mail"), "mail", today)
	if got := tm.fired("call"); len(got) != 0 {
		t.Errorf("fired %v into the damaged queue", got)
	}
	if faults, err := inspect.Faults(ctx, tm.client, "call"); err != nil || len(faults) != 1 {
		t.Errorf("faults %+v, %v; want one", faults, err)
	}
	tm.client.Del(ctx, store.Key("call", "periodic"))
	tm.mustRound(tm.ticks)
	wantFired(t, tm.fired("call"), "call", today)
	wantFired(t, tm.fired("mail"), "mail", today)
}

// TestPeriodicDeclared: setting the same periodic job again changes nothing. After a change
// of the schedule, or a pause, only later ticks fire.
func TestPeriodicDeclared(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	ctx := t.Context()
	p := Periodic{ID: "x", Spec: "* * * * *", Zone: "UTC"}
	since := func() int64 {
		var stored storedPeriodic
		if err := json.Unmarshal([]byte(tm.client.HGet(ctx, periodicKey, "x").Val()), &stored); err != nil {
			t.Fatal(err)
		}
		return stored.Since
	}
	version := func() string { return tm.client.HGet(ctx, periodicKey, "").Val() }
	tm.set(p)
	tm.aged("x", time.Hour)
	old, before := since(), version()
	tm.set(p)
	if since() != old || version() != before {
		t.Error("the same again is a change")
	}
	p.Job = Job{Kind: "call", Tenant: "other", Payload: 1}
	tm.set(p)
	if since() != old || version() == before {
		t.Error("another job must not forget what was missed, and must reach the workers")
	}
	p.Paused = true
	tm.set(p)
	tm.mustRound(tm.ticks)
	wantFired(t, tm.fired("call"), "x")
	p.Paused = false
	tm.set(p)
	if since() == old {
		t.Error("ticks of a pause count as missed")
	}
	tm.aged("x", time.Hour)
	p.Spec = "*/2 * * * *"
	tm.set(p)
	if since() == old {
		t.Error("ticks before a change of the schedule count as missed")
	}
	if there, err := NewClient(tm.client).PausePeriodic(ctx, "x", true); err != nil || !there {
		t.Error(there, err)
	}
	if list, err := NewClient(tm.client).ListPeriodic(ctx); err != nil || len(list) != 1 || !list[0].Paused || !list[0].Next.IsZero() || list[0].Job.Tenant != "other" || list[0].MaxLate != time.Hour {
		t.Errorf("%+v, %v", list, err)
	}
	for _, id := range []string{"", "y"} {
		if there, err := NewClient(tm.client).PausePeriodic(ctx, id, true); err != nil || there {
			t.Errorf("pause of %q: %v, %v", id, there, err)
		}
		if there, err := NewClient(tm.client).RemovePeriodic(ctx, id); err != nil || there {
			t.Errorf("removal of %q: %v, %v", id, there, err)
		}
	}
	if there, err := NewClient(tm.client).RemovePeriodic(ctx, "x"); err != nil || !there {
		t.Error(there, err)
	}
	if list, err := NewClient(tm.client).ListPeriodic(ctx); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestHostilePeriodic(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	ctx := t.Context()
	tests := map[string]struct {
		edit          func(*Periodic)
		field, reason string
	}{
		"no id":          {func(p *Periodic) { p.ID = "" }, "id", "empty"},
		"id of 201":      {func(p *Periodic) { p.ID = strings.Repeat("x", 201) }, "id", "the maximum is 200"},
		"id with NUL":    {func(p *Periodic) { p.ID = "a\x00" }, "id", "control"},
		"id not UTF-8":   {func(p *Periodic) { p.ID = "\xff" }, "id", "UTF-8"},
		"no spec":        {func(p *Periodic) { p.Spec = "" }, "spec", "empty"},
		"never":          {func(p *Periodic) { p.Spec = "0 0 30 2 *" }, "spec", "no tick in the next five years"},
		"no zone":        {func(p *Periodic) { p.Zone = "" }, "zone", "required"},
		"late by 1 s":    {func(p *Periodic) { p.MaxLate = time.Second }, "max_late", "10s to 24h"},
		"late by a week": {func(p *Periodic) { p.MaxLate = 7 * 24 * time.Hour }, "max_late", "10s to 24h"},
		"late by -1":     {func(p *Periodic) { p.MaxLate = math.MinInt64 }, "max_late", "10s to 24h"},
		"overlap":        {func(p *Periodic) { p.Overlap = "forbid" }, "overlap", `"forbid" is not skip, queue or replace`},
		"at":             {func(p *Periodic) { p.Job.At = time.Now() }, "job.at", "leave it out"},
		"in":             {func(p *Periodic) { p.Job.In = 1 }, "job.in", "leave it out"},
		"key":            {func(p *Periodic) { p.Job.Key = "k" }, "job.key", "leave it out"},
		"deadline":       {func(p *Periodic) { p.Job.Deadline = time.Now().Add(time.Hour) }, "job.deadline", "leave it out"},
		"no kind":        {func(p *Periodic) { p.Job.Kind = "" }, "job.kind", "1 to 64"},
		"no tenant":      {func(p *Periodic) { p.Job.Tenant = "" }, "job.tenant", "empty"},
		"queue":          {func(p *Periodic) { p.Job.Queue = "{}" }, "job.queue", "1 to 64"},
		"a large job":    {func(p *Periodic) { p.Job.Payload = make([]byte, 2<<20) }, "job.payload", "the maximum is"},
		"a func":         {func(p *Periodic) { p.Job.Payload = func() {} }, "job.payload", "unsupported type"},
		"key window":     {func(p *Periodic) { p.Job.KeyWindow = time.Hour }, "job.key", "key_window"},
		"costs":          {func(p *Periodic) { p.Job.Costs = map[string]int64{"tokens": -1} }, "job.costs", "tokens"},
		"attempts":       {func(p *Periodic) { p.Job.MaxAttempts = -1 }, "job.max_attempts", "must be 1 to"},
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			p := Periodic{ID: "x", Spec: "@daily", Zone: "UTC", Job: Job{Kind: "call", Tenant: "a"}}
			test.edit(&p)
			err := NewClient(tm.client).SetPeriodic(ctx, p)
			invalid, ok := errors.AsType[*validation.Error](err)
			if !ok || invalid.Field != test.field || !strings.Contains(invalid.Reason, test.reason) || len(err.Error()) > 300 {
				t.Errorf("%v; want %s: …%s…", err, test.field, test.reason)
			}
		})
	}
	if err := NewClient(tm.client).SetPeriodic(ctx, Periodic{}); err == nil || len(validation.Unjoin(err)) != 5 {
		t.Errorf("nothing at all: %v; want id, spec, and kind, queue and tenant of the job", err)
	}
	if n := len(redistest.Keys(t, tm.client, "*")); n > 0 {
		t.Errorf("%d keys were written", n)
	}

	// Entries of any name and payload fire next to damaged ones.
	ids := []string{"{}", "*", "a b", "0", "日本", `"`, `{"since":1,"paused":true,`, "%d %s", strings.Repeat("é", 100), "\u202e"}
	for _, id := range ids {
		tm.set(Periodic{ID: id, Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: Job{Kind: "call", Tenant: "a", Payload: []byte("\xff\x00" + id)}})
		tm.aged(id, 48*time.Hour)
	}
	tm.client.HSet(ctx, periodicKey, "broken", "{", "of tomorrow", `{"since":1,"paused":false,"spec":"@lunar","zone":"UTC","max_late_seconds":60}`)
	tm.client.HSet(ctx, periodicFiredKey, "0", "nonsense")
	today := tm.now() / 86400 * 86400
	for range 2 {
		tm.mustRound(tm.ticks)
		got := tm.fired("call")
		for _, id := range ids {
			if got[fmt.Sprint(id, " ", today)] != 1 {
				t.Errorf("%q did not fire once: %v", id, got)
			}
		}
	}
	list, err := NewClient(tm.client).ListPeriodic(ctx)
	if err != nil || len(list) != len(ids)+2 {
		t.Fatalf("%d entries, %v", len(list), err)
	}
	for _, state := range list {
		broken := state.ID == "broken" || state.ID == "of tomorrow"
		if (state.Err != nil) != broken || (state.LastFired.Unix() == today) == broken || state.Next.IsZero() != broken {
			t.Errorf("%+v", state)
		}
		if payload, _ := state.Job.Payload.([]byte); !broken && string(payload) != "\xff\x00"+state.ID {
			t.Errorf("%q has the payload %q", state.ID, payload)
		}
	}
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
