package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/store"
)

const (
	fleetEnv       = "HEADGATE_TEST_FLEET" // the address of Redis
	fleetProcesses = 3
	fleetEntries   = 500
)

// TestFleetProcess is one of the worker processes of TestPeriodicFleet. By itself it does
// nothing.
func TestFleetProcess(t *testing.T) {
	addr := os.Getenv(fleetEnv)
	if addr == "" {
		return
	}
	options := &redis.UniversalOptions{Addrs: []string{addr}}
	client := redis.NewUniversalClient(options)
	defer client.Close()
	worker := newWorker(t, Config{Redis: options, Queues: []string{"q"}})
	Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
		job, _ := Current(ctx)
		// A call may come twice, with the same job; a tick must have one job.
		return client.SAdd(ctx, "jobs", fmt.Sprintf("%s %d %s %s", job.Periodic, job.Tick.Unix(), job.Tenant, job.ID)).Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	parts.Go(func() {
		defer cancel()
		for worker.Ready() != nil && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		client.RPush(ctx, "ready", os.Getpid())
		client.BLPop(ctx, 0, "stop")
	})
	if err := worker.Run(ctx); err != nil {
		t.Error(err)
	}
	cancel()
	parts.Wait()
}

// TestPeriodicFleet: 500 periodic jobs with ticks every few seconds, in several time zones
// and of several tenants, and three workers of which one is killed: each tick of each
// periodic job has exactly one job.
func TestPeriodicFleet(t *testing.T) {
	redistest.Slow(t)
	t.Parallel() // it measures no time, and takes a while
	server := redistest.Start(t)
	ctx, client := t.Context(), server.Client()
	blocking := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: -1})
	defer blocking.Close()
	var processes []*exec.Cmd
	for range fleetProcesses {
		process := exec.Command(os.Args[0], "-test.run=^TestFleetProcess$")
		process.Env = append(os.Environ(), fleetEnv+"="+server.Addr())
		process.Stdout, process.Stderr = t.Output(), t.Output()
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		defer process.Process.Kill()
		processes = append(processes, process)
	}
	for range processes {
		if err := blocking.BLPop(ctx, time.Minute, "ready").Err(); err != nil {
			t.Fatal(err)
		}
	}

	specs := []struct{ spec, zone string }{
		{"*/2 * * * * *", "UTC"}, {"1-59/2 * * * * *", "Europe/Berlin"}, {"@every 2s", ""},
		{"0,2,5,7,10,12,15,17,20,22,25,27,30,32,35,37,40,42,45,47,50,52,55,57 * * * * *", "Asia/Kathmandu"},
		{"*/3 * 0-22,23 * * *", "America/St_Johns"}, {"* * 0-23/2,1-23/2 * * *", "Australia/Lord_Howe"},
	}
	for i := range fleetEntries {
		s := specs[i%5] // one each second is enough for a few:
		if i%50 == 0 {
			s = specs[5]
		}
		p := Periodic{ID: fmt.Sprint("entry-", i), Spec: s.spec, Zone: s.zone, Overlap: OverlapQueue, Job: Job{Kind: "call", Queue: "q", Tenant: fmt.Sprint("t", i%7), Payload: i}}
		if err := NewClient(client).SetPeriodic(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	now := func() int64 { return client.Time(ctx).Val().Unix() }
	set := now()
	entries := map[string]storedPeriodic{}
	ticks := map[string][]int64{} // that every entry is due
	due := func(until int64) (n int) {
		for id, text := range client.HGetAll(ctx, periodicKey).Val() {
			if id == "" {
				continue
			}
			stored, s, err := decodePeriodic([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			entries[id], ticks[id] = stored, nil
			for tick := s.Next(stored.Since); tick <= until; tick = s.Next(tick) {
				ticks[id] = append(ticks[id], tick)
				n++
			}
		}
		return n
	}
	// seen is the jobs of each tick.
	seen := func() map[string]int {
		jobs := map[string]int{}
		for _, job := range client.SMembers(ctx, "jobs").Val() {
			id, rest, _ := strings.Cut(job, " ")
			tick, _, _ := strings.Cut(rest, " ")
			jobs[id+" "+tick]++
		}
		return jobs
	}
	// wait waits until all ticks up to a second were seen.
	wait := func(until int64) {
		end := time.Now().Add(90 * time.Second)
		for now() <= until {
			time.Sleep(100 * time.Millisecond)
		}
		for {
			due(until)
			jobs, missed := seen(), []string{}
			for id, all := range ticks {
				for _, tick := range all {
					if name := fmt.Sprint(id, " ", tick); jobs[name] == 0 {
						missed = append(missed, name)
					}
				}
			}
			if len(missed) == 0 {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d ticks were missed, such as %v", len(missed), missed[:min(len(missed), 10)])
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	wait(set + 4)
	if err := processes[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = processes[0].Wait() // killed
	last := set + 19
	wait(last)
	client.RPush(ctx, "stop", 1, 2)
	for _, process := range processes[1:] {
		if err := process.Wait(); err != nil {
			t.Error(err)
		}
	}
	n, made := due(last), 0
	for id, all := range ticks {
		if len(all) < 5 {
			t.Errorf("%s has %d ticks only", id, len(all))
		}
	}
	for name, times := range seen() {
		if times != 1 {
			t.Errorf("%s has %d jobs", name, times)
		}
		id, second, _ := strings.Cut(name, " ")
		tick, err := strconv.ParseInt(second, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if tick > last {
			continue // before the workers stopped
		}
		made++
		if !slices.Contains(ticks[id], tick) {
			t.Errorf("%s has a job, and was not due", name)
		}
	}
	if made != n {
		t.Errorf("%d ticks have a job; want %d", made, n)
	}
	t.Logf("%d ticks of %d entries, each with one job", n, len(entries))
	if len(entries) != fleetEntries {
		t.Errorf("%d entries", len(entries))
	}
	// Only one field per entry is left of all ticks.
	if keys := redistest.Keys(t, client, "headgate:*periodic*"); len(keys) != 3 {
		t.Errorf("keys: %v", keys)
	}
}

// TestPeriodicLive: a running worker fires periodic jobs that are added, and stops firing
// those that are paused or removed.
func TestPeriodicLive(t *testing.T) {
	redistest.Slow(t)
	t.Parallel() // it measures no time, and takes a while
	server := redistest.Start(t)
	ctx, client := t.Context(), server.Client()
	worker := newWorker(t, Config{Redis: server.Options(), Queues: []string{"q"}})
	calls := make(chan Running, 1000)
	Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
		job, _ := Current(ctx)
		calls <- job
		return nil
	})
	runWorker(t, worker)
	next := func(id string) Running {
		t.Helper()
		for {
			select {
			case job := <-calls:
				if job.Periodic == id {
					return job
				}
			case <-time.After(time.Minute):
				t.Fatalf("no call of %s", id)
			}
		}
	}
	set := func(id, tenant string) {
		t.Helper()
		p := Periodic{ID: id, Spec: "* * * * * *", Zone: "Europe/Berlin", Job: Job{Kind: "call", Queue: "q", Tenant: tenant, Payload: struct{}{}}}
		if err := NewClient(client).SetPeriodic(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	set("x", "a")
	first := next("x")
	if second := next("x"); second.Tick.Sub(first.Tick) != time.Second || first.Tenant != "a" || first.ID == second.ID {
		t.Errorf("%+v, then %+v; want the next second's", first, second)
	}
	set("x", "b")
	for next("x").Tenant != "b" {
	}
	if _, err := NewClient(client).PausePeriodic(ctx, "x", true); err != nil {
		t.Fatal(err)
	}
	set("y", "a")
	// When the worker has fired y, it knows of the pause of x. Some ticks later
	// the calls in flight have ended too.
	for range 3 {
		next("y")
	}
	paused := client.HGet(ctx, periodicFiredKey, "x").Val()
	for range 2 {
		next("y")
	}
	if after := client.HGet(ctx, periodicFiredKey, "x").Val(); after != paused {
		t.Errorf("paused at %s, fired at %s", paused, after)
	}
	if _, err := NewClient(client).PausePeriodic(ctx, "x", false); err != nil {
		t.Fatal(err)
	}
	next("x")
	if _, err := NewClient(client).RemovePeriodic(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	set("z", "a")
	for range 3 {
		next("z")
	}
	if n := client.ZScore(ctx, store.Key("q", "periodic"), "x").Val(); int64(n) > client.Time(ctx).Val().Unix()-2 {
		t.Error("a removed entry goes on")
	}
}
