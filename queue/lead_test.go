package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// named returns the dispatcher of another worker, which counts its rounds.
func (r *rig) named(worker string) (*dispatcher, *counter) {
	d, seen := r.dispatcher(), newCounter()
	d.worker, d.observer, d.roles = worker, seen, newRoles(r.server.Client(), worker)
	return d, seen
}

// looks calls look of a dispatcher once, and returns how many rounds it has made.
func (r *rig) looks(t *testing.T, d *dispatcher, seen *counter) int {
	t.Helper()
	if _, err := d.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	return seen.outcomes("round")
}

// leads checks who leads the queue, among workers of the kind call.
func (r *rig) leads(t *testing.T, want string) {
	t.Helper()
	role := store.Key(r.queue, "lead:,call,")
	who, left := r.server.Client().Get(t.Context(), role).Val(), r.server.Client().PTTL(t.Context(), role).Val()
	longest := leadLasts
	if want == dispatchedByAll {
		longest = 2 * leadLasts
	}
	if who != want || left <= 0 || left > longest {
		t.Errorf("%q leads for %v; want %q, for %v at most", who, left, want, longest)
	}
}

// announcements subscribes to the announcements of the queue.
func (r *rig) announcements(t *testing.T) <-chan *redis.Message {
	t.Helper()
	channel := r.server.Client().Subscribe(t.Context(), store.WakeChannel(r.queue))
	t.Cleanup(func() { _ = channel.Close() })
	if _, err := channel.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	return channel.Channel()
}

// hears waits for an announcement. One to the leader may come in between: in a Cluster, that of the limits
// which were published before this test listened.
func hears(t *testing.T, announced <-chan *redis.Message, want string) {
	t.Helper()
	for end := time.After(20 * time.Second); ; {
		select {
		case message := <-announced:
			if message.Payload == want {
				return
			}
			if message.Payload != "" {
				t.Errorf("%q is announced; want %q", message.Payload, want)
			}
		case <-end:
			t.Fatalf("%q is not announced", want)
		}
	}
}

// heard waits until this many workers listen to announcements.
func (r *rig) heard(t *testing.T, workers int64) {
	t.Helper()
	name := store.WakeChannel(r.queue)
	until(t, "workers listen", func() bool { return r.server.Client().PubSubNumSub(t.Context(), name).Val()[name] == workers })
}

// TestOneLeads: the first worker that dispatches leads, and another one stands by until the
// lead ends.
func TestOneLeads(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	first, _ := r.named("first")
	second, rounds := r.named("second")
	if wait, err := first.look(t.Context()); err != nil || wait != first.poll {
		t.Errorf("the leader looks again in %v, %v; want %v", wait, err, first.poll)
	}
	r.leads(t, "first")
	for range 3 {
		if n := r.looks(t, second, rounds); n != 1 {
			t.Errorf("who stands by made %d rounds; want the one that told it", n)
		}
		second.roles.taken(second.role(), leadLasts) // however slow this machine is
	}
	if wait, err := second.look(t.Context()); err != nil || wait <= 0 || wait > leadLasts {
		t.Errorf("who stands by looks again in %v, %v; want it within %v", wait, err, leadLasts)
	}
	r.server.Client().PExpire(t.Context(), second.role(), leadLasts)
	second.roles.ask(t.Context())
	if n := r.looks(t, second, rounds); n != 1 {
		t.Errorf("while the lead lasts it made %d rounds", n)
	}
	r.server.Client().Del(t.Context(), second.role()) // as the end of the lead does
	second.roles.ask(t.Context())
	if n := r.looks(t, second, rounds); n != 2 {
		t.Errorf("after the lead it made %d rounds; want another one", n)
	}
	r.leads(t, "second")
}

// TestLeadIsRenewed: a leader keeps the lead, and rarely writes it.
func TestLeadIsRenewed(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	d, client := r.dispatcher(), r.server.Client()
	for _, test := range []struct {
		left    time.Duration
		renewed bool
	}{{leadLasts, false}, {leadLasts - 100*time.Millisecond, false}, {leadLasts / 2, true}} {
		client.Set(t.Context(), d.role(), d.worker, test.left)
		r.round(t, d)
		if left := client.PTTL(t.Context(), d.role()).Val(); (left > test.left) != test.renewed {
			t.Errorf("of a lead of %v %v are left; renewed: want %v", test.left, left, test.renewed)
		}
	}
}

// TestAllDispatchUnderLoad: a leader with too many jobs lets all workers dispatch, and
// announces that to them.
func TestAllDispatchUnderLoad(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		jobs  int
		room  int64
		held  int64
		leads bool
	}{
		"idle":                          {0, 100, 0, true},
		"as many jobs as a leader has":  {maxAlone, 100, 0, true},
		"one more":                      {maxAlone + 1, 100, 0, false},
		"with those in its hands":       {2, 100, maxAlone - 1, false},
		"too many in its hands":         {0, 100, maxAlone + 1, false},
		"full":                          {1, 1, 0, false},
		"no room":                       {1, 0, 0, false},
		"only a part of places is free": {0, 25, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, -1, limitsOf(), nil)
			announced := r.announcements(t)
			d, _ := r.named("w")
			d.capacity.held.Store(test.held)
			client := r.server.Client()
			client.Set(t.Context(), d.role(), "w", leadLasts)
			if test.jobs > 0 {
				r.enqueue(t, "a", test.jobs)
				hears(t, announced, "") // the first job
			}
			if _, err := d.round(t.Context(), test.room); err != nil {
				t.Fatal(err)
			}
			if test.leads {
				r.leads(t, "w")
				return
			}
			r.leads(t, dispatchedByAll)
			hears(t, announced, store.ToAll)
			other, _ := r.named("other")
			r.round(t, other)
			if other.stands.Load() {
				t.Error("another worker stands by")
			}
			r.leads(t, dispatchedByAll)
		})
	}
}

// TestFullLeader: two workers have places for two calls each, and calls do not end. Jobs for
// which the leader has no place go to the other worker at once.
func TestFullLeader(t *testing.T) {
	t.Parallel()
	first := startRig(t, -1, limitsOf(), func(c *Config) { c.Concurrency = 2 })
	release := make(chan struct{})
	first.answer = func(context.Context, Running) error {
		<-release
		return nil
	}
	second := first.beside(t, func(c *Config) { c.Concurrency = 2 })
	second.worker.poll = time.Hour
	first.run(t)
	first.seen.wait(t, "round", 2)
	second.run(t)
	second.seen.wait(t, "round", 1)
	first.heard(t, 2)
	announced := first.announcements(t)
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	for range 4 {
		first.enqueue(t, "a", 1)
	}
	first.seen.wait(t, "sent", 2)
	second.seen.wait(t, "sent", 2)
	hears(t, announced, store.ToAll) // the other worker does not wait for the end of a lead
}

// TestLeadEnds: an invalid lead key keeps no worker from its jobs.
func TestLeadEnds(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(client redis.UniversalClient, ctx context.Context, role string){
		"it has no end": func(client redis.UniversalClient, ctx context.Context, role string) { client.Set(ctx, role, "x", 0) },
		"the clock was set back by an hour": func(client redis.UniversalClient, ctx context.Context, role string) {
			client.Set(ctx, role, "x", time.Hour)
		},
		"the clock was set back while all dispatched": func(client redis.UniversalClient, ctx context.Context, role string) {
			client.Set(ctx, role, dispatchedByAll, time.Hour)
		},
		"it is a list": func(client redis.UniversalClient, ctx context.Context, role string) { client.RPush(ctx, role, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, -1, limitsOf(), nil)
			client := r.server.Client()
			d, seen := r.named("w")
			r.enqueue(t, "a", 1)
			damage(client, t.Context(), d.role())
			d.stands.Store(true)
			d.roles.taken(d.role(), leadLasts)
			d.roles.ask(t.Context())
			if r.looks(t, d, seen) != 1 || d.stands.Load() {
				t.Error("it stands by")
			}
			if n := client.LLen(t.Context(), asynqwire.Key(r.queue, "active")).Val(); n != 1 {
				t.Errorf("%d jobs were handed over; want 1", n)
			}
			r.leads(t, "w")
		})
	}
}

// TestLeaderThatDied: when a leader is dead, another worker leads as soon as its lead has ended.
func TestLeaderThatDied(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	r.worker.poll = time.Hour
	role := store.Key(r.queue, "lead:"+kindList([]string{"call"}))
	r.server.Client().Set(t.Context(), role, "dead", leadLasts)
	r.run(t)
	r.seen.wait(t, "round", 1)
	enqueued := time.Now()
	r.enqueue(t, "a", 1)
	r.seen.wait(t, string(lifecycle.Done), 1)
	if took := time.Since(enqueued); took > leadLasts+10*time.Second {
		t.Errorf("the job waited for %v", took)
	}
}

// TestLeaderThatStops: a worker that stops gives up its lead, and new jobs go at once.
func TestLeaderThatStops(t *testing.T) {
	t.Parallel()
	first := startRig(t, -1, limitsOf(), nil)
	second := first.beside(t, nil)
	second.worker.poll = time.Hour
	first.run(t)
	first.seen.wait(t, "round", 2)
	second.run(t)
	second.seen.wait(t, "round", 1)
	first.heard(t, 2)
	role := store.Key(first.queue, "lead:"+kindList([]string{"call"}))
	leader := first.server.Client().Get(t.Context(), role).Val()
	announced := first.announcements(t)
	first.stop()
	if left := first.server.Client().Get(t.Context(), role).Val(); left == leader {
		t.Error("a worker leads that has ended")
	}
	hears(t, announced, store.ToAll) // the other worker does not wait for the end of a lead
	second.enqueue(t, "a", 1)
	second.seen.wait(t, string(lifecycle.Done), 1)
}

// TestLeadersOfKinds: workers of other kinds have a leader of their own.
func TestLeadersOfKinds(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	for _, kinds := range [][]string{{"call"}, {"other"}, {"call", "other"}} {
		d, seen := r.named(fmt.Sprint(kinds))
		d.kinds = kindList(kinds)
		if n := r.looks(t, d, seen); n != 1 || d.stands.Load() {
			t.Errorf("kinds %v: %d rounds, stands by: %v", kinds, n, d.stands.Load())
		}
		if n := r.looks(t, d, seen); n != 2 {
			t.Errorf("kinds %v: %d rounds; want it to lead", kinds, n)
		}
	}
}

// TestStandingBy: a worker that stands by makes rounds only for announcements to all, and
// announces to the leader what it learns itself.
func TestStandingBy(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	d, seen := r.named("w")
	d.poll = time.Hour
	client.Set(t.Context(), d.role(), "leader", leadLasts)
	announced := r.announcements(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { listen(ctx, client, []*dispatcher{d}, func() {}) })
	select {
	case <-d.called: // it listens
	case <-time.After(time.Minute):
		t.Fatal("it does not look when it begins to listen")
	}
	running.Go(func() { d.Run(ctx) })
	until(t, "it stands by", d.stands.Load)
	d.roles.taken(d.role(), time.Hour) // however slow this machine is

	store.Announce(ctx, client, r.queue)
	hears(t, announced, "")
	d.wake() // as a settlement does
	hears(t, announced, "")
	if n := seen.outcomes("round"); n != 1 {
		t.Errorf("it made %d rounds because of jobs", n-1)
	}
	store.AnnounceToAll(ctx, client, r.queue)
	hears(t, announced, store.ToAll)
	seen.wait(t, "round", 2)
}

// TestStandingByWithJobs: a worker that stands by with jobs makes rounds because of pauses,
// and one more when its jobs have ended, for the observer.
func TestStandingByWithJobs(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	d, seen := r.named("w")
	r.server.Client().Set(t.Context(), d.role(), "leader", leadLasts)
	leave, _ := d.live.enter(d.queue, asynqwire.Run{ID: "x"}, 0, nil, nil)
	for n := range 3 {
		wait, err := d.look(t.Context())
		if err != nil || wait > d.poll || seen.outcomes("round") != n+1 {
			t.Errorf("after %d looks: %d rounds, the next in %v, %v", n+1, seen.outcomes("round"), wait, err)
		}
	}
	leave()
	for range 3 {
		r.looks(t, d, seen)
	}
	if n := seen.outcomes("round"); n != 4 {
		t.Errorf("%d rounds; want one more, and no others", n)
	}
}

// TestStandingByTellsOfItsRound: a worker whose round changed something announces that to the
// leader, which does not know when the next job is due.
func TestStandingByTellsOfItsRound(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	announced := r.announcements(t)
	r.enqueue(t, "a", 1)
	hears(t, announced, "")
	d, _ := r.named("w")
	r.server.Client().Set(t.Context(), d.role(), "leader", leadLasts)
	r.round(t, d)
	hears(t, announced, "")
}

// TestPauseReachesWhoStandsBy: a call that starts a pause announces it to all workers,
// because some may stand by with jobs.
func TestPauseReachesWhoStandsBy(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	r.answer = func(context.Context, Running) error { return throttled{time.Minute} }
	announced := r.announcements(t)
	r.enqueue(t, "a", 1)
	hears(t, announced, "")
	r.run(t)
	r.seen.wait(t, string(lifecycle.Throttled), 1)
	hears(t, announced, store.ToAll)
}
