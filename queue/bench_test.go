package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// BenchmarkEnqueue compares asynq's own client with 1,000 jobs in a batch, one at a time,
// and from 50 concurrent callers, in turns: an op is 1,000 jobs of each.
func BenchmarkEnqueue(b *testing.B) {
	const n, callers = 1000, 50
	server := redistest.Start(b)
	plain := asynq.NewClientFromRedisClient(server.Client())
	client := NewClient(server.Client())
	payload := json.RawMessage(`{"to":"ada@example.com","text":"hello"}`)
	job := func(queue string) Job { return Job{Kind: "call", Queue: queue, Tenant: "a", Payload: payload} }
	jobs := slices.Repeat([]Job{job("batch")}, n)
	enqueueAsynq := func() error {
		_, err := plain.Enqueue(asynq.NewTask("call", payload), asynq.Queue("plain"))
		return err
	}
	enqueue := func() error {
		_, err := client.Enqueue(b.Context(), job("single"))
		return err
	}
	took := map[string]time.Duration{}
	lap := func(what string, callers int, enqueue func() error) {
		began := time.Now()
		var all errgroup.Group
		for range callers {
			all.Go(func() error {
				for range n / callers {
					if err := enqueue(); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := all.Wait(); err != nil {
			b.Fatal(err)
		}
		took[what] += time.Since(began)
	}
	for b.Loop() {
		lap("asynq", 1, enqueueAsynq)
		lap("single", 1, enqueue)
		lap("asynq, concurrent", callers, enqueueAsynq)
		lap("concurrent", callers, enqueue)
		began := time.Now()
		enqueueAll(b, client, jobs...)
		took["batch"] += time.Since(began)
	}
	for what, beside := range map[string]string{"batch": "asynq", "single": "asynq", "concurrent": "asynq, concurrent"} {
		b.ReportMetric(took[beside].Seconds()/took[what].Seconds(), what+"-of-asynq")
	}
}

// BenchmarkWake measures how long a job waits for the permit of the job before it, from the
// end of one call to the start of the next, with one call at a time.
func BenchmarkWake(b *testing.B) { byWorkers(b, wakes) }

// waking wakes lanes n times, and returns how long each took.
type waking func(tb testing.TB, workers, n int) []time.Duration

func wakes(tb testing.TB, workers, n int) (took []time.Duration) {
	server, queue := redistest.Start(tb), redistest.Queue(tb)
	one := limits.Limit{Name: "one", Algorithm: throttle.Concurrency, Concurrency: 1}
	if err := operate.Publish(tb.Context(), server.Client(), limits.Set{Queues: map[string]limits.Queue{queue: {Limits: []limits.Limit{one}}}}); err != nil {
		tb.Fatal(err)
	}
	enqueueAll(tb, NewClient(server.Client()), slices.Repeat([]Job{{Kind: "call", Queue: queue, Tenant: "a", Payload: json.RawMessage(`{}`)}}, n+1)...)
	var mu sync.Mutex
	var ended time.Time
	done := make(chan struct{})
	stop := start(tb, workers, Config{Redis: server.Options(), Queues: []string{queue}}, func(context.Context, json.RawMessage) error {
		mu.Lock()
		defer mu.Unlock()
		if !ended.IsZero() {
			took = append(took, time.Since(ended))
		}
		if len(took) == n {
			close(done)
		}
		ended = time.Now()
		return nil
	})
	<-done
	stop()
	return took
}

// BenchmarkAnnounce measures how long it takes until a permit that another process adds is
// used, from before the limit is raised by one call.
func BenchmarkAnnounce(b *testing.B) { byWorkers(b, announces) }

func announces(tb testing.TB, workers, n int) (took []time.Duration) {
	server, queue := redistest.Start(tb), redistest.Queue(tb)
	raise := func(n int) {
		if err := operate.Publish(tb.Context(), server.Client(), limits.Set{Queues: map[string]limits.Queue{queue: {Limits: []limits.Limit{inFlight(int64(n))}}}}); err != nil {
			tb.Fatal(err)
		}
	}
	raise(1)
	release, called := make(chan struct{}), make(chan struct{}, n+1)
	for range n + 1 {
		if _, err := NewClient(server.Client()).Enqueue(tb.Context(), Job{Kind: "call", Queue: queue, Tenant: "a", Payload: json.RawMessage(`{}`)}); err != nil {
			tb.Fatal(err)
		}
	}
	config := Config{Redis: server.Options(), Queues: []string{queue}, Concurrency: 2 * (n + 1)}
	stop := start(tb, workers, config, func(context.Context, json.RawMessage) error {
		called <- struct{}{}
		<-release
		return nil
	})
	<-called
	for i := range n {
		raised := time.Now()
		raise(i + 2)
		<-called
		took = append(took, time.Since(raised))
	}
	close(release)
	stop()
	return took
}

// TestTimedWake: 99 of 100 lanes are woken within 20 ms.
func TestTimedWake(t *testing.T) {
	t.Parallel()
	measured(t, func(t *testing.T, run *pacer.Run) {
		for what, wake := range map[string]waking{"after a call of this worker": wakes, "after a change of a limit": announces} {
			for _, workers := range someWorkers {
				began := time.Now()
				took := wake(t, workers, 400)
				run.Most(fmt.Sprint("99 % of lanes are woken ", what, ", of ", workers), began, time.Now(), ofSorted(took, 0.99), 20*time.Millisecond)
			}
		}
	})
}

// ofSorted sorts times, and returns that which a part of them do not exceed.
func ofSorted(all []time.Duration, part float64) time.Duration {
	slices.Sort(all)
	return all[int(part*float64(len(all)))]
}

// someWorkers is how many workers there are: one, or several of which one leads.
var someWorkers = []int{1, 5}

// byWorkers reports how long it takes to wake lanes.
func byWorkers(b *testing.B, wake waking) {
	for _, workers := range someWorkers {
		b.Run(fmt.Sprint("workers=", workers), func(b *testing.B) {
			took := wake(b, workers, b.N)
			b.ReportMetric(float64(ofSorted(took, 0.5).Microseconds()), "p50-µs")
			b.ReportMetric(float64(ofSorted(took, 0.99).Microseconds()), "p99-µs")
		})
	}
}

// start runs workers until stop is called.
func start(tb testing.TB, workers int, config Config, handle func(context.Context, json.RawMessage) error) (stop func()) {
	ctx, cancel := context.WithCancel(tb.Context())
	ran := make(chan error, workers)
	for range workers {
		w := newWorker(tb, config)
		Handle(w, "call", handle)
		go func() { ran <- w.Run(ctx) }()
	}
	return func() {
		cancel()
		for range workers {
			// One of several workers may be stopped while it starts.
			if err := <-ran; err != nil && !errors.Is(err, context.Canceled) {
				tb.Fatal(err)
			}
		}
	}
}
