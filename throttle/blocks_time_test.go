package throttle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestBlockLapses: a call at the very end of hold gets no permit of the block,
// whether or not what is left was given back yet.
func TestBlockLapses(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(kinds(100)[0])
		blocks := newBlocks(b.t, c.Limiter, 50, time.Second)
		get(b.t, blocks, 1)
		own := blocks.held["k"]
		own.stop() // what gives back is late
		time.Sleep(time.Second)
		before := b.scripts.Load()
		if d := get(b.t, blocks, 1); !d.Allowed || d.Remaining != 49 {
			b.t.Errorf("%+v; want it of another block", d)
		}
		if n := b.scripts.Load() - before; n != 2 {
			b.t.Errorf("%d scripts; want one to give back and one to take", n)
		}
		closeBlocks(b.t, blocks)
		if left := c.left(); left != 98 {
			b.t.Errorf("%d of 100 left after two calls", left)
		}
	})
}

// TestBlockOfASuspendedMachine: the time for which the machine was suspended, which the monotonic clock leaves out, is
// part of a block's hold.
func TestBlockOfASuspendedMachine(t *testing.T) {
	c := newClocked(t, redistest.Shared(t).Client(), kinds(100)[0])
	blocks := newBlocks(t, c.Limiter, 40, time.Minute)
	get(t, blocks, 1)
	own := blocks.held["k"]
	*(*uint64)(unsafe.Pointer(&own.asked)) -= 120 << 30 // the seconds of the wall clock, and not of the monotonic one
	if passed := time.Since(own.asked); passed > time.Minute {
		t.Fatalf("the monotonic clock says %v", passed)
	}
	if d := get(t, blocks, 1); !d.Allowed || d.Remaining != 39 {
		t.Errorf("%+v; want it of another block", d)
	}
	closeBlocks(t, blocks)
}

// TestBlockOfASlowAnswer: an answer that was long on its way leaves the block so
// much less time.
func TestBlockOfASlowAnswer(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(kinds(100)[0])
		c.take(1)
		blocks := newBlocks(b.t, c.Limiter, 50, time.Second)
		b.meets(func(context.Context, redis.Cmder) error { // only once: a script may not be known yet
			b.meets(nil)
			time.Sleep(600 * ms)
			return nil
		})
		get(b.t, blocks, 1)
		time.Sleep(400 * ms)
		synctest.Wait()
		if left := c.left(); left != 98 {
			b.t.Errorf("%d of 100 left a second after the block was asked for", left)
		}
	})
}

// TestBlockGivenBackAfterAStall: a process that stands still for longer than hold
// when it is to give back does so afterwards.
func TestBlockGivenBackAfterAStall(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(kinds(100)[0])
		blocks := newBlocks(b.t, c.Limiter, 50, ms)
		get(b.t, blocks, 1)
		b.meets(func(context.Context, redis.Cmder) error { time.Sleep(20 * ms); return nil })
		time.Sleep(ms)
		synctest.Wait()
		b.meets(nil)
		time.Sleep(20 * ms)
		synctest.Wait()
		if left := c.left(); left != 99 {
			b.t.Errorf("%d of 100 left after one call", left)
		}
	})
}

// TestBlocksWithoutAnAnswer: an error of Redis is an error of the call and no
// Decision, nothing is handed out for it, and the next call starts anew.
func TestBlocksWithoutAnAnswer(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(kinds(300)[0])
		blocks := newBlocks(b.t, c.Limiter, 50, time.Second)
		fails := func(when string) {
			b.t.Helper()
			b.meets(down)
			d, err := blocks.Take(b.t.Context(), 1, "k")
			b.meets(nil)
			if !errors.Is(err, errDown) || d != (Decision{}) {
				b.t.Errorf("%s: %+v, %v; want the error alone", when, d, err)
			}
		}
		fails("the first block")
		if n := blocks.known(); n != 0 {
			b.t.Errorf("%d blocks are known after an error", n)
		}
		if d := get(b.t, blocks, 49); !d.Allowed || d.Remaining != 1 {
			b.t.Errorf("%+v after the error", d)
		}
		b.meets(down)
		if d := get(b.t, blocks, 1); !d.Allowed {
			b.t.Errorf("%+v; want what the block still has", d)
		}
		b.meets(nil)
		fails("the block after it")
		if left := c.left(); left != 250 {
			b.t.Errorf("%d left of 300 after 50 calls", left)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := blocks.known(); n != 0 {
			b.t.Errorf("%d blocks are known after hold", n)
		}
		// What could not be given back is the limit's to refill.
		get(b.t, blocks, 1)
		b.meets(down)
		if err := blocks.Close(b.t.Context()); !errors.Is(err, errDown) {
			b.t.Errorf("Close: %v; want that the block could not be given back", err)
		}
		b.meets(nil)
		if d := get(b.t, blocks, 1); !d.Allowed {
			b.t.Errorf("%+v after Close", d)
		}
		closeBlocks(b.t, blocks)
		if left := c.left(); left != 199 {
			b.t.Errorf("%d left of 300: 52 were used, and 49 could not be given back", left)
		}
	})
}

// TestBlocksForgetKeys: a key that was refused a block, or is none, leaves nothing
// behind.
func TestBlocksForgetKeys(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(kinds(100)[0])
		blocks := newBlocks(b.t, c.Limiter, 50, time.Minute)
		c.take(99)
		if d := get(b.t, blocks, 1); !d.Allowed || d.Remaining != 0 {
			b.t.Errorf("%+v; want the last permit, though there is no block", d)
		}
		if d := get(b.t, blocks, 1); d.Allowed || d.RetryAfter != 36*time.Second {
			b.t.Errorf("%+v; want a refusal", d)
		}
		if _, err := blocks.Take(b.t.Context(), 1, strings.Repeat("x", maxKey+1)); err == nil {
			b.t.Error("a key of too many bytes")
		}
		ended, end := context.WithCancel(b.t.Context())
		end()
		for i := range 20 {
			if d, err := blocks.Take(ended, 1, fmt.Sprint(i)); !errors.Is(err, context.Canceled) || d != (Decision{}) {
				b.t.Errorf("%+v, %v; want %v", d, err, context.Canceled)
			}
		}
		if n := blocks.known(); n != 0 {
			b.t.Errorf("%d blocks are known", n)
		}
	})
}

// TestBlockOutlivesAnEarlierOne: the end of a block's time that comes while the
// next one is fetched ends nothing.
func TestBlockOutlivesAnEarlierOne(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(kinds(100)[0])
		blocks := newBlocks(b.t, c.Limiter, 50, time.Second)
		get(b.t, blocks, 49)
		time.Sleep(500 * ms)
		b.meets(func(context.Context, redis.Cmder) error { time.Sleep(300 * ms); return nil })
		get(b.t, blocks, 2) // gives back one, and has a block of its own at 1.1 s
		b.meets(nil)
		synctest.Wait()
		if d := get(b.t, blocks, 1); !d.Allowed || d.Remaining != 47 {
			b.t.Errorf("%+v; want what the second block has", d)
		}
		closeBlocks(b.t, blocks)
	})
}

// TestBlockOutlivesACaller: the context of the call that finds a block too small
// ends: what is left of it comes back all the same.
func TestBlockOutlivesACaller(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(kinds(100)[0])
		blocks := newBlocks(b.t, c.Limiter, 50, time.Minute)
		get(b.t, blocks, 40)
		ctx, end := context.WithCancel(b.t.Context())
		b.meets(func(context.Context, redis.Cmder) error { end(); return nil })
		if d, err := blocks.Take(ctx, 20, "k"); !errors.Is(err, context.Canceled) {
			b.t.Errorf("%+v, %v; want %v", d, err, context.Canceled)
		}
		b.meets(nil)
		if left := c.left(); left != 60 {
			b.t.Errorf("%d of 100 left after 40 calls", left)
		}
		closeBlocks(b.t, blocks)
	})
}

// TestBlocksContext: a call that waits for another one's block leaves when its
// context ends, and takes nothing.
func TestBlocksContext(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(kinds(100)[0])
		blocks := newBlocks(b.t, c.Limiter, 50, time.Minute)
		b.meets(func(context.Context, redis.Cmder) error { time.Sleep(10 * time.Second); return nil })
		var calls sync.WaitGroup
		calls.Go(func() {
			if d := get(b.t, blocks, 1); !d.Allowed {
				b.t.Errorf("%+v", d)
			}
		})
		synctest.Wait()
		ctx, end := context.WithTimeout(b.t.Context(), time.Second)
		defer end()
		begin := time.Now()
		d, err := blocks.Take(ctx, 1, "k")
		if !errors.Is(err, context.DeadlineExceeded) || d != (Decision{}) || time.Since(begin) != time.Second {
			b.t.Errorf("%+v, %v after %v; want %v after a second", d, err, time.Since(begin), context.DeadlineExceeded)
		}
		calls.Wait()
		b.meets(nil)
		for range 20 { // of two things that are ready select takes any
			if d, err := blocks.Take(ctx, 1, "k"); !errors.Is(err, context.DeadlineExceeded) || d != (Decision{}) {
				b.t.Errorf("%+v, %v; want %v", d, err, context.DeadlineExceeded)
			}
		}
		if d := get(b.t, blocks, 1); !d.Allowed || d.Remaining != 48 {
			b.t.Errorf("%+v; want the second permit of the block", d)
		}
		closeBlocks(b.t, blocks)
	})
}
