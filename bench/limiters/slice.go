package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// sample is what one contender showed in some time.
type sample struct {
	elapsed   time.Duration
	decisions int64 // made: admitted or refused
	admitted  int64
	failed    int64
	failure   error         // the first
	trips     int64         // round trips
	allocs    uint64        // on this side
	redisCPU  time.Duration // of the whole server
	scripts   time.Duration // within its commands, without reading and answering them
}

// slice has a contender decide for about d.
func (b *bench) slice(ctx context.Context, c *contender, l load, d time.Duration) (sample, error) {
	ask, first := c.under(l)
	keys := make([]string, l.Keys)
	for i := range keys {
		keys[i] = c.key(first + i)
	}
	cpu, scripts, err := b.spent(ctx)
	if err != nil {
		return sample{}, err
	}
	trips, allocs := c.trips.Load(), mallocs()

	var (
		s       sample
		mu      sync.Mutex
		stopped atomic.Bool
		callers sync.WaitGroup
		start   = time.Now()
	)
	timer := time.AfterFunc(d, func() { stopped.Store(true) })
	defer timer.Stop()
	for range l.Goroutines {
		callers.Go(func() {
			var own sample
			for !stopped.Load() && ctx.Err() == nil {
				key := keys[0]
				if len(keys) > 1 {
					key = keys[rand.IntN(len(keys))]
				}
				own.count(ask(ctx, key))
			}
			mu.Lock()
			defer mu.Unlock()
			s = s.plus(own)
		})
	}
	callers.Wait()
	s.elapsed = time.Since(start)

	s.trips, s.allocs = c.trips.Load()-trips, mallocs()-allocs
	cpuAfter, scriptsAfter, err := b.spent(ctx)
	s.redisCPU, s.scripts = cpuAfter-cpu, scriptsAfter-scripts
	return s, errors.Join(err, ctx.Err())
}

func (s *sample) count(admitted bool, err error) {
	switch {
	case err != nil:
		s.failed++
		if s.failure == nil {
			s.failure = err
		}
	case admitted:
		s.admitted++
		s.decisions++
	default:
		s.decisions++
	}
}

func (s sample) plus(o sample) sample {
	return sample{
		elapsed:   s.elapsed + o.elapsed,
		decisions: s.decisions + o.decisions,
		admitted:  s.admitted + o.admitted,
		failed:    s.failed + o.failed,
		failure:   cmp.Or(s.failure, o.failure),
		trips:     s.trips + o.trips,
		allocs:    s.allocs + o.allocs,
		redisCPU:  s.redisCPU + o.redisCPU,
		scripts:   s.scripts + o.scripts,
	}
}

func (s sample) perSecond() float64 { return float64(s.decisions) / s.elapsed.Seconds() }

// per is an amount for each decision.
func (s sample) per(amount float64) float64 {
	if s.decisions == 0 {
		return 0
	}
	return amount / float64(s.decisions)
}

func mallocs() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.Mallocs
}

// spent is the CPU that Redis has used, and the time within the commands that
// contenders decide with.
func (b *bench) spent(ctx context.Context) (cpu, scripts time.Duration, err error) {
	text, err := b.admin.Info(ctx, "cpu", "commandstats").Result()
	if err != nil {
		return 0, 0, fmt.Errorf("info: %w", err)
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "used_cpu_user", "used_cpu_sys":
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, 0, fmt.Errorf("info: %w", err)
			}
			cpu += time.Duration(seconds * float64(time.Second))
		case "cmdstat_evalsha", "cmdstat_eval", "cmdstat_incr":
			var calls, us int64
			if _, err := fmt.Sscanf(value, "calls=%d,usec=%d", &calls, &us); err != nil {
				return 0, 0, fmt.Errorf("info: %s: %w", value, err)
			}
			scripts += time.Duration(us) * time.Microsecond
		}
	}
	return cpu, scripts, nil
}
