package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// noisyNeighbour is a tenant with few jobs, which come while many of another wait.
func noisyNeighbour() workload {
	t := traffic{tenants: 1, jobs: 100, limits: []limit{tenantLimit(50)}}
	by := func(contender string) func(context.Context, *bench, map[string]sample) (sample, error) {
		return func(ctx context.Context, b *bench, _ map[string]sample) (sample, error) {
			return b.besideNoise(ctx, contender, t)
		}
	}
	return workload{
		name: "noisy", about: "100 jobs at 50/s, while 50,000 of another tenant wait; the use is from their enqueue on",
		columns: []figure{used, excess, called},
		entries: []entry{{recipe, by(recipe)}, {headgate, by(headgate)}},
		targets: []target{atLeast(headgate, used, 0.9)},
	}
}

func (b *bench) besideNoise(ctx context.Context, contender string, t traffic) (sample, error) {
	const (
		name  = "noisy"
		noise = "t0" // as of tenantName(0)
		quiet = "quiet"
	)
	t.jobs = min(t.jobs, b.scaled(1000)) // all of them at a tenth of the scale
	if contender == headgate {
		if err := publish(ctx, b.admin, t.limits, name); err != nil {
			return nil, err
		}
	}
	if err := b.fill(ctx, contender, name, b.scaled(50_000), 1); err != nil {
		return nil, err
	}
	b.receiver.take()
	workers, err := startTeam(1, task{Contender: contender, Redis: b.server.Addr(), Queues: []string{name}, Receiver: b.receiver.url, Limits: t.limits})
	if err != nil {
		return nil, err
	}
	defer workers.kill()
	if !b.receiver.wait(ctx, noise, 1, time.Minute) {
		return nil, fmt.Errorf("no calls of the tenant with many jobs (%v)", ctx.Err())
	}
	began := time.Now()
	jobs := slices.Repeat([]payload{{Tenant: quiet}}, t.jobs)
	if err := newEnqueuer(contender, b.admin)(ctx, name, jobs...); err != nil {
		return nil, err
	}
	done := b.receiver.wait(ctx, quiet, t.jobs, 2*t.ideal(t.jobs)+20*time.Second)
	ended := time.Now()
	if _, err := workers.stop(false); err != nil {
		return nil, err
	}
	calls, _ := b.receiver.take()
	if done {
		ended = slices.MaxFunc(calls[quiet], time.Time.Compare)
	}
	s := t.accuracy(map[string][]time.Time{quiet: calls[quiet]}, ended)
	s[used] = t.ideal(len(calls[quiet])).Seconds() / ended.Sub(began).Seconds()
	return s, nil
}
