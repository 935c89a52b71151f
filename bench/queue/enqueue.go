package main

import (
	"context"
	"fmt"
)

// enqueue is processes that put jobs in, without any that take them out.
func enqueue(processes int) workload {
	one := []limit{{"account", false, 1000, 100}, {"tenant", true, 100, 50}}
	by := func(contender string, limits []limit, batch, callers int) func(context.Context, *bench, map[string]sample) (sample, error) {
		return func(ctx context.Context, b *bench, _ map[string]sample) (sample, error) {
			return b.enqueue(ctx, contender, processes, limits, batch, callers)
		}
	}
	return workload{
		name:    fmt.Sprintf("enqueue-%d", processes),
		about:   fmt.Sprintf("100,000 empty jobs of one tenant, enqueued by %s; batches are of 1,000", counted(processes)),
		base:    plainAsynq,
		columns: []figure{perSecond, commands, scripts, redisCPU, scriptCPU, workerCPU, netBytes},
		entries: []entry{
			{plainAsynq, by(plainAsynq, nil, 1, 1)},
			{plainAsynq + ", 8 callers", by(plainAsynq, nil, 1, 8)},
			{noLimit, by(headgate, nil, 1, 1)},
			{noLimit + ", 8 callers", by(headgate, nil, 1, 8)},
			{noLimit + ", batches", by(headgate, nil, 1000, 1)},
			{twoLimits, by(headgate, one, 1, 1)},
			{twoLimits + ", batches", by(headgate, one, 1000, 1)},
		},
		targets: []target{
			atLeast(noLimit, perSecond, 0.9).times(plainAsynq),
			atLeast(twoLimits, perSecond, 0.9).times(plainAsynq),
			atLeast(noLimit+", batches", perSecond, 4).times(plainAsynq),
			atLeast(twoLimits+", batches", perSecond, 4).times(plainAsynq),
		},
	}
}

func (b *bench) enqueue(ctx context.Context, contender string, processes int, limits []limit, batch, callers int) (sample, error) {
	const name = "enqueue"
	if contender == headgate {
		if err := publish(ctx, b.admin, limits, name); err != nil {
			return nil, err
		}
	}
	before, err := b.spent(ctx)
	if err != nil {
		return nil, err
	}
	each := b.scaled(100_000) / processes
	all, err := startTeam(processes, task{
		Contender: contender, Enqueues: true, Redis: b.server.Addr(), Queues: []string{name}, Jobs: each, Batch: batch, Callers: callers,
	})
	if err != nil {
		return nil, err
	}
	defer all.kill()
	u, err := all.stop(true)
	if err != nil {
		return nil, err
	}
	after, err := b.spent(ctx)
	if err != nil {
		return nil, err
	}
	s := sample{
		perSecond: float64(u.Calls) / u.Last.Sub(u.First).Seconds(),
		workerCPU: micros(u.CPU) / float64(u.Calls),
	}
	after.minus(before).perJob(s, u.Calls)
	return s, nil
}
