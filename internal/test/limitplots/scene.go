package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

const (
	offered = 60              // requests
	span    = 2 * time.Second // in which they arrive at even intervals
)

// scene is the plot of one algorithm.
type scene struct {
	file, title string
	limit       throttle.Limit
	within      time.Duration // 0: policing; otherwise how long a request may wait
	lasts       time.Duration // duration of a call, for concurrency
	edges       bool          // windows are aligned
}

var tenPerSecond = throttle.PerSecond(10)

// The requests begin half a second after the start of a window.
var scenes = []scene{
	{file: "fixed-window", title: "Fixed window, 10 per second",
		limit: throttle.Limit{Algorithm: throttle.FixedWindow, Rate: tenPerSecond}, edges: true},
	{file: "sliding-window-log", title: "Sliding window log, 10 per second",
		limit: throttle.Limit{Algorithm: throttle.SlidingWindowLog, Rate: tenPerSecond}},
	{file: "sliding-window-counter", title: "Sliding window counter, 10 per second",
		limit: throttle.Limit{Algorithm: throttle.SlidingWindowCounter, Rate: tenPerSecond}, edges: true},
	{file: "token-bucket", title: "Token bucket, 10 per second, burst 10",
		limit: throttle.Limit{Algorithm: throttle.TokenBucket, Rate: tenPerSecond, Burst: 10}},
	{file: "leaky-bucket-policing", title: "Leaky bucket, policing, 10 per second, capacity 3",
		limit: throttle.Limit{Algorithm: throttle.LeakyBucket, Rate: tenPerSecond, Capacity: 3}},
	{file: "leaky-bucket-shaping", title: "Leaky bucket, shaping, 10 per second, 10 may wait",
		limit: throttle.Limit{Algorithm: throttle.LeakyBucket, Rate: tenPerSecond, Capacity: 10}, within: time.Hour},
	{file: "concurrency", title: "Concurrency, 4 at a time, each call takes 400 ms",
		limit: throttle.Limit{Algorithm: throttle.Concurrency, Concurrency: 4}, lasts: 400 * time.Millisecond},
}

// played has the results of the requests, relative to the first.
type played struct {
	scene
	came, went, refused []time.Duration
}

// play sends the requests to the limit.
func (s scene) play(ctx context.Context, client *redis.Client) (played, error) {
	p := played{scene: s}
	d := newDecider(client, "plot:"+s.file, s.limit, s.within > 0)
	// Half a second after the start of a window of a second, the same on every run.
	begin := time.Unix(1_800_000_000, 0).Add(500 * time.Millisecond)
	var ends []time.Duration // of calls in flight, by number
	for i := range offered {
		after := (span * time.Duration(i) / offered).Truncate(time.Microsecond)
		for len(ends) > 0 && ends[0] <= after {
			if err := d.release(ctx); err != nil {
				return played{}, err
			}
			ends = ends[1:]
		}
		p.came = append(p.came, after)
		allowed, delay, err := d.decide(ctx, begin.Add(after), s.within)
		if err != nil {
			return played{}, fmt.Errorf("%s: %w", s.file, err)
		}
		if !allowed {
			p.refused = append(p.refused, after)
			continue
		}
		p.went = append(p.went, after+delay)
		if s.lasts > 0 {
			ends = append(ends, after+s.lasts)
		}
	}
	return p, nil
}
