package throttle

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"sync"
	"time"
)

// Blocks takes permits from a limiter a block at a time and hands them out within the
// process. It is for keys that are so hot that even shared round trips are too many. Use
// [NewBlocks] to make one. It is less exact than its limiter, by a known amount:
//
//   - A permit is used up to hold after it was taken, so in any time t the calls of
//     all processes are at most burst + rate × (t + hold). A pause of the limit also
//     takes effect up to hold later.
//   - If a process dies, up to one block of each key is lost until the limit has
//     refilled by as much.
//   - While a process holds permits, other processes may be refused: it is ahead by
//     less than one block of each key, for at most hold. Then it gives back what it
//     has not used.
//   - A call that was refused is refused without asking Redis until its RetryAfter is over,
//     for at most hold, although permits may have come back.
type Blocks struct {
	limiter *Limiter
	size    int64 // 0: by the rate of each key
	hold    time.Duration
	rates   *keyRates

	mu   sync.Mutex
	held map[string]*block
}

// block is what one key has in this process.
type block struct {
	busy   chan struct{} // a lock that callers can stop waiting for
	from   *Reservation  // nil: nothing was fetched yet
	left   int64
	asked  time.Time // when it was asked for: a slow answer shortens its time
	lapse  *time.Timer
	lapses sync.WaitGroup
	gone   bool // forgotten: another block may have taken its place
}

// NewBlocks returns a Blocks that takes size permits at a time from l and keeps each
// block for up to hold. l has a single limit without shards, and no [LeakyBucket] or
// [Concurrency] limit. size is at least 2 and at most half of what the limit holds, so
// that no process takes all of it. If it is 0, a key's blocks have as many permits as it
// used in the last hold, up to that half. A key that used fewer than two, or less than a key
// with which it shares one of 1,024 places, has no blocks, and nothing is less exact for it.
// hold is 1 ms to 1 min. The error names the value that is out of range.
func NewBlocks(l *Limiter, size int64, hold time.Duration) (*Blocks, error) {
	limit := l.limits[0]
	switch {
	case len(l.limits) > 1 || l.shards != nil || limit.Algorithm == Concurrency || limit.Algorithm == LeakyBucket:
		return nil, fmt.Errorf("throttle: blocks: the limiter must have a single limit without shards, and not a %s or %s", LeakyBucket, Concurrency)
	case hold < time.Millisecond || hold > time.Minute:
		return nil, fmt.Errorf("throttle: blocks: a hold of %v must be 1ms to 1m", hold)
	case size != 0 && (size < 2 || size > limit.Quota()/2):
		return nil, fmt.Errorf("throttle: blocks: a size of %d must be 2 to %d, half of what limit %q holds, or 0, by the rate of each key", size, limit.Quota()/2, limit.Name)
	}
	rates := &keyRates{seed: maphash.MakeSeed(), hold: hold}
	return &Blocks{limiter: l, size: size, hold: hold, rates: rates, held: map[string]*block{}}, nil
}

// sizeOf returns how large the key's next block is; 0: there is none, or there are too few permits for one.
func (b *Blocks) sizeOf(key string, rate *keyRate) int64 {
	if _, lasts := rate.block.Load().lasts(key, b.hold); lasts {
		return 0
	} else if b.size > 0 {
		return b.size
	}
	return min(b.rates.size(rate, key), b.limiter.limits[0].Quota()/2)
}

// Take takes n permits now, or none, from the key's block or else from Redis. Errors are
// those of [Limiter.Take]. If the permits came from a block, Remaining is what the block
// still has, and ResetAfter is 0.
func (b *Blocks) Take(ctx context.Context, n int64, key string) (Decision, error) {
	l := b.limiter
	began := l.began()
	rate := b.rates.rate(key)
	d, seen, err := b.take(ctx, n, key, rate)
	if b.size == 0 && d.Allowed {
		rate.use(key, n)
	}
	l.tell(Observation{Decision: seen, Err: err, Took: l.since(began)})
	return d, err
}

// take returns the decision about a call, and the one that an observer sees: what it says remains is of the limit.
func (b *Blocks) take(ctx context.Context, n int64, key string, rate *keyRate) (d, seen Decision, err error) {
	if d, ok := b.refused(n, key, rate); ok {
		return d, d, nil
	}
	if size := b.sizeOf(key, rate); n >= 1 && size >= 2 && n <= size {
		d, seen, found, err := b.takeFromBlock(ctx, n, key, rate)
		if found || err != nil {
			return d, seen, err
		}
	}
	d, err = b.ask(ctx, n, key, rate)
	return d, d, err
}

// takeFromBlock takes n permits from the key's block, or fetches a new one. found is false if there is none for this call.
func (b *Blocks) takeFromBlock(ctx context.Context, n int64, key string, rate *keyRate) (d, seen Decision, found bool, err error) {
	own, err := b.block(ctx, key)
	if err != nil {
		return d, d, false, err
	}
	defer own.leave()
	if own.left >= n && passed(own.asked, time.Now()) < b.hold {
		d = own.hand(b.limiter, n)
		d.Local = true
		seen = d
		seen.Quota = 0 // nobody asked how much of the limit is left
		return d, seen, true, nil
	}
	defer func() {
		if own.from == nil {
			b.forget(key, own) // there is no timer for it
		}
	}()
	// A call before this one may have been refused a block meanwhile. If each asked again, they would do so one by one.
	if d, ok := b.refused(n, key, rate); ok {
		return d, d, true, nil
	}
	size := b.sizeOf(key, rate)
	if size < 2 || n > size {
		return d, d, false, nil
	}
	// What is left belongs to other calls, so it is given back even if ctx is done.
	if err := own.giveBack(context.WithoutCancel(ctx)); err != nil {
		return d, d, false, err
	}
	asked := time.Now()
	r, err := b.limiter.reserve(ctx, size, 0, []string{key})
	if err != nil {
		return d, d, false, err
	}
	if !r.Allowed {
		rate.block.Store(&blockRefusal{key, size, r.Decision, time.Now()})
		d, err := b.ask(ctx, n, key, rate) // there may be enough for this one
		d.Local = false
		return d, d, true, err
	}
	rate.admit()
	own.from, own.left, own.asked = r, size, asked
	own.stop()
	own.lapses.Add(1)
	own.lapse = time.AfterFunc(b.hold-time.Since(asked), func() {
		defer own.lapses.Done()
		b.end(key, own, r)
	})
	return own.hand(b.limiter, n), r.Decision, true, nil
}

// ask takes permits for a single call, and remembers if they were refused.
func (b *Blocks) ask(ctx context.Context, n int64, key string, rate *keyRate) (Decision, error) {
	before := rate.call.Load()
	d, err := b.limiter.take(ctx, n, []string{key})
	if err == nil {
		var refused *blockRefusal
		if !d.Allowed {
			refused = &blockRefusal{key, n, d, time.Now()}
		}
		rate.call.CompareAndSwap(before, refused) // else a block came meanwhile, which has permits for such calls
	}
	return d, err
}

// refused returns the decision about a call that was refused lately. Another process may have given permits back since,
// which callers find who come back when they were told to; and after the time of a block, all do.
func (b *Blocks) refused(n int64, key string, rate *keyRate) (Decision, bool) {
	r := rate.call.Load()
	since, lasts := r.lasts(key, b.hold)
	if !lasts || r.n != n {
		return Decision{}, false
	}
	since = since.Truncate(time.Microsecond)
	d := r.decision
	d.Local = true
	d.RetryAfter -= since
	d.ResetAfter = max(0, d.ResetAfter-since)
	return d, true
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

// stop stops the timer of the block before.
func (own *block) stop() {
	if own.lapse != nil && own.lapse.Stop() {
		own.lapses.Done()
	}
}

// end gives back what a block has left when its time is over, and forgets it.
func (b *Blocks) end(key string, own *block, r *Reservation) {
	own.busy <- struct{}{}
	defer own.leave()
	if own.from != r {
		return // another one was fetched since
	}
	// A process that hangs for longer than hold must not lose permits.
	ctx, stop := context.WithTimeout(context.Background(), max(b.hold, time.Second))
	defer stop()
	_ = own.giveBack(ctx) // after an error the limit refills by itself
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

// Close gives back what all blocks have left, and returns when no request of them is in
// flight. Take may be called during and after Close, and takes new blocks. The error
// joins those of all blocks that could not be given back.
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
