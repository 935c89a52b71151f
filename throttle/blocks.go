package throttle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Blocks takes permits from a limiter a block at a time and hands them out in
// process, for keys so hot that not even a shared round trip for each call will
// do. [NewBlocks] makes it. What it costs is exactness, by a known amount:
//
//   - A permit is used up to hold after it was taken, so in any time t the calls
//     of all processes are at most burst + rate × (t + hold). A pause of the
//     limit shows as late.
//   - A process that dies takes up to one block of each key with it, until the
//     limit has refilled by as much.
//   - While a process has permits of its own, others may be refused: it is ahead
//     by less than one block of each key, for no longer than hold. What it has
//     not used by then it gives back.
type Blocks struct {
	limiter *Limiter
	size    int64
	hold    time.Duration

	mu   sync.Mutex
	held map[string]*block
}

// block is what one key has in this process.
type block struct {
	busy   chan struct{} // held by who uses it or fetches it: calls of one key wait for that
	from   *Reservation  // nil: nothing was fetched yet
	left   int64
	until  time.Time
	lapse  *time.Timer
	lapses sync.WaitGroup
	gone   bool // forgotten: another one stands for the key
}

// NewBlocks hands out permits of a limiter with a single limit, size at a time,
// each for no longer than hold, which is 1 ms to a minute. size is at most half
// of what the limit holds, so that no process takes all of it, and at least 2. The
// error says which of it does not hold.
func NewBlocks(l *Limiter, size int64, hold time.Duration) (*Blocks, error) {
	limit := l.limits[0]
	switch {
	case len(l.limits) > 1 || l.shards != nil || limit.Algorithm == Concurrency || limit.Algorithm == LeakyBucket:
		return nil, fmt.Errorf("throttle: blocks: only a limiter of a single limit without shards has them, and no %s nor %s", LeakyBucket, Concurrency)
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
	own, err := b.block(ctx, key)
	if err != nil {
		return Decision{}, err
	}
	defer own.leave()
	if own.left >= n && time.Now().Before(own.until) {
		return own.hand(b.limiter, n), nil
	}
	defer func() {
		if own.from == nil {
			b.forget(key, own) // no timer will
		}
	}()
	// What is left is not this call's, and comes back also when its context ends.
	if err := own.giveBack(context.WithoutCancel(ctx)); err != nil {
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
	own.stop()
	own.lapses.Add(1)
	own.lapse = time.AfterFunc(time.Until(until), func() {
		defer own.lapses.Done()
		b.end(key, own, r)
	})
	return own.hand(b.limiter, n), nil
}

// block waits for the key's block.
func (b *Blocks) block(ctx context.Context, key string) (*block, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("throttle: blocks: %w", err)
		}
		b.mu.Lock()
		own := b.held[key]
		if own == nil {
			own = &block{busy: make(chan struct{}, 1)}
			own.busy <- struct{}{}
			b.held[key] = own
			b.mu.Unlock()
			return own, nil
		}
		b.mu.Unlock()
		select {
		case own.busy <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("throttle: blocks: %w", ctx.Err())
		}
		if !own.gone {
			return own, nil
		}
		own.leave()
	}
}

func (own *block) leave() { <-own.busy }

func (own *block) hand(l *Limiter, n int64) Decision {
	own.left -= n
	return Decision{Allowed: true, Limit: l.limits[0].Name, Quota: own.from.Quota, Remaining: own.left, At: own.from.At}
}

// stop keeps what was set for an earlier block from going off.
func (own *block) stop() {
	if own.lapse != nil && own.lapse.Stop() {
		own.lapses.Done()
	}
}

// end gives back what a block has left once its time is over, and forgets it.
func (b *Blocks) end(key string, own *block, r *Reservation) {
	own.busy <- struct{}{}
	defer own.leave()
	if own.from != r {
		return // another one was fetched since
	}
	// hold may be shorter than a stall of this process, which must not cost permits.
	ctx, stop := context.WithTimeout(context.Background(), max(b.hold, time.Second))
	defer stop()
	_ = own.giveBack(ctx) // without an answer it comes back by itself, as the limit refills
	b.forget(key, own)
}

func (b *Blocks) forget(key string, own *block) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own.gone = true
	if b.held[key] == own {
		delete(b.held, key)
	}
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

// Close gives back what all blocks have left, and returns when nothing of them is
// under way any more. Calls during it and after it take new ones. The error is that
// of every block that could not be given back.
func (b *Blocks) Close(ctx context.Context) error {
	b.mu.Lock()
	held := maps.Clone(b.held)
	b.mu.Unlock()
	var errs []error
	for key, own := range held {
		own.busy <- struct{}{}
		own.stop()
		errs = append(errs, own.giveBack(ctx))
		b.forget(key, own)
		own.leave()
		own.lapses.Wait() // it is forgotten, so none is added any more
	}
	return errors.Join(errs...)
}
