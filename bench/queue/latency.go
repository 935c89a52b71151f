package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// latency is the way of a job whose tenant and queue have nothing else to do.
func latency() workload {
	const (
		alone  = "headgate, alone"
		beside = "headgate, beside 10⁶ waiting"
	)
	busy := level{beside, 1_000_000, 1, []limit{tenantLimit(levelRate)}}
	return workload{
		name: "latency", about: "from the call of enqueue to the handler, of single jobs 20 to 120 ms apart: in an idle queue, and beside 10⁶ jobs of a tenant that sends 500/s",
		columns: []figure{p50, p99},
		prepare: func(ctx context.Context, b *bench) error {
			if err := publish(ctx, b.admin, busy.limits, "alone"); err != nil {
				return err
			}
			return b.prepare(ctx, busy)
		},
		entries: []entry{
			{plainAsynq, func(ctx context.Context, b *bench, _ map[string]sample) (sample, error) {
				return b.latency(ctx, plainAsynq, 1, nil, "plain")
			}},
			{alone, func(ctx context.Context, b *bench, _ map[string]sample) (sample, error) {
				return b.latency(ctx, headgate, 1, nil, "alone")
			}},
			{beside, func(ctx context.Context, b *bench, _ map[string]sample) (sample, error) {
				return b.latency(ctx, headgate, 1, nil, busy.queue())
			}},
		},
		targets: []target{
			atMost(alone, p50, 5), atMost(alone, p99, 20),
			atMost(beside, p50, 5), atMost(beside, p99, 20),
		},
	}
}

// fleet is many workers without work.
func fleet() workload {
	var queues []string
	for n := range 10 {
		queues = append(queues, fmt.Sprintf("fleet-%d", n))
	}
	by := func(contender string) func(context.Context, *bench, map[string]sample) (sample, error) {
		return func(ctx context.Context, b *bench, _ map[string]sample) (sample, error) {
			if contender == headgate {
				if err := publish(ctx, b.admin, []limit{tenantLimit(100)}, queues...); err != nil {
					return nil, err
				}
			}
			return b.latency(ctx, contender, b.scaled(50), func(s sample) error { return b.idle(ctx, s) }, queues...)
		}
	}
	return workload{
		name: "fleet", about: "50 idle workers of ten queues: what they cost, and then the way of single jobs, as in latency",
		columns: []figure{redisShare, commandsASec, p50, p99},
		entries: []entry{{plainAsynq, by(plainAsynq)}, {headgate, by(headgate)}},
		targets: []target{atMost(headgate, redisShare, 2), atMost(headgate, p50, 5), atMost(headgate, p99, 20)},
	}
}

// latency starts workers, does something with them, and enqueues jobs of a tenant that
// has no others.
func (b *bench) latency(ctx context.Context, contender string, workers int, first func(sample) error, queues ...string) (sample, error) {
	b.receiver.take()
	all, err := startTeam(1, task{Contender: contender, Redis: b.server.Addr(), Queues: queues, Workers: workers, Receiver: b.receiver.url})
	if err != nil {
		return nil, err
	}
	defer all.kill()
	if err := all.waitReady(); err != nil {
		return nil, err
	}
	// What starting is about has settled.
	if err := pause(ctx, b.lasting(3*time.Second)); err != nil {
		return nil, err
	}
	s := sample{}
	if first != nil {
		if err := first(s); err != nil {
			return nil, err
		}
	}
	enqueue, jobs := newEnqueuer(contender, b.admin), b.scaled(200)
	for range jobs {
		if err := pause(ctx, 20*time.Millisecond+rand.N(100*time.Millisecond)); err != nil {
			return nil, err
		}
		job := payload{Tenant: "idle", Enqueued: time.Now().UnixNano()}
		if err := enqueue(ctx, queues[rand.IntN(len(queues))], job); err != nil {
			return nil, err
		}
	}
	b.receiver.wait(ctx, "idle", jobs, 10*time.Second) // the latencies tell whether all came
	u, err := all.stop(false)
	if err != nil {
		return nil, err
	}
	if len(u.Latency) != jobs {
		return nil, fmt.Errorf("%d of %d jobs came to their handler", len(u.Latency), jobs)
	}
	s[p50], s[p99] = percentile(u.Latency, 0.5), percentile(u.Latency, 0.99)
	return s, nil
}

// idle measures what workers without work cost Redis.
func (b *bench) idle(ctx context.Context, s sample) error {
	before, err := b.spent(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := pause(ctx, b.lasting(10*time.Second)); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := b.spent(ctx)
	if err != nil {
		return err
	}
	d := after.minus(before)
	s[redisShare] = 100 * d.cpu.Seconds() / took.Seconds()
	s[commandsASec] = d.commands / took.Seconds()
	return nil
}
