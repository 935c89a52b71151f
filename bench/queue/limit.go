package main

import (
	"context"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// limit is a token bucket, for each tenant or for all together.
type limit struct {
	Name      string
	PerTenant bool
	Rate      int // per second
	Burst     int
}

func tenantLimit(rate int) limit { return limit{"tenant", true, rate, 1} }
func sharedRate(rate int) limit  { return limit{"account", false, rate, 1} }

// publish puts limits in force for queues.
func publish(ctx context.Context, client redis.UniversalClient, set []limit, queues ...string) error {
	rules := make([]limits.Limit, len(set))
	for i, l := range set {
		rules[i] = limits.Limit{Name: l.Name, Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(int64(l.Rate)), Burst: int64(l.Burst)}
		if l.PerTenant {
			rules[i].Per = []string{"tenant"}
		}
	}
	all := limits.Set{Queues: map[string]limits.Queue{}}
	for _, name := range queues {
		all.Queues[name] = limits.Queue{Limits: rules}
	}
	return operate.Publish(ctx, client, all)
}

// rule is the limit and its key as redis_rate wants them.
func (l limit) rule(tenant string) (string, redis_rate.Limit) {
	name := l.Name
	if l.PerTenant {
		name += ":" + tenant
	}
	r := redis_rate.PerSecond(l.Rate)
	r.Burst = l.Burst
	return name, r
}
