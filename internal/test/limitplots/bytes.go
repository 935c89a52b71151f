package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

// load is a kind of bucket to measure.
type load struct {
	name    string
	limit   throttle.Limit
	keys    int
	calls   int64 // for each key
	permits int64 // for each call
	reserve bool  // instead of Take
}

func loads() []load {
	slow := throttle.Rate{Count: 2, Period: time.Minute} // one permit takes 30 s: whole µs, and less than a minute
	hourly := func(n int64) throttle.Rate { return throttle.Rate{Count: n, Period: time.Hour} }
	const many = 10_000
	token := throttle.Limit{Name: "t", Algorithm: throttle.TokenBucket, Rate: slow, Burst: 20}
	sevenths := throttle.Limit{Name: "t", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 7, Period: 200 * time.Second}, Burst: 20}
	list := []load{
		{"token bucket, plain, an integer", token, many, 1, 1, false},
		{"token bucket, after a reservation", token, many, 1, 1, true},
		{"token bucket, after eight reservations", token, many, 8, 1, true},
		{"token bucket, plain, a text", sevenths, many, 1, 1, false},
		{"leaky bucket, policing, an integer", throttle.Limit{Name: "t", Algorithm: throttle.LeakyBucket, Rate: slow, Capacity: 20}, many, 1, 1, false},
		{"leaky bucket, shaping", throttle.Limit{Name: "t", Algorithm: throttle.LeakyBucket, Rate: slow, Capacity: 20}, many, 1, 1, true},
		{"fixed window", throttle.Limit{Name: "t", Algorithm: throttle.FixedWindow, Rate: hourly(20)}, many, 1, 1, false},
		{"sliding window counter", throttle.Limit{Name: "t", Algorithm: throttle.SlidingWindowCounter, Rate: hourly(20)}, many, 1, 1, false},
	}
	for _, n := range []int64{1, 10, 100, 1000, 10_000} {
		keys := int(min(many, 1_000_000/n))
		list = append(list, load{fmt.Sprintf("sliding window log of %d", n), throttle.Limit{Name: "t", Algorithm: throttle.SlidingWindowLog, Rate: hourly(n)}, keys, 1, n, false})
	}
	for _, n := range []int64{1, 10, 100, 1000} {
		keys := int(min(many, 100_000/n))
		list = append(list, load{fmt.Sprintf("concurrency, %d in flight", n), throttle.Limit{Name: "t", Algorithm: throttle.Concurrency, Concurrency: n, Lease: time.Hour}, keys, n, 1, false})
	}
	return list
}

// printBytes prints by how much used_memory grows for each key, including its share of the tables
// for keys and expiry times.
func printBytes(ctx context.Context, client *redis.Client, out io.Writer) error {
	fmt.Fprintln(out, "| bucket | keys | bytes per key |")
	fmt.Fprintln(out, "|---|---|---|")
	for _, l := range loads() {
		weight, err := l.weigh(ctx, client)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		fmt.Fprintf(out, "| %s | %s | %s |\n", l.name, grouped(l.keys), grouped(int(weight+0.5)))
	}
	return nil
}

func (l load) weigh(ctx context.Context, client *redis.Client) (float64, error) {
	limiter, err := throttle.New(client, "hg", l.limit)
	if err != nil {
		return 0, err
	}
	if err := client.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	// The first call loads the script.
	if err := l.use(ctx, limiter, "user-000000"); err != nil {
		return 0, err
	}
	if err := client.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	before, err := settled(ctx, client)
	if err != nil {
		return 0, err
	}
	var calling sync.WaitGroup
	failed := make(chan error, 64)
	for caller := range 64 {
		calling.Go(func() {
			for i := caller; i < l.keys; i += 64 {
				// "hg:t:{user-000000}" is 18 bytes.
				if err := l.use(ctx, limiter, fmt.Sprintf("user-%06d", i)); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	calling.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
	}
	after, err := settled(ctx, client)
	if err != nil {
		return 0, err
	}
	if n, err := client.DBSize(ctx).Result(); err != nil || n != int64(l.keys) {
		return 0, fmt.Errorf("%d of %d keys exist; did some expire? %w", n, l.keys, err)
	}
	return float64(after-before) / float64(l.keys), nil
}

// use fills the bucket of one key.
func (l load) use(ctx context.Context, limiter *throttle.Limiter, key string) error {
	for range l.calls {
		var d throttle.Decision
		var err error
		if l.reserve {
			var r *throttle.Reservation
			if r, err = limiter.Reserve(ctx, l.permits, 0, key); err == nil {
				d = r.Decision
			}
		} else {
			d, err = limiter.Take(ctx, l.permits, key)
		}
		if err != nil {
			return err
		}
		if !d.Allowed {
			return fmt.Errorf("%s is refused", key)
		}
	}
	return nil
}

// settled returns the memory in use, without connection buffers, once it no longer changes: all
// tables are then rehashed.
func settled(ctx context.Context, client *redis.Client) (int64, error) {
	last, same := int64(0), 0
	for range 100 {
		time.Sleep(110 * time.Millisecond)
		used, err := used(ctx, client)
		if err != nil {
			return 0, err
		}
		if used != last {
			last, same = used, 0
		} else if same++; same == 3 {
			return last, nil
		}
	}
	return 0, errors.New("used_memory keeps changing")
}

func used(ctx context.Context, client *redis.Client) (int64, error) {
	text, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	sum := int64(0)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_memory" && name != "mem_clients_normal" {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("info: %w", err)
		}
		if name == "used_memory" {
			sum += n
		} else {
			sum -= n
		}
	}
	return sum, nil
}
