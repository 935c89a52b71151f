package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/dashboard/metrics"
	"github.com/headgate/headgate/internal/settings"
	"github.com/headgate/headgate/queue"
)

// runHeadgate runs workers as cmd/worker does, with metrics.
func runHeadgate(ctx context.Context, t task, log *callLog, ready func()) error {
	settings.Steady()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		failed  error
		workers []*queue.Worker
	)
	for range max(1, t.Workers) {
		worker, err := queue.New(queue.Config{
			Redis: &redis.UniversalOptions{Addrs: []string{t.Redis}}, Queues: t.Queues, Concurrency: concurrency,
			Observer: &observer{metrics.New(prometheus.NewRegistry()), log},
			Logger:   slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
		if err != nil {
			return err
		}
		queue.Handle(worker, kind, log.handle)
		workers = append(workers, worker)
		running.Go(func() {
			err := worker.Run(ctx)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			cancel()
		})
	}
	for _, worker := range workers {
		for worker.Ready() != nil && ctx.Err() == nil {
			_ = pause(ctx, 5*time.Millisecond)
		}
	}
	ready()
	running.Wait()
	return failed
}

// observer keeps what the benchmark asks about beside the metrics.
type observer struct {
	*metrics.Metrics
	log *callLog
}

func (o *observer) Gated(name string, g queue.Gating) {
	o.Metrics.Gated(name, g)
	if g.Decision == "sent" {
		o.log.mu.Lock()
		defer o.log.mu.Unlock()
		o.log.Held = append(o.log.Held, g.Held)
	}
}

func (o *observer) RoundTrip(trip queue.RoundTrip) {
	o.Metrics.RoundTrip(trip)
	if trip.Command == "script:dispatch" {
		o.log.mu.Lock()
		defer o.log.mu.Unlock()
		o.log.Dispatch = append(o.log.Dispatch, trip.Took)
	}
}
