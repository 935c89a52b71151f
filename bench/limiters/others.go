package main

import (
	"context"
	"errors"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

// goRedisRate is a GCRA in one script.
func goRedisRate(c *contender) error {
	c.name, c.overhead = redisRate, len("rate:")
	l := redis_rate.NewLimiter(c.client)
	allow := func(q quota) decide {
		limit := redis_rate.Limit{Rate: int(q.count), Period: q.period, Burst: int(q.burst)}
		return func(ctx context.Context, key string) (bool, error) {
			result, err := l.Allow(ctx, key, limit)
			return err == nil && result.Allowed > 0, err
		}
	}
	c.plenty, c.scarce, c.lasting = allow(plenty), allow(scarce), allow(lasting)
	return nil
}

// throttledV2 is a GCRA in Go: it reads, and writes if nobody else did since. It
// tries ten times, and fails where many want one key.
func throttledV2(c *contender) error {
	const prefix = "throttled:"
	c.name, c.overhead = "throttled", len(prefix)
	store, err := throttledredis.NewCtx(c.client, prefix)
	if err != nil {
		return err
	}
	limit := func(q quota) decide {
		l, newErr := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
			MaxRate:  throttled.PerDuration(int(q.count), q.period),
			MaxBurst: int(q.burst) - 1, // beyond the first
		})
		err = errors.Join(err, newErr)
		return func(ctx context.Context, key string) (bool, error) {
			limited, _, err := l.RateLimitCtx(ctx, key, 1)
			return !limited && err == nil, err
		}
	}
	c.plenty, c.scarce, c.lasting = limit(plenty), limit(scarce), limit(lasting)
	return err
}

// ululeV3 is a fixed window that begins with its first call.
func ululeV3(c *contender) error {
	const prefix = "ulule"
	c.name, c.overhead = "ulule", len(prefix)+len(":")
	store, err := ululeredis.NewStoreWithOptions(c.client, limiter.StoreOptions{Prefix: prefix})
	if err != nil {
		return err
	}
	get := func(q quota) decide {
		l := limiter.New(store, limiter.Rate{Period: q.period, Limit: q.count})
		return func(ctx context.Context, key string) (bool, error) {
			state, err := l.Get(ctx, key)
			return !state.Reached && err == nil, err
		}
	}
	c.plenty, c.scarce, c.lasting = get(plenty), get(scarce), get(lasting)
	return nil
}

// empty is the least that any script can cost.
func empty(c *contender) error {
	c.name = emptyScript
	return blind(c, "return 0")
}

// state is the least that a limiter can cost which goes by Redis's clock and keeps
// one value that expires: it does both, and computes nothing.
func state(c *contender) error {
	c.name = stateScript
	return blind(c, `
local time = redis.call('TIME')
redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], '2174084471234560010', 'PX', '3000')
return {time[1] * 1000000 + time[2], 1}`)
}

// blind is a script that looks at nothing.
func blind(c *contender, text string) error {
	c.judges = false
	script := redis.NewScript(text)
	c.plenty = func(ctx context.Context, key string) (bool, error) {
		err := script.EvalSha(ctx, c.client, []string{key}).Err()
		return err == nil, err
	}
	return script.Load(context.Background(), c.client).Err()
}

// incr is the least that any counter can cost. It is no limiter: its key never
// expires.
func incr(c *contender) error {
	const prefix = "incr:"
	c.name, c.overhead, c.judges = "INCR", len(prefix), false
	c.plenty = func(ctx context.Context, key string) (bool, error) {
		err := c.client.Incr(ctx, prefix+key).Err()
		return err == nil, err
	}
	c.lasting = c.plenty
	return nil
}
