package throttle

import (
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"
)

// maxShards bounds the shards of one bucket.
const maxShards = 64

// shardLoad is what a sharded limiter knows of its shards. It has a limiter for each
// shard; together they never admit more than the whole limit. A call chooses two shards
// at random and asks the one that had more left in its last answer, and then the other
// one if that refuses or only has a later slot. So a call may be refused although a third
// shard has permits.
type shardLoad struct {
	seed maphash.Seed
	// left is what each shard had left in its last answer, by a hash of the key.
	left [256][]atomic.Int64
}

// whole is the limit as if it had one bucket.
func (l Limit) whole() Limit {
	l.Shards = 0
	return l
}

// shard returns one part of the limit. The first ones get the remainder.
func (l Limit) shard(i int) Limit {
	parts, part := int64(l.Shards), l.whole()
	of := func(whole int64) int64 {
		if int64(i) < whole%parts {
			return whole/parts + 1
		}
		return whole / parts
	}
	switch {
	case l.Algorithm == Concurrency:
		part.Concurrency = of(l.Concurrency)
	case l.drains():
		part.Burst = of(part.maxCost(false))
		if l.Rate.Count%parts == 0 {
			part.Rate.Count /= parts
		} else {
			part.Rate.Period *= time.Duration(parts)
		}
	default:
		part.Rate.Count = of(l.Rate.Count)
	}
	return part
}

// split makes a limiter for each shard.
func (l *Limiter) split() error {
	limit := l.limits[0]
	l.load = &shardLoad{seed: maphash.MakeSeed()}
	for i := range l.load.left {
		l.load.left[i] = make([]atomic.Int64, limit.Shards)
	}
	for i := range limit.Shards {
		part := limit.shard(i)
		shard, err := New(l.client, l.prefix, part)
		if err != nil {
			return err
		}
		shard.maxKey += len("#63")
		l.shards = append(l.shards, shard)
		for j := range l.load.left {
			l.load.left[j][i].Store(part.Quota()) // until its first answer
		}
	}
	return nil
}

// checkCost returns an error for a cost that some shard would never admit.
func (l *Limiter) checkCost(n int64, keys []string) error {
	if highest := l.limits[0].maxCost(false); highest > 0 && n > highest {
		return &CostError{Limit: l.limits[0].Name, Cost: n, Max: highest}
	}
	return l.checkKeys(keys)
}

// two chooses the shards to ask, the better one first.
func (l *Limiter) two(key string) (left []atomic.Int64, first, second int) {
	left = l.load.left[maphash.String(l.load.seed, key)%256]
	first = rand.IntN(len(l.shards))
	second = (first + 1 + rand.IntN(len(l.shards)-1)) % len(l.shards)
	if left[second].Load() > left[first].Load() {
		first, second = second, first
	}
	return left, first, second
}

// part returns the key for one shard. It changes the hash tag, so that shards spread
// over a cluster.
func part(key string, i int) string { return key + "#" + strconv.Itoa(i) }

func (l *Limiter) takeSharded(ctx context.Context, n int64, keys []string) (Decision, error) {
	if err := l.checkCost(n, keys); err != nil {
		return Decision{}, err
	}
	left, first, second := l.two(keys[0])
	var refused Decision
	local := true
	for try, i := range []int{first, second} {
		d, err := l.shards[i].Take(ctx, n, part(keys[0], i))
		if err != nil {
			return Decision{}, err
		}
		left[i].Store(d.Remaining)
		if d.Allowed {
			return d, nil
		}
		local = local && d.Local
		if try == 0 || d.RetryAfter < refused.RetryAfter {
			refused = d
		}
	}
	refused.Local = local
	return refused, nil
}

func (l *Limiter) reserveSharded(ctx context.Context, n int64, within time.Duration, keys []string) (*Reservation, error) {
	if err := l.checkCost(n, keys); err != nil {
		return nil, err
	}
	left, first, second := l.two(keys[0])
	ask := func(i int, within time.Duration) (*Reservation, error) {
		r, err := l.shards[i].Reserve(ctx, n, within, part(keys[0], i))
		if err == nil {
			// If neither has permits left, the one whose slots are nearer is better.
			left[i].Store(r.Remaining - r.Delay.Microseconds())
		}
		return r, err
	}
	if within > 0 && l.limits[0].Algorithm != Concurrency {
		// No later slot is taken in one while the other one has permits. One that had none in its last answer is not
		// asked for that: if all calls wait, each takes one round trip.
		for _, i := range []int{first, second} {
			if left[i].Load() < n {
				continue
			}
			if r, err := ask(i, 0); err != nil || r.Allowed {
				return r, err
			}
		}
		if left[second].Load() > left[first].Load() {
			first, second = second, first
		}
	}
	var refused *Reservation
	for _, i := range []int{first, second} {
		r, err := ask(i, within)
		if err != nil {
			return nil, err
		}
		if r.Allowed {
			return r, nil
		}
		if refused == nil || r.RetryAfter < refused.RetryAfter {
			refused = r
		}
	}
	return refused, nil
}

// peekSharded asks all shards. Remaining and Quota are sums, and the rest is that of the
// shard that would admit the call first.
func (l *Limiter) peekSharded(n int64, keys []string, peek func(shard *Limiter, key string) (Decision, error)) (Decision, error) {
	if err := l.checkCost(n, keys); err != nil {
		return Decision{}, err
	}
	var best Decision
	var sum, quota int64
	for i, shard := range l.shards {
		d, err := peek(shard, part(keys[0], i))
		if err != nil {
			return Decision{}, err
		}
		sum, quota = sum+d.Remaining, quota+d.Quota
		sooner := d.RetryAfter < best.RetryAfter || d.RetryAfter == best.RetryAfter && d.Delay < best.Delay
		if i == 0 || d.Allowed && !best.Allowed || d.Allowed == best.Allowed && sooner {
			best = d
		}
	}
	best.Remaining, best.Quota = sum, quota
	return best, nil
}

func (l *Limiter) pauseSharded(ctx context.Context, limit, key string, length time.Duration, reason string) error {
	var errs []error
	for i, shard := range l.shards {
		errs = append(errs, shard.pause(ctx, limit, part(key, i), length, reason))
	}
	return errors.Join(errs...)
}
