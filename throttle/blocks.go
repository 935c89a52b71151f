package throttle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Blocks takes permits from a limiter a block at a time and hands them out in
// process, for keys so hot that not even a shared round trip for each call will
// do. What it costs is exactness, by a known amount:
//
//   - A permit is used up to Hold after it was taken, so in any time t the calls
//     of all processes are at most burst + rate × (t + Hold).
//   - A process that dies takes up to one block of each key with it, until the
//     limit has refilled by as much.
//   - While a process has permits of its own, others may be refused: it is ahead
//     by less than one block of each key, for no longer than Hold.
type Blocks struct {
	limiter *Limiter
	size    int64
	hold    time.Duration

	mu   sync.Mutex
	held map[string]*block
}

// block is what one key has in this process.
type block struct {
	mu    sync.Mutex // held while a block is fetched: calls of one key wait for it
	from  *Reservation
	left  int64
	until time.Time
}

// NewBlocks hands out permits of a limiter with a single limit, size at a time,
// each for no longer than hold, which is 1 ms to a minute. size is at most half
// of what the limit holds, so that no process takes all of it.
func NewBlocks(l *Limiter, size int64, hold time.Duration) (*Blocks, error) {
	limit := l.limits[0]
	switch {
	case len(l.limits) > 1 || l.shards != nil || limit.Algorithm == Concurrency:
		return nil, errors.New("throttle: blocks: only a limiter of a single limit with a rate and without shards has them")
	case hold < time.Millisecond || hold > time.Minute:
		return nil, fmt.Errorf("throttle: blocks: a hold of %v is not within 1ms to 1m", hold)
	case size < 2 || size > limit.quota(false)/2:
		return nil, fmt.Errorf("throttle: blocks: a size of %d is not within 2 to %d, half of what limit %q holds", size, limit.quota(false)/2, limit.Name)
	}
	return &Blocks{limiter: l, size: size, hold: hold, held: map[string]*block{}}, nil
}

// Take takes n permits now or none, from the key's block or else from Redis.
// Errors are those of [Limiter.Take]. Of a Decision out of a block Remaining is
// what the block still has, and ResetAfter is 0.
func (b *Blocks) Take(ctx context.Context, n int64, key string) (Decision, error) {
	if n < 1 || n > b.size {
		return b.limiter.Take(ctx, n, key)
	}
	own := b.block(key)
	own.mu.Lock()
	defer own.mu.Unlock()
	if time.Now().Before(own.until) && own.left >= n {
		return b.hand(own, n), nil
	}
	if err := own.giveBack(ctx); err != nil {
		return Decision{}, err
	}
	// Before Redis is asked: an answer that is long on its way uses up its time.
	until := time.Now().Add(b.hold)
	r, err := b.limiter.Reserve(ctx, b.size, 0, key)
	if err != nil {
		return Decision{}, err
	}
	if !r.Allowed {
		return b.limiter.Take(ctx, n, key) // there may be enough for this one
	}
	own.from, own.left, own.until = r, b.size, until
	return b.hand(own, n), nil
}

func (b *Blocks) hand(own *block, n int64) Decision {
	own.left -= n
	return Decision{Allowed: true, Limit: own.from.Limit, Quota: own.from.Quota, Remaining: own.left, At: own.from.At}
}

// block finds the key's block, and forgets a few that have lapsed.
func (b *Blocks) block(key string) *block {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own := b.held[key]; own != nil {
		return own
	}
	looked := 0
	for other, own := range b.held {
		if looked++; looked > 8 {
			break
		}
		if own.mu.TryLock() {
			if time.Now().After(own.until) {
				delete(b.held, other)
			}
			own.mu.Unlock()
		}
	}
	own := &block{}
	b.held[key] = own
	return own
}

// giveBack returns what a block has left.
func (own *block) giveBack(ctx context.Context) error {
	if own.left == 0 {
		return nil
	}
	used := own.from.call.n - own.left
	own.left = 0
	return own.from.Settle(ctx, used)
}

// Close gives back what all blocks have left. Calls after it take new ones.
func (b *Blocks) Close(ctx context.Context) error {
	b.mu.Lock()
	held := b.held
	b.held = map[string]*block{}
	b.mu.Unlock()
	var errs []error
	for _, own := range held {
		own.mu.Lock()
		errs = append(errs, own.giveBack(ctx))
		own.mu.Unlock()
	}
	return errors.Join(errs...)
}
