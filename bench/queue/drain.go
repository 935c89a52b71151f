package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// The rows of Headgate in a drain.
const (
	noLimit   = "headgate, no limit"
	twoLimits = "headgate, two limits"
)

// drain is empty jobs of one tenant that wait when the workers start.
func drain(processes int) workload {
	return workload{
		name:    fmt.Sprintf("drain-%d", processes),
		about:   fmt.Sprintf("100,000 empty jobs of one tenant, run by %s; the two limits both bind now and then", counted(processes)),
		base:    plainAsynq,
		columns: []figure{perSecond, commands, scripts, redisCPU, scriptCPU, workerCPU, netBytes, single, batched, totalSingle, totalBatched, held50, held99},
		entries: []entry{
			{plainAsynq, func(ctx context.Context, b *bench, _ map[string]sample) (sample, error) {
				return b.drain(ctx, plainAsynq, processes, nil)
			}},
			{noLimit, func(ctx context.Context, b *bench, _ map[string]sample) (sample, error) {
				return b.drain(ctx, headgate, processes, nil)
			}},
			{twoLimits, func(ctx context.Context, b *bench, round map[string]sample) (sample, error) {
				// A quarter above what it does without limits: they bind when dispatch is
				// ahead, and do not bound the whole.
				rate := max(1, int(1.25*round[noLimit][perSecond]))
				return b.drain(ctx, headgate, processes, []limit{{"account", false, rate, 200}, {"tenant", true, rate, 100}})
			}},
		},
		targets: []target{
			atLeast(noLimit, perSecond, 2).times(plainAsynq),
			atLeast(twoLimits, perSecond, 1.5).times(plainAsynq),
			atMost(twoLimits, totalSingle, 18),
			atMost(twoLimits, totalBatched, 13),
			atMost(twoLimits, redisCPU, 1.2).times(plainAsynq),
			atMost(twoLimits, workerCPU, 0.6).times(plainAsynq),
		},
	}
}

func counted(processes int) string {
	if processes == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", processes)
}

func (b *bench) drain(ctx context.Context, contender string, processes int, limits []limit) (sample, error) {
	const name = "drain"
	jobs := b.scaled(100_000)
	s := sample{}
	if contender == headgate {
		if err := publish(ctx, b.admin, limits, name); err != nil {
			return nil, err
		}
	}
	if err := b.enqueueCosts(ctx, contender, name, jobs, s); err != nil {
		return nil, err
	}
	before, err := b.spent(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := startTeam(processes, task{Contender: contender, Redis: b.server.Addr(), Queues: []string{name}})
	if err != nil {
		return nil, err
	}
	defer workers.kill()
	if err := b.drained(ctx, name, jobs); err != nil {
		return nil, err
	}
	after, err := b.spent(ctx)
	if err != nil {
		return nil, err
	}
	u, err := workers.stop(false)
	if err != nil {
		return nil, err
	}
	if u.Calls != jobs {
		return nil, fmt.Errorf("%d calls of %d jobs", u.Calls, jobs)
	}
	after.minus(before).perJob(s, jobs)
	s[perSecond] = float64(jobs) / u.Last.Sub(u.First).Seconds()
	s[workerCPU] = micros(u.CPU) / float64(jobs)
	s[totalSingle] = s[single] + s[commands]
	if contender == headgate {
		s[totalBatched] = s[batched] + s[commands]
		s[held50], s[held99] = percentile(u.Held, 0.5), percentile(u.Held, 0.99)
	}
	return s, nil
}

// enqueueCosts enqueues the jobs, some by single calls and most in batches, and counts
// commands.
func (b *bench) enqueueCosts(ctx context.Context, contender, name string, jobs int, s sample) error {
	ones := max(1, min(1000, jobs/10))
	count := func(f figure, n int, enqueue func() error) error {
		before, err := b.spent(ctx)
		if err != nil {
			return err
		}
		if err := enqueue(); err != nil {
			return err
		}
		after, err := b.spent(ctx)
		s[f] = after.minus(before).commands / float64(n)
		return err
	}
	err := count(single, ones, func() error {
		return newEnqueuer(contender, b.admin).all(ctx, name, ones, 1, 1, 1)
	})
	if err != nil {
		return err
	}
	if contender != headgate { // it has no batches
		return b.fill(ctx, contender, name, jobs-ones, 1)
	}
	return count(batched, jobs-ones, func() error { return b.fill(ctx, contender, name, jobs-ones, 1) })
}

// drained waits until asynq counts so many jobs as processed.
func (b *bench) drained(ctx context.Context, name string, jobs int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	// Its keys are by day of UTC, and this one is for all days.
	for {
		n, err := b.admin.Get(ctx, "asynq:{"+name+"}:processed").Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if n >= jobs {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d jobs are done: %w", n, jobs, err)
		}
	}
}
