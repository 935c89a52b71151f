package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
	"github.com/headgate/headgate/queue/internal/asynqwire"
)

// TestTimedMasterDies: a node of a cluster dies under load. The queues of other nodes are served as before.
// Its replica takes its place, and its queue flows again: every job that the replica has is called, and
// so is every job that is enqueued after. Only what was not replicated can be lost.
func TestTimedMasterDies(t *testing.T) {
	if !redistest.OnCluster() && !testlong.On() {
		t.Skip("make test-cluster runs it")
	}
	measured(t, func(t *testing.T, run *pacer.Run) {
		const rate, jobs = 50, 600
		cluster := redistest.StartReplicatedCluster(t, "--cluster-require-full-coverage", "no")
		client, ctx := cluster.Client(), t.Context()
		names := queueOfEachNode(cluster)
		fillQueues(t, client, names, names[1:], rate, jobs)
		producer := NewClient(client)
		worker := newWorker(t, Config{Redis: cluster.Options(), Queues: names, ShutdownTimeout: time.Second})
		var mu sync.Mutex
		times, calls := map[string][]time.Time{}, map[string][]time.Time{} // by queue; by job
		called := func(queue string) []time.Time {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(times[queue])
		}
		of := func(id string) []time.Time {
			mu.Lock()
			defer mu.Unlock()
			return calls[id]
		}
		Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
			job, _ := Current(ctx)
			mu.Lock()
			defer mu.Unlock()
			times[job.Queue] = append(times[job.Queue], time.Now())
			calls[job.ID] = append(calls[job.ID], time.Now())
			return nil
		})
		runWorker(t, worker)

		// A producer enqueues a little more than may go, with keys, until each job is accepted.
		type receipt struct {
			id string
			at time.Time
		}
		var accepted []receipt
		producing, enough := context.WithCancel(context.Background())
		produced := make(chan struct{})
		go func() {
			defer close(produced)
			for n := 0; producing.Err() == nil; n++ {
				job := Job{Kind: "call", Queue: names[0], Tenant: "a", Key: fmt.Sprint(n), Payload: 1}
				within, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				got, err := producer.Enqueue(within, job)
				cancel()
				if err != nil {
					t.Errorf("enqueue: %v", err)
					return
				}
				accepted = append(accepted, receipt{got.ID, time.Now()})
				time.Sleep(time.Second / (rate + 10)) // the load
			}
		}()
		defer func() { enough(); <-produced }()
		until(t, "all queues are served", func() bool {
			return !slices.ContainsFunc(names, func(name string) bool { return len(called(name)) < rate })
		})

		dead := cluster.Nodes()[0]
		dead.Kill()
		died, known := time.Now(), map[string]bool{}
		prefix := asynqwire.Key(names[0], "t:")
		for _, key := range cluster.Replica(dead).Client().Keys(ctx, prefix+"*").Val() { // it is no primary before two seconds
			known[strings.TrimPrefix(key, prefix)] = true
		}
		cluster.WaitFailover(dead)
		promoted := time.Now()
		before := len(called(names[0]))
		until(t, "the queue of the dead node flows again", func() bool { return len(called(names[0])) >= before+rate })
		flows := called(names[0])[before]
		enough()
		<-produced
		until(t, "all jobs are called", func() bool {
			return !slices.ContainsFunc(accepted, func(r receipt) bool {
				return len(of(r.id)) == 0 && (known[r.id] || r.at.After(died))
			})
		})
		replica := cluster.Replica(dead).Client()
		until(t, "all jobs have ended", func() bool { // those with a key are kept
			return !slices.ContainsFunc(replica.Keys(ctx, prefix+"*").Val(), func(key string) bool {
				return replica.HGet(ctx, key, "state").Val() != "completed"
			})
		})
		lost, twice := 0, 0
		for _, r := range accepted {
			switch at := of(r.id); {
			case len(at) == 0: // accepted before, and not known to the replica
				lost++
			case len(at) > 1 && (len(at) > 2 || at[0].After(died)):
				t.Errorf("job %s was called at %v; the node died at %v", r.id, at, died)
			case len(at) == 2: // that its first call had ended was not replicated
				twice++
			}
		}
		t.Logf("promoted after %v, and called again after %v; of %d jobs the replica had %d, %d were not replicated, and the ends of %d",
			promoted.Sub(died).Round(time.Millisecond), flows.Sub(died).Round(time.Millisecond), len(accepted), len(known), lost, twice)
		run.Law("the queue of the dead node", called(names[0]), rate, 1)
		for _, name := range names[1:] {
			run.Used("a queue of another node", called(name), rate, 0.95)
			run.Law("a queue of another node", called(name), rate, 1)
		}
	})
}
