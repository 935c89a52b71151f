package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// TestReadyBesideAMasterAway: a worker is ready while the node of one of its queues answers.
func TestReadyBesideAMasterAway(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	session := checkedSession(t, cluster.Client(), queueOfEachNode(cluster)...)
	for n, node := range append([]*redistest.Server{nil}, cluster.Nodes()...) {
		if node != nil {
			node.Kill()
		}
		if err := session.readiness(t.Context()); (err == nil) != (n < len(cluster.Nodes())) {
			t.Errorf("without %d of 3 nodes: %v", n, err)
		}
		if away := session.Away(); n < len(cluster.Nodes()) && len(away) != n {
			t.Errorf("without %d of 3 nodes: %v are away", n, away)
		}
	}
}

// queueOfEachNode returns the name of a queue on each node.
func queueOfEachNode(cluster *redistest.Cluster) (names []string) {
	for _, node := range cluster.Nodes() {
		for i := 0; ; i++ {
			if name := fmt.Sprint("q", i); cluster.Owner(cluster.Slot(store.Key(name, "waiting"))) == node {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

// fillQueues publishes a limit shared by the tenants of each queue, and enqueues jobs in some queues. It returns
// their ids.
func fillQueues(t *testing.T, client redis.UniversalClient, queues, filled []string, rate int64, jobs int) (ids []string) {
	t.Helper()
	set := limits.Set{Queues: map[string]limits.Queue{}}
	for _, name := range queues {
		set.Queues[name] = limits.Queue{Limits: []limits.Limit{sharedBy(rate)}}
	}
	if err := operate.Publish(t.Context(), client, set); err != nil {
		t.Fatal(err)
	}
	var batch []Job
	for _, name := range filled {
		batch = append(batch, slices.Repeat([]Job{{Kind: "call", Queue: name, Tenant: "a", Payload: 1}}, jobs)...)
	}
	return enqueueAll(t, NewClient(client), batch...)
}

// TestTimedMasterAway: while a node of a cluster does not answer, the queues of the others are served as
// before. The queue of that node is served when it is back. No job is lost, none is called twice, and no limit is
// exceeded.
func TestTimedMasterAway(t *testing.T) {
	t.Parallel()
	measured(t, func(t *testing.T, run *pacer.Run) {
		const rate, jobs = 50, 800
		// The node that is killed keeps its data: see docs/reliability.md.
		cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no", "--appendonly", "yes", "--appendfsync", "no")
		client := cluster.Client()
		names := queueOfEachNode(cluster)
		ids := fillQueues(t, client, names, names, rate, jobs)
		seen := newCounter()
		worker := newWorker(t, Config{Redis: cluster.Options(), Queues: names, ShutdownTimeout: time.Second, Observer: seen})
		ledger := newLedger()
		var mu sync.Mutex
		calls := map[string][]time.Time{}
		called := func(queue string) []time.Time {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(calls[queue])
		}
		Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
			at := time.Now()
			job, _ := Current(ctx)
			ledger.begin(job)
			mu.Lock()
			defer mu.Unlock()
			calls[job.Queue] = append(calls[job.Queue], at)
			return nil
		})
		stop := runWorker(t, worker)
		until(t, "all queues are served", func() bool {
			return !slices.ContainsFunc(names, func(name string) bool { return len(called(name)) < 10 })
		})
		away := cluster.Nodes()[0]
		servedAgain := func() {
			t.Helper()
			back := time.Now()
			until(t, "its queue is served again", func() bool { at := called(names[0]); return at[len(at)-1].After(back) })
		}
		away.Pause()
		time.Sleep(7 * time.Second) // the fault, for longer than a request waits for its answer
		away.Resume()
		servedAgain()
		away.Kill()
		time.Sleep(3 * time.Second) // the fault
		for _, name := range names[1:] {
			n := len(called(name))
			until(t, "another queue is served", func() bool { return len(called(name)) > n })
			run.Used("a queue of another node", called(name), rate, 0.97)
		}
		away.Restart()
		servedAgain()
		until(t, "all jobs are done", func() bool { return seen.outcomes(lifecycle.Done) >= len(ids) })
		stop()
		ledger.once(t, ids)
		for _, name := range names {
			run.Law(name, called(name), rate, 1)
		}
	})
}
