package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

// read is one look of the page at a queue.
type read func(ctx context.Context, in *inspect.Inspector, name string, job inspect.JobRow) error

// page is what people read while sending goes on.
func page() workload {
	const explain = "explain"
	l := hundredThousandLanes
	w := workload{
		name: "page", about: "what the page reads at 10⁵ lanes while 500 calls a second are sent; the figures of Redis are p99 over the reads, each with what is read in the background until the next one",
		columns: []figure{p50, p99, redisMS, longest},
		prepare: func(ctx context.Context, b *bench) error { return b.prepare(ctx, l) },
		targets: []target{atMost(explain, p99, 5)},
	}
	for _, r := range []struct {
		name string
		read
	}{
		{explain, func(ctx context.Context, in *inspect.Inspector, name string, job inspect.JobRow) error {
			_, err := in.Explain(ctx, name, job.ID)
			if errors.Is(err, lifecycle.ErrNoJob) {
				return nil // it was sent meanwhile
			}
			return err
		}},
		{"overview", func(ctx context.Context, in *inspect.Inspector, name string, _ inspect.JobRow) error {
			_, err := in.Overview(ctx, name)
			return err
		}},
		{"tenants", func(ctx context.Context, in *inspect.Inspector, name string, _ inspect.JobRow) error {
			_, err := in.ListTenants(ctx, name, inspect.TenantQuery{})
			return err
		}},
		{"a tenant", func(ctx context.Context, in *inspect.Inspector, name string, job inspect.JobRow) error {
			_, err := in.Tenant(ctx, name, job.Tenant)
			return err
		}},
		{"jobs", func(ctx context.Context, in *inspect.Inspector, name string, _ inspect.JobRow) error {
			_, err := in.ListJobs(ctx, name, inspect.JobQuery{State: lifecycle.StateWaiting})
			return err
		}},
		{"gauges", func(ctx context.Context, in *inspect.Inspector, name string, _ inspect.JobRow) error {
			_, err := in.Gauges(ctx, name)
			return err
		}},
	} {
		w.entries = append(w.entries, entry{r.name, func(ctx context.Context, b *bench, _ map[string]sample) (s sample, err error) {
			_, err = b.whileSending(ctx, l, func() error {
				s, err = b.read(ctx, l.queue(), r.read)
				return err
			})
			return s, err
		}})
		w.targets = append(w.targets, atMost(r.name, redisMS, 5))
	}
	return w
}

// read reads some seconds long, with one Inspector, as the page has it. What Redis does
// for it comes from its slow log, which knows the name of the client.
func (b *bench) read(ctx context.Context, name string, look read) (sample, error) {
	const (
		me    = "page"
		every = 20 * time.Millisecond
	)
	client := redis.NewClient(&redis.Options{Addr: b.server.Addr(), ClientName: me})
	defer client.Close()
	in := inspect.New(client)
	jobs, err := in.ListJobs(ctx, name, inspect.JobQuery{State: lifecycle.StateWaiting, Limit: 200})
	for err == nil && len(jobs.Jobs) == 0 { // of few, all go at times
		jobs, err = in.ListJobs(ctx, name, inspect.JobQuery{State: lifecycle.StateWaiting, Limit: 200})
	}
	if err != nil {
		return nil, err
	}
	if err := b.slowerThan(ctx, "0"); err != nil { // log all commands
		return nil, err
	}
	defer b.slowerThan(ctx, "10000") // Redis's default; ctx may be done, and Redis ends soon
	var took, inRedis, most []time.Duration
	for n := range b.scaled(300) {
		if err := b.admin.Do(ctx, "slowlog", "reset").Err(); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := look(ctx, in, name, jobs.Jobs[n%len(jobs.Jobs)]); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
		if err := pause(ctx, every); err != nil { // what is read in the background counts, too
			return nil, err
		}
		log, err := b.admin.SlowLogGet(ctx, -1).Result()
		if err != nil {
			return nil, err
		}
		var all, one time.Duration
		for _, entry := range log {
			if entry.ClientName == me {
				all += entry.Duration
				one = max(one, entry.Duration)
			}
		}
		inRedis, most = append(inRedis, all), append(most, one)
	}
	return sample{
		p50: percentile(took, 0.5), p99: percentile(took, 0.99),
		redisMS: percentile(inRedis, 0.99), longest: percentile(most, 0.99),
	}, nil
}

// slowerThan sets from how many µs on Redis logs commands.
func (b *bench) slowerThan(ctx context.Context, us string) error {
	if err := b.admin.ConfigSet(ctx, "slowlog-max-len", "10000").Err(); err != nil {
		return err
	}
	return b.admin.ConfigSet(ctx, "slowlog-log-slower-than", us).Err()
}
