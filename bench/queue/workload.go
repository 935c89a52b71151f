package main

import (
	"context"
	"fmt"
	"os"
)

// workload is one question, and the contenders that answer it.
type workload struct {
	name, about string
	columns     []figure
	base        string // the contender that others' jobs/s are compared with; "": none

	// prepare fills Redis once, before the rounds; nil: entries start from an empty one.
	prepare func(ctx context.Context, b *bench) error
	entries []entry
	targets []target
}

// entry is a contender in a workload. It can look at those that ran before it in the
// same round.
type entry struct {
	name string
	run  func(ctx context.Context, b *bench, round map[string]sample) (sample, error)
}

// sample is what an entry showed in one round.
type sample map[figure]float64

// figure is what is measured, with its unit.
type figure string

const (
	perSecond    figure = "jobs/s"
	commands     figure = "commands"        // of Redis for each job, those inside of scripts too
	scripts      figure = "scripts"         // called for each job
	redisCPU     figure = "Redis µs"        // of its main thread for each job
	scriptCPU    figure = "script µs"       // of Redis within scripts for each job
	workerCPU    figure = "worker µs"       // of all worker processes for each job
	netBytes     figure = "bytes"           // to and from Redis for each job
	single       figure = "single enqueue"  // commands of an enqueue call for one job
	batched      figure = "batched enqueue" // commands for each job of a batch
	totalSingle  figure = "all, single"     // commands from a single enqueue to the end
	totalBatched figure = "all, batched"    // commands from a batched enqueue to the end
	held50       figure = "held p50 ms"     // for the slot, in the worker's hands
	held99       figure = "held p99 ms"
	used         figure = "use"       // of the limit, from the first call to the last
	excess       figure = "excess ms" // beyond burst + rate × time, as time at the rate
	called       figure = "called"    // part of the jobs that was called in time
	p50          figure = "p50 ms"
	p99          figure = "p99 ms"
	dispatchP99  figure = "dispatch p99 ms" // of a call of the dispatch script
	scriptP99    figure = "script p99 ms"   // within Redis, of a call of any script
	redisMS      figure = "Redis ms"        // of one read, in all its commands
	longest      figure = "longest command ms"
	redisShare   figure = "Redis %"    // of one core
	commandsASec figure = "commands/s" // of Redis
)

func workloads() []workload {
	return []workload{
		drain(1), drain(2),
		enqueue(1), enqueue(2),
		oneTenant(), manyTenants(), noisyNeighbour(), twoThousand(), sharedLimit(), busyMachine(),
		waiting(), lanes(), page(),
		latency(), fleet(),
	}
}

// row is an entry with its samples, one for each round.
type row struct {
	name    string
	samples []sample
}

// measure runs all rounds of a workload. Contenders take turns, so that all see the same
// noise.
func (b *bench) measure(ctx context.Context, w workload) ([]row, error) {
	if err := b.admin.FlushAll(ctx).Err(); err != nil { // of this program's own server
		return nil, err
	}
	if w.prepare != nil {
		if err := w.prepare(ctx, b); err != nil {
			return nil, err
		}
	}
	rows := make([]row, len(w.entries))
	for n := range b.config.rounds {
		fmt.Fprintf(os.Stderr, "%s: round %d of %d\n", w.name, n+1, b.config.rounds)
		round := map[string]sample{}
		for i, e := range w.entries {
			if w.prepare == nil {
				if err := b.admin.FlushAll(ctx).Err(); err != nil {
					return nil, err
				}
			}
			s, err := e.run(ctx, b, round)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e.name, err)
			}
			round[e.name] = s
			rows[i].name = e.name
			rows[i].samples = append(rows[i].samples, s)
		}
	}
	return rows, nil
}
