package main

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/throttle"
)

//go:embed decide.lua
var decideLua string

var decideScript = limitlua.NewScript(decideLua)

// decider makes decisions with one bucket, on the caller's clock.
type decider struct {
	client       *redis.Client
	key          string
	limit        []any // six arguments for limit_read
	given, freed int   // permits of a concurrency limit
}

func newDecider(client *redis.Client, key string, limit throttle.Limit, shaping bool) *decider {
	spec := limitlua.Limit{
		Algorithm: string(limit.Algorithm), Count: limit.Rate.Count, Period: limit.Rate.Period,
		Burst: limit.Burst, Capacity: limit.Capacity, Concurrency: limit.Concurrency,
	}.Spec(shaping, 24*time.Hour)
	beyond, window := spec.Ahead, ""
	if spec.Algorithm == "cc" {
		beyond = throttle.DefaultLease.Microseconds()
	}
	if spec.Window > 0 {
		window = strconv.FormatInt(spec.Window, 10)
	}
	return &decider{client: client, key: key, limit: []any{spec.Algorithm, spec.Permit, spec.Flow, spec.Burst, beyond, window}}
}

// decide requests one permit at now, with a wait of at most within.
func (d *decider) decide(ctx context.Context, now time.Time, within time.Duration) (allowed bool, delay time.Duration, err error) {
	args := append([]any{now.UnixMicro(), within.Microseconds(), d.given}, d.limit...)
	reply, err := decideScript.Run(ctx, d.client, []string{d.key}, args...)
	if err != nil {
		return false, 0, err
	}
	values, ok := reply.([]any)
	if !ok || len(values) != 2 {
		return false, 0, fmt.Errorf("unexpected reply %v", reply)
	}
	taken, isNumber := values[0].(int64)
	wait, isToo := values[1].(int64)
	if !isNumber || !isToo {
		return false, 0, fmt.Errorf("unexpected reply %v", reply)
	}
	if taken == 1 {
		d.given++
	}
	return taken == 1, time.Duration(wait) * time.Microsecond, nil
}

// release ends the oldest call of a concurrency limit.
func (d *decider) release(ctx context.Context) error {
	d.freed++
	return d.client.ZRem(ctx, d.key, d.freed-1).Err()
}
