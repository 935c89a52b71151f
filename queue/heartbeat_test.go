package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/workers"
)

// TestWorkers: a worker is listed with its state while it runs, and not after it has ended.
func TestWorkers(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	test := func(t *testing.T, server *redistest.Redis) {
		client := server.Client()
		queue := redistest.Queue(t)
		worker := newWorker(t, Config{
			Redis: server.Options(), Queues: []string{queue, "another-" + queue}, Concurrency: 7,
			Details: func() any { return map[string]string{"words": "<a & b>"} },
		})
		entered, leave := make(chan struct{}), make(chan struct{})
		Handle(worker, "call", func(context.Context, struct{}) error {
			close(entered)
			<-leave
			return nil
		})
		Handle(worker, "bulk", func(context.Context, struct{}) error { return nil })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(ctx) }()
		if _, err := NewClient(client).Enqueue(t.Context(), Job{Kind: "call", Queue: queue, Tenant: "a", Payload: struct{}{}}); err != nil {
			t.Fatal(err)
		}
		<-entered
		mine := func() (found []workers.Info) {
			all, err := workers.List(t.Context(), client)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range all {
				if slices.Contains(w.Queues, queue) {
					found = append(found, w)
				}
			}
			return found
		}
		host, _ := os.Hostname()
		var w workers.Info
		for end := time.Now().Add(time.Minute); w.Sending != 1; { // until the next beat
			if time.Now().After(end) {
				t.Fatalf("%+v", mine())
			}
			if found := mine(); len(found) == 1 {
				w = found[0]
			}
			time.Sleep(20 * time.Millisecond)
		}
		if w.Host != host || w.PID != os.Getpid() || w.Concurrency != 7 || w.Held != 1 || w.Seen.Before(w.Started) || w.Seen.Sub(w.Started) > 15*time.Second ||
			!slices.Equal(w.Queues, []string{"another-" + queue, queue}) || !slices.Equal(w.Kinds, []string{"bulk", "call"}) || string(w.Details) != `{"words":"<a & b>"}` {
			t.Errorf("%+v", w)
		}
		if owner := strings.Split(client.HGet(t.Context(), asynqwire.Key(queue, "t:"+onlyActive(t, client, queue)), "hg_owner").Val(), ":")[0]; owner != w.ID {
			t.Errorf("the worker is %s, and the owner of its job %s", w.ID, owner)
		}
		cancel()
		<-ctx.Done()
		if len(mine()) != 1 {
			t.Error("while its last call is made it is gone")
		}
		close(leave)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if found := mine(); len(found) != 0 {
			t.Errorf("it has ended and is there: %+v", found)
		}
		if _, err := client.ZScore(t.Context(), workers.ListKey, w.ID).Result(); err != redis.Nil {
			t.Errorf("it has ended and is listed: %v", err)
		}
		if n := client.Exists(t.Context(), workers.Key(w.ID)).Val(); n != 0 {
			t.Error("it has ended and is remembered")
		}
	}
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Any(t))
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Of(redistest.Embedded(t)))
	})
}

// TestStarvedWorkers: a queue is limited by its workers while jobs could go and no worker has
// room for them, not while full workers wait for a limit.
func TestStarvedWorkers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		set     limits.Set
		starved bool
	}{
		"no room": {limitsOf(), true},
		"a limit": {limitsOf(windowOf("daily", 1, 24*time.Hour, "tenant")), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, 1, test.set, func(c *Config) { c.Concurrency = 1 })
			over := make(chan struct{})
			r.answer = func(context.Context, Running) error {
				<-over
				return nil
			}
			defer close(over)
			r.enqueue(t, "acme", 2)
			r.run(t)
			r.wait(t)
			var beats []workers.Info // while the worker was full
			for end := time.Now().Add(time.Minute); len(beats) < 3; {
				if time.Now().After(end) {
					t.Fatalf("%d heartbeats", len(beats))
				}
				all, err := workers.List(t.Context(), r.server.Client())
				if err != nil {
					t.Fatal(err)
				}
				for _, w := range all {
					if slices.Contains(w.Queues, r.queue) && w.Held == 1 && (len(beats) == 0 || w.Seen.After(beats[len(beats)-1].Seen)) {
						beats = append(beats, w)
					}
				}
				time.Sleep(20 * time.Millisecond)
			}
			last := beats[2:]
			if share, starved := workers.Starved(last)[r.queue]; starved != test.starved || starved && (share < 0.8 || share > 1) {
				t.Errorf("starved: %v, %v; want %v, almost always", starved, share, test.starved)
			}
			free := workers.Info{Queues: []string{r.queue}}
			if got := workers.Starved(append(last, free)); len(got) != 0 {
				t.Errorf("%v, beside a worker that has room", got)
			}
		})
	}
}

func onlyActive(t *testing.T, client redis.UniversalClient, queue string) string {
	t.Helper()
	ids, err := client.LRange(t.Context(), asynqwire.Key(queue, "active"), 0, -1).Result()
	if err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	return ids[0]
}

// TestKilledWorkerIsGone: one of two workers is killed. It is no longer listed when its key
// has expired; the other worker is.
func TestKilledWorkerIsGone(t *testing.T) {
	redistest.Slow(t)
	t.Parallel() // it measures no time, and takes a while
	server := redistest.Start(t, "--notify-keyspace-events", "Ex")
	ctx, client := t.Context(), server.Client()
	blocking := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: -1})
	defer blocking.Close()
	expired := blocking.PSubscribe(ctx, "__keyevent@0__:expired")
	defer expired.Close()
	if _, err := expired.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	processes := map[int]*exec.Cmd{}
	for range 2 {
		process := exec.Command(os.Args[0], "-test.run=^TestFleetProcess$")
		process.Env = append(os.Environ(), fleetEnv+"="+server.Addr())
		process.Stdout, process.Stderr = t.Output(), t.Output()
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		defer process.Process.Kill()
		processes[process.Process.Pid] = process
		if err := blocking.BLPop(ctx, time.Minute, "ready").Err(); err != nil {
			t.Fatal(err)
		}
	}
	listed := func(want int) []workers.Info {
		t.Helper()
		all, err := workers.List(ctx, client)
		if err != nil || len(all) != want {
			t.Fatalf("%+v, %v; want %d workers", all, err, want)
		}
		return all
	}
	both := listed(2)
	if both[0].PID > both[1].PID || processes[both[0].PID] == nil || processes[both[1].PID] == nil {
		t.Fatalf("%+v of %v", both, processes)
	}
	killed, other := both[0], both[1]
	if err := processes[killed.PID].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = processes[killed.PID].Wait()
	left := client.PTTL(ctx, workers.Key(killed.ID)).Val()
	if left <= 0 || left > workers.BeatLasts {
		t.Fatalf("it is remembered for %v", left)
	}
	listed(2)
	for deadline := time.After(left + 5*time.Second); ; {
		select {
		case event := <-expired.Channel():
			if event.Payload != workers.Key(killed.ID) {
				continue
			}
		case <-deadline:
			t.Fatal("it was not forgotten")
		}
		break
	}
	if all := listed(1); all[0].ID != other.ID || !all[0].Seen.After(other.Seen) {
		t.Errorf("%+v is left, want %s", all, other.ID)
	}
	client.RPush(ctx, "stop", "now")
	if err := processes[other.PID].Wait(); err != nil {
		t.Error(err)
	}
	listed(0)
}

// TestWorkersIndexHeals: dead workers in the index are not listed, and are removed in time. A
// living worker that is missing in the index is added again.
func TestWorkersIndexHeals(t *testing.T) {
	t.Parallel()
	onBothRedises(t, func(t *testing.T, server *redistest.Redis) {
		client := server.Client()
		ctx := t.Context()
		now := time.Now()
		id := func(what string) string { return redistest.Queue(t) + what }
		old, recent, strange, lives := id("old"), id("recent"), id("strange"), id("lives")
		client.ZAdd(ctx, workers.ListKey, redis.Z{Member: old, Score: float64(now.Add(-2 * time.Minute).UnixMilli())},
			redis.Z{Member: recent, Score: float64(now.Add(-20 * time.Second).UnixMilli())}, redis.Z{Member: strange, Score: float64(now.UnixMilli())})
		client.Set(ctx, workers.Key(strange), `{"id":"another"}`, time.Minute)
		h := &heart{
			renewals: &renewals{},
			redis:    client, clock: &redisClock{}, capacity: newCapacity(1), sending: &atomic.Int64{}, logger: slog.New(slog.DiscardHandler),
			info: workers.Info{ID: lives},
		}
		for range 2 {
			h.beat(ctx)
			all, err := workers.List(ctx, client)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range all {
				if w.ID == old || w.ID == recent || w.ID == strange || w.ID == "another" {
					t.Errorf("%+v is listed", w)
				}
			}
			if !slices.ContainsFunc(all, func(w workers.Info) bool { return w.ID == lives }) {
				t.Errorf("it lives and is not listed: %+v", all)
			}
			listed := client.ZRange(ctx, workers.ListKey, 0, -1).Val()
			if slices.Contains(listed, old) || !slices.Contains(listed, recent) {
				t.Errorf("listed: %v", listed)
			}
			client.ZRem(ctx, workers.ListKey, lives) // as a failover would lose it
		}
	})
}

// TestDetailsAreBounded: details that are too large or not JSON are left out, which is
// logged once, and the worker is still listed.
func TestDetailsAreBounded(t *testing.T) {
	client := redistest.Any(t).Client()
	var log bytes.Buffer
	var value any
	h := &heart{
		renewals: &renewals{},
		redis:    client, clock: &redisClock{}, capacity: newCapacity(1), sending: &atomic.Int64{}, logger: slog.New(slog.NewTextHandler(&log, nil)),
		details: func() any { return value }, info: workers.Info{ID: redistest.Queue(t)},
	}
	for _, test := range []struct {
		value   any
		details string
		lines   int
	}{
		{nil, "", 0},
		{strings.Repeat("x", 16<<10-2), fmt.Sprintf("%q", strings.Repeat("x", 16<<10-2)), 0},
		{strings.Repeat("x", 16<<10-1), "", 1},
		{make(chan int), "", 1},
		{map[string]int{"a": 1}, `{"a":1}`, 1},
		{make(chan int), "", 2},
	} {
		value = test.value
		h.beat(t.Context())
		var stored workers.Info
		if err := json.Unmarshal([]byte(client.Get(t.Context(), workers.Key(h.info.ID)).Val()), &stored); err != nil {
			t.Fatal(err)
		}
		if string(stored.Details) != test.details || stored.ID != h.info.ID {
			t.Errorf("%T: %.100s", test.value, stored.Details)
		}
		if lines := strings.Count(log.String(), "left out"); lines != test.lines {
			t.Errorf("%T: %d lines: %s", test.value, lines, &log)
		}
	}
	ttl := client.PTTL(t.Context(), workers.Key(h.info.ID)).Val()
	if ttl <= 0 || ttl > 15*time.Second {
		t.Errorf("it is remembered for %v", ttl)
	}
}

// TestLeasesDoNotWaitForDetails: a worker whose Details do not return is listed without them.
func TestLeasesDoNotWaitForDetails(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	client := redistest.Any(t).Client()
	answer := make(chan any)
	h := &heart{
		redis: client, clock: &redisClock{}, capacity: newCapacity(1), sending: &atomic.Int64{}, logger: slog.New(slog.DiscardHandler),
		renewals: &renewals{}, details: func() any { return <-answer }, info: workers.Info{ID: redistest.Queue(t)},
	}
	beat := func(want string) {
		t.Helper()
		h.beat(t.Context())
		var stored workers.Info
		if err := json.Unmarshal([]byte(client.Get(t.Context(), workers.Key(h.info.ID)).Val()), &stored); err != nil || string(stored.Details) != want {
			t.Errorf("%+v, %v; want details %s", stored, err, want)
		}
	}
	beat("")
	answer <- 1
	beat("1")
	beat("1") // it hangs again: the last details are published
	close(answer)
}
