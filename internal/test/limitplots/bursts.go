package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

// hundred is the rate at which bursts are measured.
var hundred = throttle.PerSecond(100)

var bursting = []struct {
	name   string
	limit  throttle.Limit
	within time.Duration
}{
	{"fixed window", throttle.Limit{Algorithm: throttle.FixedWindow, Rate: hundred}, 0},
	{"sliding window log", throttle.Limit{Algorithm: throttle.SlidingWindowLog, Rate: hundred}, 0},
	{"sliding window counter", throttle.Limit{Algorithm: throttle.SlidingWindowCounter, Rate: hundred}, 0},
	{"token bucket, burst 100", throttle.Limit{Algorithm: throttle.TokenBucket, Rate: hundred, Burst: 100}, 0},
	{"token bucket, burst 10", throttle.Limit{Algorithm: throttle.TokenBucket, Rate: hundred, Burst: 10}, 0},
	{"token bucket, burst 1", throttle.Limit{Algorithm: throttle.TokenBucket, Rate: hundred, Burst: 1}, 0},
	{"leaky bucket, policing, capacity 10", throttle.Limit{Algorithm: throttle.LeakyBucket, Rate: hundred, Capacity: 10}, 0},
	{"leaky bucket, shaping", throttle.Limit{Algorithm: throttle.LeakyBucket, Rate: hundred}, time.Hour},
}

// printBursts prints the max number of calls within a short time. After a rest, the caller takes
// every permit as soon as it is available. The result depends on the offset within a window at
// which it begins; the worst of several offsets counts.
func printBursts(ctx context.Context, client *redis.Client, out io.Writer) error {
	fmt.Fprintln(out, "| limit, 100 permits a second | most in any 2 ms | in any 100 ms | in any 1 s |")
	fmt.Fprintln(out, "|---|---|---|---|")
	window := time.Unix(1_800_000_000, 0) // the start of a window
	for _, b := range bursting {
		var worst [3]int
		for _, into := range []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, 999 * time.Millisecond} {
			d := newDecider(client, fmt.Sprintf("burst:%s:%v", b.name, into), b.limit, b.within > 0)
			went, err := greedy(ctx, d, window.Add(into), b.within)
			if err != nil {
				return err
			}
			for i, length := range []time.Duration{2 * time.Millisecond, 100 * time.Millisecond, time.Second} {
				worst[i] = max(worst[i], maxWithin(went, length))
			}
		}
		fmt.Fprintf(out, "| %s | %d | %d | %d |\n", b.name, worst[0], worst[1], worst[2])
	}
	return nil
}

// greedy sends requests for a bit more than two seconds, and after a refusal as soon as it may. It
// returns the times at which the requests go.
func greedy(ctx context.Context, d *decider, begin time.Time, within time.Duration) ([]time.Duration, error) {
	const long = 2100 * time.Millisecond
	var went []time.Duration
	for after := time.Duration(0); after < long; {
		allowed, delay, err := d.decide(ctx, begin.Add(after), within)
		switch {
		case err != nil:
			return nil, err
		case !allowed:
			after += delay
		case delay > long:
			return went, nil // the queue is longer than the measured time
		default:
			went = append(went, after+delay)
		}
	}
	return went, nil
}
