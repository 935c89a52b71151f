package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/test/law"
)

// traffic is jobs far over their limits, which call a receiver.
type traffic struct {
	tenants, jobs int // jobs of all tenants
	limits        []limit
	busy          bool // a program keeps one core busy
}

// rate is how many calls a second all limits together let go.
func (t traffic) rate() int {
	least := 0
	for _, l := range t.limits {
		all := l.Rate
		if l.PerTenant {
			all *= t.tenants
		}
		if least == 0 || all < least {
			least = all
		}
	}
	return least
}

// atOnce is how many of the calls can go at the beginning.
func (t traffic) atOnce() int {
	for _, l := range t.limits {
		if !l.PerTenant {
			return l.Burst
		}
	}
	return t.tenants
}

// ideal is how long n calls take from the first to the last.
func (t traffic) ideal(n int) time.Duration {
	return time.Duration(max(0, n-t.atOnce())) * time.Second / time.Duration(t.rate())
}

// by is the traffic as one contender sends it.
func (t traffic) by(contender string) func(context.Context, *bench, map[string]sample) (sample, error) {
	return func(ctx context.Context, b *bench, _ map[string]sample) (sample, error) {
		scaled := t
		scaled.jobs = max(t.tenants, b.scaled(t.jobs))
		return b.send(ctx, contender, scaled)
	}
}

func (t traffic) contenders() []entry {
	return []entry{{pacer, t.by(pacer)}, {recipe, t.by(recipe)}, {headgate, t.by(headgate)}}
}

var pacedColumns = []figure{used, excess, called, commands, scripts, redisCPU, scriptCPU, workerCPU, netBytes}

func oneTenant() workload {
	t := traffic{tenants: 1, jobs: 1500, limits: []limit{tenantLimit(100)}}
	return workload{
		name: "one-tenant", about: "1,500 jobs of one tenant at 100/s",
		columns: pacedColumns, entries: t.contenders(),
		targets: []target{atMost(headgate, commands, 30), atMost(headgate, excess, 5).than(pacer)},
	}
}

func manyTenants() workload {
	t := traffic{tenants: 200, jobs: 10_000, limits: []limit{tenantLimit(5)}}
	return workload{
		name: "200-tenants", about: "200 tenants at 5/s each, 50 jobs each",
		columns: pacedColumns, entries: t.contenders(),
		targets: []target{atLeast(headgate, used, 1/1.03), atMost(headgate, excess, 5).than(pacer)},
	}
}

func twoThousand() workload {
	t := traffic{tenants: 1, jobs: 20_000, limits: []limit{tenantLimit(2000)}}
	return workload{
		name: "2000-a-second", about: "20,000 jobs of one tenant at 2,000/s",
		columns: pacedColumns, entries: t.contenders(),
		targets: []target{atLeast(headgate, used, 0.97), atMost(headgate, excess, 1.5).times(pacer)},
	}
}

var tenTenants = traffic{tenants: 10, jobs: 3000, limits: []limit{sharedRate(300), tenantLimit(100)}}

func sharedLimit() workload {
	return workload{
		name: "shared", about: "ten tenants at 100/s under a shared 300/s, 300 jobs each",
		columns: pacedColumns, entries: tenTenants.contenders(),
		targets: []target{atMost(headgate, excess, 5).than(pacer)},
	}
}

// busyMachine is the others again beside a program that wants one of the cores.
func busyMachine() workload {
	w := workload{name: "busy", about: "a program keeps one core busy: 1,500 jobs at 100/s, 200 tenants at 5/s, ten tenants under a shared 300/s", columns: pacedColumns}
	for _, load := range []struct {
		name string
		traffic
	}{
		{"100/s", traffic{tenants: 1, jobs: 1500, limits: []limit{tenantLimit(100)}}},
		{"200 × 5/s", traffic{tenants: 200, jobs: 10_000, limits: []limit{tenantLimit(5)}}},
		{"shared 300/s", tenTenants},
	} {
		load.busy = true
		floor, ours := pacer+", "+load.name, headgate+", "+load.name
		w.entries = append(w.entries, entry{floor, load.by(pacer)}, entry{ours, load.by(headgate)})
		w.targets = append(w.targets, atLeast(ours, used, 0.95), atMost(ours, excess, 5).than(floor))
	}
	return w
}

// send enqueues the jobs, one by one, and then lets one process call the receiver.
func (b *bench) send(ctx context.Context, contender string, t traffic) (sample, error) {
	const name = "paced"
	before, err := b.spent(ctx)
	if err != nil {
		return nil, err
	}
	switch contender {
	case headgate:
		if err := publish(ctx, b.admin, t.limits, name); err != nil {
			return nil, err
		}
		fallthrough
	case recipe:
		if err := newEnqueuer(contender, b.admin).all(ctx, name, t.jobs, t.tenants, 1, 1); err != nil {
			return nil, err
		}
	}
	if t.busy {
		busy, err := start(task{Spins: true})
		if err != nil {
			return nil, err
		}
		defer busy.kill()
	}
	b.receiver.take()
	workers, err := startTeam(1, task{
		Contender: contender, Redis: b.server.Addr(), Queues: []string{name}, Receiver: b.receiver.url,
		Limits: t.limits, Jobs: t.jobs, Tenants: t.tenants,
	})
	if err != nil {
		return nil, err
	}
	defer workers.kill()
	if !b.receiver.wait(ctx, "", t.jobs, 2*t.ideal(t.jobs)+10*time.Second) && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	ended := time.Now()
	u, err := workers.stop(false)
	if err != nil {
		return nil, err
	}
	after, err := b.spent(ctx)
	if err != nil {
		return nil, err
	}
	calls, n := b.receiver.take()
	if n == 0 {
		return nil, fmt.Errorf("no call of %d jobs", t.jobs)
	}
	s := t.accuracy(calls, ended)
	s[workerCPU] = micros(u.CPU) / float64(n)
	if contender != pacer {
		after.minus(before).perJob(s, n)
	}
	return s, nil
}

// accuracy judges calls by the limits. If not all came, the time runs until the end.
func (t traffic) accuracy(calls map[string][]time.Time, ended time.Time) sample {
	var all []time.Time
	for _, times := range calls {
		all = append(all, times...)
	}
	took := time.Duration(0)
	if len(all) > 0 {
		last := slices.MaxFunc(all, time.Time.Compare)
		if len(all) < t.jobs {
			last = ended
		}
		took = last.Sub(slices.MinFunc(all, time.Time.Compare))
	}
	s := sample{called: float64(len(all)) / float64(t.jobs), excess: 0}
	if took > 0 {
		s[used] = t.ideal(len(all)).Seconds() / took.Seconds()
	}
	for _, l := range t.limits {
		buckets := map[string][]time.Time{"": all}
		if l.PerTenant {
			buckets = calls
		}
		for _, times := range buckets {
			s[excess] = max(s[excess], 1000*law.Excess(times, float64(l.Rate), l.Burst)/float64(l.Rate))
		}
	}
	return s
}
