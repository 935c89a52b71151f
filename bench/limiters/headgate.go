package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

// form makes the limit of one algorithm out of a quota.
type form func(q quota) throttle.Limit

func bucketForm(q quota) throttle.Limit {
	return throttle.Limit{Algorithm: throttle.TokenBucket, Rate: rate(q), Burst: q.burst}
}

func meterForm(q quota) throttle.Limit {
	return throttle.Limit{Algorithm: throttle.LeakyBucket, Rate: rate(q), Capacity: q.burst}
}

func windowForm(algorithm throttle.Algorithm) form {
	return func(q quota) throttle.Limit { return throttle.Limit{Algorithm: algorithm, Rate: rate(q)} }
}

// logForm has the same rate within a shorter period: a log is at most 10,000 long.
func logForm(q quota) throttle.Limit {
	const most = 10_000
	if q.count > most {
		q.count, q.period = most, q.period/time.Duration(q.count/most)
	}
	return throttle.Limit{Algorithm: throttle.SlidingWindowLog, Rate: rate(q)}
}

func concurrencyForm(q quota) throttle.Limit {
	return throttle.Limit{
		Algorithm:   throttle.Concurrency,
		Concurrency: min(q.count, 100_000),
		Lease:       max(q.period, 30*time.Second),
	}
}

// everySecond has so many permits a second, and where everything is to be admitted more of them than are asked for.
func everySecond(permits int64) form {
	return func(q quota) throttle.Limit {
		if q == plenty {
			q = quota{count: permits, period: time.Second, burst: 100_000_000}
		}
		return bucketForm(q)
	}
}

// sevenths has a rate whose interval is no whole number of µs.
func sevenths(q quota) throttle.Limit {
	q.count, q.period = 7, 200*time.Second
	return bucketForm(q)
}

func rate(q quota) throttle.Rate { return throttle.Rate{Count: q.count, Period: q.period} }

// headgate is a limiter of so many layers of one form.
func headgate(c *contender, name, prefix string, layers int, form form, ask func(*throttle.Limiter) decide) error {
	c.name = name
	c.overhead = len(prefix) + len(":a:{}")
	if layers > 1 {
		c.overhead = len(prefix) + len("{}:a:")
	}
	var err error
	limiter := func(q quota) *throttle.Limiter {
		limits := make([]throttle.Limit, layers)
		for i := range limits {
			limits[i] = form(q)
			limits[i].Name = string(rune('a' + i))
		}
		l, newErr := throttle.New(c.client, prefix, limits...)
		err = errors.Join(err, newErr)
		return l
	}
	c.plenty, c.scarce, c.lasting = ask(limiter(plenty)), ask(limiter(scarce)), ask(limiter(lasting))
	return err
}

func take(l *throttle.Limiter) decide {
	return func(ctx context.Context, key string) (bool, error) {
		d, err := l.Take(ctx, 1, key)
		return d.Allowed, err
	}
}

// shaping takes slots of a leaky bucket, which are evenly spaced.
func shaping(c *contender) error { return headgate(c, "headgate shaping", "ls", 1, meterForm, reserve) }

// reserve takes slots within an hour.
func reserve(l *throttle.Limiter) decide {
	return func(ctx context.Context, key string) (bool, error) {
		r, err := l.Reserve(ctx, 1, time.Hour, key)
		return err == nil && r.Allowed, err
	}
}

// concurrency is calls from their beginning to their end: the decision and the
// release. Where nearly all are refused, the few that are not go on.
func concurrency(c *contender) error {
	const prefix = "cc"
	if err := headgate(c, "headgate concurrency", prefix, 1, concurrencyForm, reserve); err != nil {
		return err
	}
	limit := concurrencyForm(plenty)
	limit.Name = "a"
	l, err := throttle.New(c.client, prefix, limit)
	if err != nil {
		return err
	}
	c.plenty = func(ctx context.Context, key string) (bool, error) {
		r, err := l.Reserve(ctx, 1, 0, key)
		if err != nil {
			return false, err
		}
		return r.Allowed, r.Release(ctx)
	}
	return nil
}

// bare sends the very command that a Take sends, and nothing else: what Take
// costs beyond it are the limiter's own sharing of round trips and its answer.
func bare(c *contender) error {
	const prefix, keyAt = "bare", 3 // EVALSHA sha 1 key ...
	if err := headgate(c, bareScript, prefix, 1, bucketForm, take); err != nil {
		return err
	}
	seen := &recorder{}
	c.client.AddHook(seen)
	if _, err := c.plenty(context.Background(), c.key(plentyKeys)); err != nil {
		return err
	}
	seen.done = true
	words := seen.words
	inRedis := func(key string) string { return prefix + ":a:{" + key + "}" }
	if len(words) <= keyAt || words[keyAt] != inRedis(c.key(plentyKeys)) {
		return fmt.Errorf("%s: a Take sends %v, which is no EVALSHA of one key", bareScript, words)
	}
	c.judges, c.scarce, c.lasting = false, nil, nil
	c.plenty = func(ctx context.Context, key string) (bool, error) {
		args := slices.Clone(words)
		args[keyAt] = inRedis(key)
		cmd := redis.NewCmd(ctx, args...)
		if err := c.client.Process(ctx, cmd); err != nil {
			return false, err
		}
		_, err := cmd.Slice()
		return err == nil, err
	}
	return nil
}

// recorder remembers the first EVALSHA.
type recorder struct {
	words []any
	done  bool
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !r.done && r.words == nil && cmd.Name() == "evalsha" {
			r.words = cmd.Args()
		}
		return next(ctx, cmd)
	}
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
