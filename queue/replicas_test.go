package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// safeAndPlain publishes two queues that differ only in their durability.
func safeAndPlain(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	set := limits.Set{Queues: map[string]limits.Queue{"safe": {Durability: limits.Replicated}, "plain": {}}}
	if err := operate.Publish(t.Context(), client, set); err != nil {
		t.Fatal(err)
	}
}

// found reports whether Redis has a job.
func found(t *testing.T, client redis.UniversalClient, queue, id string) bool {
	t.Helper()
	n, err := client.Exists(t.Context(), asynqwire.Key(queue, "t:"+id)).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

// within returns a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// load is producers that enqueue into both queues, and what they were told.
type load struct {
	mu       sync.Mutex
	accepted map[string][]string // ids by queue
	stop     func()
}

// startLoad starts four producers for each of the queues safe and plain.
func startLoad(t *testing.T, client redis.UniversalClient) *load {
	l := &load{accepted: map[string][]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	l.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(l.stop)
	producer := NewClient(client)
	for i := range 8 {
		queue, durability := "safe", limits.Replicated
		if i%2 == 0 {
			queue, durability = "plain", limits.Primary
		}
		all.Go(func() {
			for ctx.Err() == nil {
				trying, cancel := context.WithTimeout(ctx, 20*time.Second)
				receipt, err := producer.Enqueue(trying, Job{Kind: "call", Queue: queue, Tenant: "a", Payload: json.RawMessage(`{}`)})
				cancel()
				if err != nil {
					continue
				}
				if receipt.Durability != durability {
					t.Errorf("a job of queue %s is accepted as %s", queue, receipt.Durability)
				}
				l.mu.Lock()
				l.accepted[queue] = append(l.accepted[queue], receipt.ID)
				l.mu.Unlock()
				time.Sleep(5 * time.Millisecond) // the load, of 800/s at most for each queue
			}
		})
	}
	return l
}

// add adds a job to a queue that is not called during the test.
func (l *load) add(t *testing.T, queue string, by *Client) {
	t.Helper()
	receipt, err := by.Enqueue(t.Context(), Job{Kind: "call", Queue: queue, Tenant: "a", Payload: json.RawMessage(`{}`), In: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted[queue] = append(l.accepted[queue], receipt.ID)
}

// quick makes producers wait for a replica for 400 ms at a time.
const quick = 800 * time.Millisecond // as ReadTimeout

// inVain waits until several requests of the queue safe have waited for a replica that does not answer.
func (l *load) inVain(t *testing.T, primary *redistest.Server) {
	t.Helper()
	n := redistest.Calls(t, primary.Client(), "wait") + 8 // four at most are under way
	until(t, "requests have waited for a replica in vain", func() bool { return redistest.Calls(t, primary.Client(), "wait") >= n })
}

// more waits until so many more jobs of a queue were accepted.
func (l *load) more(t *testing.T, queue string, n int) {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.accepted[queue])
	}
	n += count()
	until(t, "more jobs of queue "+queue+" are accepted", func() bool { return count() >= n })
}

// missing returns how many accepted jobs of each queue are neither at the receiver nor in Redis.
func (l *load) missing(t *testing.T, received map[string]int, client redis.UniversalClient) map[string]int {
	t.Helper()
	l.stop()
	missing := map[string]int{}
	for queue, ids := range l.accepted {
		for _, id := range ids {
			if received[id] == 0 && !found(t, client, queue, id) {
				missing[queue]++
			}
		}
		t.Logf("queue %s: %d accepted, %d missing", queue, len(ids), missing[queue])
	}
	return missing
}

// sentinelClient returns a client that finds the primary by a sentinel.
func sentinelClient(t *testing.T, sentinel *redistest.Sentinel) (*redis.UniversalOptions, redis.UniversalClient) {
	t.Helper()
	options, err := ParseRedisURL(sentinel.URL())
	if err != nil {
		t.Fatal(err)
	}
	producing := *options
	producing.ReadTimeout = quick
	client := redis.NewUniversalClient(&producing)
	t.Cleanup(func() { client.Close() })
	return options, client
}

// TestReplicatedThroughSwitch: a planned switch of the primary under load, to a replica that lags,
// loses no accepted job of a replicated queue. It does lose jobs of the other queue, so the test can
// see losses.
func TestReplicatedThroughSwitch(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	primary := redistest.Start(t)
	replica := primary.StartReplica()
	safeAndPlain(t, primary.Client())
	sentinel := primary.StartSentinel(replica)
	sentinel.Tolerate(time.Minute)
	options, client := sentinelClient(t, sentinel)
	worker := newWorker(t, Config{Redis: options, Queues: []string{"safe", "plain"}, Concurrency: 20, ShutdownTimeout: time.Second})
	calls := newReceiver(-1)
	Handle(worker, "call", calls.handle)
	stop := runWorker(t, worker)

	l := startLoad(t, client)
	l.more(t, "safe", 100)
	replica.Pause()
	l.more(t, "plain", 300)
	l.inVain(t, primary)
	sentinel.Failover()
	replica.Resume()
	sentinel.WaitPrimary(replica)
	l.add(t, "plain", NewClient(primary.Client())) // a producer that does not know it yet
	primary.Follow(replica)                        // the sentinel turns it ten seconds later
	l.more(t, "plain", 100)
	l.more(t, "safe", 100)
	stop()
	missing := l.missing(t, calls.jobs, client)
	if missing["safe"] > 0 || missing["plain"] == 0 {
		t.Errorf("missing after the switch: %v; want none of the replicated queue, and some of the other", missing)
	}
}

// TestReplicatedThroughCrash: a primary that dies while its replica has no connection to it takes no
// accepted job of a replicated queue along.
func TestReplicatedThroughCrash(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	primary := redistest.Start(t)
	replica := primary.StartReplica()
	safeAndPlain(t, primary.Client())
	sentinel := primary.StartSentinel(replica)
	_, client := sentinelClient(t, sentinel)
	l := startLoad(t, client)
	l.more(t, "safe", 100)
	if err := replica.Client().ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	l.more(t, "plain", 100)
	l.inVain(t, primary)
	primary.Kill()
	sentinel.WaitPrimary(replica)
	redistest.Start(t).Follow(replica) // nothing is accepted before
	l.more(t, "safe", 100)
	missing := l.missing(t, nil, client)
	if missing["safe"] > 0 || missing["plain"] == 0 {
		t.Errorf("missing after the crash: %v; want none of the replicated queue, and some of the other", missing)
	}
}

// TestReplicatedInSplitBrain: producers still reach the old primary after its replica has become
// another one. It accepts no job of a replicated queue, and with min-replicas-to-write none at all.
func TestReplicatedInSplitBrain(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	primary := redistest.Start(t)
	replica := primary.StartReplica()
	old := primary.Client()
	safeAndPlain(t, old)
	options := primary.Options()
	options.ReadTimeout = quick
	client := redis.NewUniversalClient(options)
	t.Cleanup(func() { client.Close() })
	l := startLoad(t, client)
	l.more(t, "safe", 100)
	replica.Promote()
	l.more(t, "plain", 100)
	l.inVain(t, primary)
	l.stop()
	job := Job{Kind: "call", Queue: "safe", Tenant: "a", Key: "k"}
	if _, err := NewClient(old).Enqueue(within(t, 3*time.Second), job); !errors.Is(err, ErrUnknown) || !errors.Is(err, ErrNotReplicated) {
		t.Errorf("the old primary has a job alone: %v", err)
	}
	for _, set := range [][2]string{{"min-replicas-to-write", "1"}, {"min-replicas-max-lag", "1"}} {
		if err := old.ConfigSet(t.Context(), set[0], set[1]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, queue := range []string{"safe", "plain"} {
		job.Queue, job.Key = queue, "other"
		ctx, cancel := context.WithCancel(t.Context())
		rejecting, _ := producer(t, primary.Redis(), func(_ int, send func() error) error {
			defer cancel() // the caller gives up, and not while a request is under way
			return send()
		})
		if _, err := rejecting.Enqueue(ctx, job); !redis.HasErrorPrefix(err, "NOREPLICAS") || errors.Is(err, ErrUnknown) {
			t.Errorf("queue %s, with min-replicas-to-write: %v", queue, err)
		}
	}
	if err := old.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err(); err != nil {
		t.Fatal(err)
	}
	primary.Follow(replica) // what it had alone is gone
	missing := l.missing(t, nil, old)
	if missing["safe"] > 0 || missing["plain"] == 0 {
		t.Errorf("missing after the split: %v; want none of the replicated queue, and some of the other", missing)
	}
}

// TestNoReplica: without a replica the caller learns in time that only the primary has the job.
// Sending it again gives the same job, also without a key as long as the call itself goes on.
func TestNoReplica(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	safeAndPlain(t, server.Client())
	client := NewClient(server.Client())
	job := Job{Kind: "call", Queue: "safe", Tenant: "a", Key: "k"}
	began := time.Now()
	_, err := client.Enqueue(within(t, 3*time.Second), job)
	const want = `enqueue in "safe": not known whether the job was enqueued: the primary has accepted the job, but no replica has acknowledged it within `
	if !errors.Is(err, ErrUnknown) || !errors.Is(err, ErrNotReplicated) || !strings.HasPrefix(fmt.Sprint(err), want) {
		t.Errorf("without a replica: %v", err)
	}
	if took := time.Since(began); took > 7*time.Second {
		t.Errorf("after %v of three seconds", took)
	}
	if !found(t, server.Client(), "safe", "a:k") {
		t.Error("the primary does not have the job")
	}

	// What was rejected is certain, whatever replicas have.
	conflict := job
	conflict.Payload = json.RawMessage(`{"another":1}`)
	if _, err := client.Enqueue(within(t, 20*time.Second), conflict); !errors.Is(err, ErrConflict) || errors.Is(err, ErrUnknown) {
		t.Errorf("a conflict: %v", err)
	}
	results := client.EnqueueMany(within(t, 3*time.Second), []Job{job, conflict})
	if !errors.Is(results[0].Err, ErrNotReplicated) || !errors.Is(results[1].Err, ErrConflict) || errors.Is(results[1].Err, ErrUnknown) {
		t.Errorf("a job and a conflict: %v, %v", results[0].Err, results[1].Err)
	}

	var without Receipt
	ended := make(chan error, 1)
	go func() {
		var err error
		without, err = client.Enqueue(within(t, 20*time.Second), Job{Kind: "call", Queue: "safe", Tenant: "b"})
		ended <- err
	}()
	until(t, "the primary has the job", func() bool {
		return server.Client().ZCard(t.Context(), asynqwire.Key("safe", "g:b;kind=call")).Val() == 1
	})
	server.StartReplica()
	if err := <-ended; err != nil || without.Durability != limits.Replicated || without.Existing {
		t.Errorf("with a replica: %+v, %v", without, err)
	}
	if n := server.Client().ZCard(t.Context(), asynqwire.Key("safe", "g:b;kind=call")).Val(); n != 1 {
		t.Errorf("one job became %d", n)
	}
	receipt, err := client.Enqueue(within(t, 20*time.Second), job)
	if err != nil || receipt.ID != "a:k" || !receipt.Existing || receipt.Durability != limits.Replicated {
		t.Errorf("the same job again: %+v, %v", receipt, err)
	}
}

// TestAcceptedByThePrimary: once the primary has accepted the jobs of a request, a later try without an
// answer does not hide that.
func TestAcceptedByThePrimary(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	safeAndPlain(t, server.Client())
	mine := redis.NewClient(server.Client().Options())
	defer mine.Close()
	job := Job{Kind: "call", Queue: "safe", Tenant: "a", Key: "k"}
	if _, err := NewClient(mine).Enqueue(within(t, 2*time.Second), job); !errors.Is(err, ErrNotReplicated) {
		t.Fatal(err) // which also loads the script
	}
	var once sync.Once
	mine.AddHook(redistest.OnRequest(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		err := send()
		if last := cmds[len(cmds)-1]; last.Name() == "wait" && last.Err() == nil {
			once.Do(server.Kill)
		}
		return err
	}))
	conflict := job
	conflict.Payload = json.RawMessage(`{"another":1}`)
	results := NewClient(mine).EnqueueMany(within(t, 4*time.Second), []Job{job, conflict})
	if err := results[0].Err; !errors.Is(err, ErrUnknown) || !errors.Is(err, ErrNotReplicated) || !strings.Contains(err.Error(), "; the last try: ") {
		t.Errorf("after the primary had accepted the job, it died: %v", err)
	}
	if err := results[1].Err; !errors.Is(err, ErrConflict) {
		t.Errorf("after the primary had refused the job, it died: %v", err)
	}
}

// TestOneWait: a request waits for replicas once, whatever jobs it has, and jobs of other queues do
// not wait.
func TestOneWait(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.StartReplica()
	safeAndPlain(t, server.Client())
	client := NewClient(server.Client())
	enqueue := func(queue string, n int) {
		t.Helper()
		enqueueAll(t, client, slices.Repeat([]Job{{Kind: "call", Queue: queue, Tenant: "a"}}, n)...)
	}
	enqueue("plain", 250)
	if _, err := client.Enqueue(t.Context(), Job{Kind: "call", Queue: "plain", Tenant: "a"}); err != nil {
		t.Fatal(err)
	}
	if n := redistest.Calls(t, server.Client(), "wait"); n != 0 {
		t.Errorf("%d times WAIT for a queue without replicated", n)
	}
	enqueue("safe", 1) // which also loads the script
	before := redistest.Calls(t, server.Client(), "wait")
	enqueue("safe", 250)
	if n := redistest.Calls(t, server.Client(), "wait") - before; n != 3 {
		t.Errorf("%d times WAIT for 250 jobs in three requests", n)
	}
}

// TestOthersDoNotWaitForReplicas: while no replica answers, requests of a replicated queue leave
// connections to those of others.
func TestOthersDoNotWaitForReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	safeAndPlain(t, server.Client())
	own := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 4})
	t.Cleanup(func() { own.Close() })
	client := NewClient(own)
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i := range 40 {
		all.Go(func() {
			for _, result := range client.EnqueueMany(ctx, []Job{{Kind: "call", Queue: "safe", Tenant: fmt.Sprint(i)}}) {
				if result.Err == nil {
					t.Error("a job is accepted without a replica")
				}
			}
		})
	}
	until(t, "requests wait", func() bool { return len(client.replicas.places) == cap(client.replicas.places) })
	for range 20 {
		if _, err := client.Enqueue(within(t, 3*time.Second), Job{Kind: "call", Queue: "plain", Tenant: "a"}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReplicatedNeedsOneServer: WAIT is about one server, so other kinds of clients are refused.
func TestReplicatedNeedsOneServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	safeAndPlain(t, server.Client())
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr()}})
	t.Cleanup(func() { ring.Close() })
	client := NewClient(ring)
	if _, err := client.Enqueue(t.Context(), Job{Kind: "call", Queue: "plain", Tenant: "a"}); err != nil {
		t.Error(err)
	}
	_, err := client.Enqueue(t.Context(), Job{Kind: "call", Queue: "safe", Tenant: "a"})
	if err == nil || errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "certainly not enqueued: a queue with durability replicated needs a") {
		t.Errorf("with a ring: %v", err)
	}
}

// TestReplicatedInCluster: in a Cluster, the replica is one of the node that has the queue, also after
// another node got the queue.
func TestReplicatedInCluster(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := cluster.Client()
	safeAndPlain(t, client)
	producer := NewClient(client)
	job := Job{Kind: "call", Queue: "safe", Tenant: "a", Key: "k"}
	if _, err := producer.Enqueue(within(t, 3*time.Second), job); !errors.Is(err, ErrNotReplicated) {
		t.Errorf("without a replica: %v", err)
	}
	slot := cluster.Slot(store.Key("safe", "waiting"))
	cluster.StartReplica(cluster.Owner(slot))
	receipt, err := producer.Enqueue(within(t, 20*time.Second), job)
	if err != nil || !receipt.Existing || receipt.Durability != limits.Replicated {
		t.Errorf("with a replica: %+v, %v", receipt, err)
	}

	to := cluster.Other(slot)
	cluster.Move(slot, to).End()
	job.Key = "moved"
	if _, err := producer.Enqueue(within(t, 5*time.Second), job); !errors.Is(err, ErrNotReplicated) || !found(t, client, "safe", "a:moved") {
		t.Errorf("after the queue has moved to a node without a replica: %v", err)
	}
	cluster.StartReplica(to)
	if receipt, err := producer.Enqueue(within(t, 20*time.Second), job); err != nil || !receipt.Existing {
		t.Errorf("with a replica of that node: %+v, %v", receipt, err)
	}
}

// TestFollowUpWaitsForReplica: without a replica, a job whose follow-up needs one waits for it, and the
// worker goes on with others.
func TestFollowUpWaitsForReplica(t *testing.T) {
	redistest.Slow(t)
	defer func(d time.Duration) { followPause = d }(followPause)
	followPause = 100 * time.Millisecond
	server := redistest.Start(t)
	safeAndPlain(t, server.Client())
	seen := newCounter()
	worker := newWorker(t, Config{Redis: server.Options(), Queues: []string{"plain"}, Concurrency: 1, Observer: seen})
	calls := newReceiver(-1)
	Handle(worker, "call", calls.handle)
	stop := runWorker(t, worker)
	client := NewClient(server.Client())
	add := func(next *Job) string {
		receipt, err := client.Enqueue(t.Context(), Job{Kind: "call", Queue: "plain", Tenant: "a", Payload: json.RawMessage(`{}`), OnSuccess: next})
		if err != nil {
			t.Fatal(err)
		}
		return receipt.ID
	}
	parent := add(&Job{Kind: "child", Queue: "safe"})
	seen.wait(t, string(lifecycle.Parked), 1)
	add(nil)
	seen.wait(t, string(lifecycle.Done), 1)
	if !found(t, server.Client(), "plain", parent) {
		t.Error("the job is gone before a replica has its follow-up")
	}
	// The follow-up may be done and forgotten a day after it was enqueued for the first time.
	since := func() (second int64) {
		text := server.Client().HGet(t.Context(), asynqwire.Key("plain", "t:"+parent), "hg_followed").Val()
		if _, err := fmt.Sscan(text, &second); err != nil {
			t.Fatalf("the follow-up may be there since %q", text)
		}
		return second
	}
	first := since()
	for n := 2; time.Now().Unix() <= first+1; n++ { // tries in later seconds, too
		seen.wait(t, string(lifecycle.Parked), n)
	}
	if later := since(); later != first {
		t.Errorf("the follow-up may be there since %d, and later since %d", first, later)
	}
	server.StartReplica()
	seen.wait(t, string(lifecycle.Done), 2)
	if n := server.Client().ZCard(t.Context(), asynqwire.Key("safe", "g:a;kind=child")).Val(); n != 1 {
		t.Errorf("%d follow-ups", n)
	}
	stop()
	if n := calls.jobs[parent]; n != 1 {
		t.Errorf("%d calls", n)
	}
}

// TestTickWaitsForReplica: without a replica, the tick of a periodic job that needs one counts as not
// fired. The ticks of other queues are fired before it is waited for.
func TestTickWaitsForReplica(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	tm := newTimer(t)
	safeAndPlain(t, tm.client)
	today := tm.now() / 86400 * 86400
	for _, queue := range []string{"safe", "plain"} {
		tm.set(Periodic{ID: queue, Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: Job{Kind: "call", Queue: queue, Tenant: "a"}})
		tm.aged(queue, 48*time.Hour)
	}
	fired := func(queue string) string {
		mark, _, _ := strings.Cut(tm.client.HGet(t.Context(), periodicFiredKey, queue).Val(), " ")
		return mark
	}
	day := fmt.Sprint(today)
	tm.mustRound(tm.ticks)
	if fired("safe") == day || fired("plain") != day {
		t.Errorf("without a replica, the last ticks are %s and %s", fired("safe"), fired("plain"))
	}
	tm.server.StartReplica()
	until(t, "with a replica, the tick is fired", func() bool {
		tm.mustRound(tm.ticks)
		return fired("safe") == day
	})
	wantFired(t, tm.fired("safe"), "safe", today)
	wantFired(t, tm.fired("plain"), "plain", today)
}

// TestWorkerSeeksReplicas: the worker warns once while a queue needs a replica and there is none.
func TestWorkerSeeksReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	safeAndPlain(t, server.Client())
	logged := &logtest.Buffer{}
	worker := newWorker(t, Config{Redis: server.Options(), Queues: []string{"safe", "plain"}, Logger: slog.New(slog.NewTextHandler(logged, nil))})
	worker.redis = server.Client()
	s, err := worker.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	warned := func(when string, want int) {
		t.Helper()
		if n := strings.Count(logged.String(), "this redis has no replica"); n != want || strings.Contains(logged.String(), "queue=plain") {
			t.Errorf("%s: %d warnings; want %d:\n%s", when, n, want, logged)
		}
	}
	warned("at first", 1)
	check := func(when string, want int) {
		t.Helper()
		logged.Reset()
		if err := s.readiness(t.Context()); err != nil {
			t.Error(err)
		}
		warned(when, want)
	}
	check("again", 0)
	replica := server.StartReplica()
	check("with a replica", 0)
	replica.Kill()
	until(t, "the replica is gone", func() bool {
		return server.Client().InfoMap(t.Context(), "replication").Item("Replication", "connected_slaves") == "0"
	})
	check("without it", 1)
	check("still without it", 0)
}
