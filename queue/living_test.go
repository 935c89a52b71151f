package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// silences are how long a living worker is kept from renewing its leases: longer than the
// time after which it is taken for dead, and longer than the 30 s of asynq's own leases.
var silences = []time.Duration{13 * time.Second, 33 * time.Second}

const livingJobs = 10

// livingCase is a case of a test whose cases run in parallel, each with its own Redis: they
// mostly wait.
type livingCase struct {
	t      *testing.T
	name   string
	server *redistest.Server
	ids    []string
}

func (c *livingCase) errorf(format string, args ...any) {
	c.t.Errorf("%s: %s", c.name, fmt.Sprintf(format, args...))
}

// until polls for a change in Redis that others make.
func (c *livingCase) until(what string, limit time.Duration, is func() bool) bool {
	for end := time.Now().Add(limit); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			c.errorf("not %s after %v", what, limit)
			return false
		}
	}
	return true
}

func (c *livingCase) enqueue(kind string, n int) (ids []string) {
	client := NewClient(c.server.Client())
	for range n {
		receipt, err := client.Enqueue(context.Background(), Job{Kind: kind, Queue: "q", Tenant: "a", Payload: struct{}{}})
		if err != nil {
			c.errorf("%v", err)
			continue
		}
		ids = append(ids, receipt.ID)
	}
	return ids
}

// gone waits until the jobs are done and asynq has deleted them: no call can follow.
func (c *livingCase) gone(limit time.Duration) bool {
	ctx, client := context.Background(), c.server.Client()
	return c.until("all jobs are done", limit, func() bool {
		keys := make([]string, len(c.ids))
		for i, id := range c.ids {
			keys[i] = asynqwire.Key("q", "t:"+id)
		}
		n, err := client.Exists(ctx, keys...).Result()
		return err == nil && n == 0
	})
}

// TestFullRedisIsNoDeath: a full Redis rejects renewals of leases. The workers are not taken
// for dead: nobody takes their jobs, and each job is called once.
func TestFullRedisIsNoDeath(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	var cases sync.WaitGroup
	for _, full := range silences {
		for _, length := range []time.Duration{5 * time.Second, 20 * time.Second} {
			for _, workers := range []int{1, 2} {
				c := &livingCase{t: t, name: fmt.Sprintf("full for %v, calls of %v, %d workers", full, length, workers), server: redistest.Start(t)}
				c.server.Client()
				cases.Go(func() { c.fullRedis(full, length, workers) })
			}
		}
	}
	cases.Wait()
}

func (c *livingCase) fullRedis(full, length time.Duration, workers int) {
	calls, began := newLedger(), make(chan struct{}, 100)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for range workers {
		worker, err := New(Config{Redis: c.server.Options(), Queues: []string{"q"}})
		if err != nil {
			c.errorf("%v", err)
			return
		}
		Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
			job, _ := Current(ctx)
			calls.begin(job)
			began <- struct{}{}
			select {
			case <-time.After(length):
				return nil
			case <-ctx.Done():
				c.errorf("the call of %s was cut off", job.ID)
				return ctx.Err()
			}
		})
		running.Go(func() {
			if err := worker.Run(ctx); err != nil {
				c.errorf("%v", err)
			}
		})
	}
	c.ids = c.enqueue("call", livingJobs)
	for range livingJobs {
		<-began
	}
	set := func(bytes string) {
		if err := c.server.Client().ConfigSet(context.Background(), "maxmemory", bytes).Err(); err != nil {
			c.errorf("%v", err)
		}
	}
	set("1")
	time.Sleep(full) // the fault itself
	set("0")
	c.gone(time.Minute)
	for _, id := range c.ids {
		if n := calls.of(id); n != 1 {
			c.errorf("job %s was called %d times", id, n)
		}
	}
}

const stoppedEnv = "HEADGATE_TEST_STOPPED" // the address of Redis, a name, the length of a call, the places

// TestStoppedProcess is the worker process of the tests below. By itself it does nothing. It
// records the start and the end of its calls.
func TestStoppedProcess(t *testing.T) {
	var addr, name, length string
	var places int
	if text := os.Getenv(stoppedEnv); text == "" {
		return
	} else if _, err := fmt.Sscan(text, &addr, &name, &length, &places); err != nil {
		t.Fatal(err)
	}
	takes, err := time.ParseDuration(length)
	if err != nil {
		t.Fatal(err)
	}
	note := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1}) // a line must not come twice
	defer note.Close()
	worker := newWorker(t, Config{Redis: &redis.UniversalOptions{Addrs: []string{addr}}, Queues: []string{"q"}, Concurrency: places})
	write := func(what string, job Running) {
		note.RPush(context.Background(), "calls", fmt.Sprint(what, " ", name, " ", job.ID))
	}
	Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
		job, _ := Current(ctx)
		write("begin", job)
		select {
		case <-time.After(takes):
			write("end", job)
			return nil
		case <-ctx.Done():
			write("cut", job)
			return ctx.Err()
		}
	}, Timeout(time.Hour)) // longer than the process is suspended
	Handle(worker, "hang", func(ctx context.Context, _ json.RawMessage) error {
		job, _ := Current(ctx)
		write("hang", job)
		<-ctx.Done()
		return ctx.Err()
	}, Timeout(time.Hour))
	go func() {
		for worker.Ready() != nil {
			time.Sleep(10 * time.Millisecond)
		}
		note.RPush(context.Background(), "ready", name)
	}()
	if err := worker.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStoppedWorkerIsNoCrash: a worker process with ten calls in flight is suspended and
// resumed. If no other worker has room for its jobs, each is called once. A worker with room
// takes them, because a suspended worker looks dead; then each job is called at most once by
// each of the two. No job is archived as crashed, and no worker calls a job that it still
// calls.
func TestStoppedWorkerIsNoCrash(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	var cases sync.WaitGroup
	for _, stopped := range silences {
		for _, length := range []time.Duration{5 * time.Second, 20 * time.Second} {
			for _, other := range []string{"no other", "a full", "a free"} {
				c := &livingCase{t: t, name: fmt.Sprintf("stopped for %v, calls of %v, %s worker", stopped, length, other), server: redistest.Start(t)}
				c.server.Client()
				cases.Go(func() { c.stoppedWorker(stopped, length, other) })
			}
		}
	}
	cases.Wait()
}

// process starts a worker and waits until it is ready. It returns nil if that fails.
func (c *livingCase) process(name string, length time.Duration, places int) *exec.Cmd {
	process := exec.Command(os.Args[0], "-test.run=^TestStoppedProcess$", "-test.timeout=5m")
	process.Env = append(os.Environ(), fmt.Sprint(stoppedEnv, "=", c.server.Addr(), " ", name, " ", length, " ", places))
	process.Stderr = c.t.Output()
	if err := process.Start(); err != nil {
		c.errorf("%v", err)
		return nil
	}
	c.t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	c.until(name+" is ready", time.Minute, func() bool {
		return slices.Contains(c.server.Client().LRange(context.Background(), "ready", 0, -1).Val(), name)
	})
	return process
}

func (c *livingCase) stoppedWorker(stopped, length time.Duration, other string) {
	ctx, client := context.Background(), c.server.Client()
	start := func(name string, places int) *os.Process {
		if process := c.process(name, length, places); process != nil {
			return process.Process
		}
		return nil
	}
	lines := func(what string) (n int) {
		for _, line := range client.LRange(ctx, "calls", 0, -1).Val() {
			if strings.HasPrefix(line, what+" ") {
				n++
			}
		}
		return n
	}
	if other == "a full" {
		if start("B", 4) == nil {
			return
		}
		c.enqueue("hang", 4)
		c.until("the other worker is full", 30*time.Second, func() bool { return lines("hang") == 4 })
	}
	process := start("A", 100)
	if process == nil {
		return
	}
	c.ids = c.enqueue("call", livingJobs)
	c.until("all calls are under way", 30*time.Second, func() bool { return lines("begin") == livingJobs })
	if other == "a free" && start("B", 100) == nil {
		return
	}
	_ = process.Signal(syscall.SIGSTOP)
	time.Sleep(stopped) // the fault itself
	_ = process.Signal(syscall.SIGCONT)
	c.gone(90 * time.Second)

	calls, running := map[string]int{}, map[string]bool{}
	log := client.LRange(ctx, "calls", 0, -1).Val()
	for _, line := range log {
		what, call, _ := strings.Cut(line, " ")
		switch what {
		case "begin":
			if running[call] {
				c.errorf("%s was called although that call still ran", call)
			}
			calls[call]++
			running[call] = true
		case "end":
			running[call] = false
		case "cut":
			c.errorf("%s was cut off", call)
		}
	}
	for _, id := range c.ids {
		a, b := calls["A "+id], calls["B "+id]
		if a != 1 || b > 1 || (other != "a free" && b > 0) {
			c.errorf("job %s was called %d times by the stopped worker, %d times by the other", id, a, b)
		}
	}
	if n := client.ZCard(ctx, asynqwire.Key("q", "archived")).Val(); n > 0 {
		c.errorf("%d jobs were archived", n)
	}
}

// TestKilledWorkerIsACrash: one of two workers is killed with calls in flight. The other one
// takes its jobs, and each has one crash.
func TestKilledWorkerIsACrash(t *testing.T) {
	redistest.Slow(t)
	t.Parallel() // it measures no time, and takes a while
	c := &livingCase{t: t, name: "killed", server: redistest.Start(t)}
	client := c.server.Client()
	begun := func(worker string) (ids []string) {
		for _, line := range client.LRange(t.Context(), "calls", 0, -1).Val() {
			if id, ok := strings.CutPrefix(line, "begin "+worker+" "); ok {
				ids = append(ids, id)
			}
		}
		return ids
	}
	start := func(name string) *exec.Cmd {
		process := c.process(name, time.Minute, 100)
		if process == nil {
			t.FailNow()
		}
		return process
	}
	killed := start("A")
	c.ids = c.enqueue("call", livingJobs)
	c.until("all calls are under way", 30*time.Second, func() bool { return len(begun("A")) == livingJobs })
	start("B")
	_ = killed.Process.Kill()
	c.until("all calls are made again", 30*time.Second, func() bool { return len(begun("B")) == livingJobs })
	for _, id := range c.ids {
		if n := client.HGet(t.Context(), asynqwire.Key("q", "t:"+id), "hg_crashes").Val(); n != "1" {
			t.Errorf("job %s has %q crashes; want 1", id, n)
		}
	}
}

// TestFullRedisDrains: in a full Redis waiting jobs still go, each once, and free memory.
func TestFullRedisDrains(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const jobs = 200
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	r := &rig{server: server.Redis(), queue: "q", client: NewClient(client), receiver: newReceiver(jobs)}
	limits := limits.Set{Queues: map[string]limits.Queue{"q": {Limits: []limits.Limit{perTenant(50), inFlight(50, "tenant")}}}}
	if err := operate.Publish(ctx, client, limits); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"a", "b"} {
		r.enqueue(t, tenant, jobs/2)
	}
	r.seen = newCounter()
	worker := newWorker(t, Config{Redis: server.Options(), Queues: []string{"q"}, Observer: r.seen})
	r.worker = worker
	failed := sync.Map{}
	Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
		r.take(ctx)
		job, _ := Current(ctx)
		if _, again := failed.LoadOrStore(job.ID, true); !again && job.ID[len(job.ID)-1] == '0' {
			return permanent{}
		}
		return nil
	})
	r.run(t)
	r.seen.wait(t, "called", 20)
	server.FillMemory()
	r.receiver.wait(t)
	until(t, "all have ended", func() bool { return r.seen.outcomes(lifecycle.Done)+r.seen.outcomes(lifecycle.Archived) == jobs })
	for id, n := range r.jobs {
		if n != 1 {
			t.Errorf("job %s was called %d times", id, n)
		}
	}
	if states := r.states(t); states["active"]+states["aggregating"]+states["pending"]+states["retry"] != 0 || states["archived"] != r.seen.outcomes(lifecycle.Archived) {
		t.Errorf("states: %v", states)
	}
	if n := r.seen.outcomes("to redis: script:other"); n != 0 {
		t.Errorf("%d scripts have no name among the round trips", n)
	}
}
