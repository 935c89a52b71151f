package throttle

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestBlocksOfARefusedKey: a key that is mostly refused costs hardly more with blocks than without: a request for each
// call that is admitted, one for the refusal after it, and one for a block now and then.
func TestBlocksOfARefusedKey(t *testing.T) {
	for _, size := range []int64{0, 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			inBubbles(t, func(b *bubble) {
				blocks := newBlocks(b.t, b.limiter(bucket("100/s", 20)).Limiter, size, 100*ms)
				admitted, again := int64(0), time.Time{}
				for range 3000 {
					d := get(b.t, blocks, 1)
					if d.Allowed {
						admitted++
					} else if at := time.Now().Add(d.RetryAfter); again.After(time.Now()) && at.Sub(again).Abs() > ms {
						b.t.Fatalf("it was to come back at %v, and now at %v", again, at)
					} else {
						again = at
					}
					time.Sleep(ms)
				}
				if sent := b.scripts.Load(); admitted < 315 || admitted > 320 || sent > 5*admitted/2 {
					b.t.Errorf("%d calls of 3000 were admitted, and Redis was asked %d times", admitted, sent)
				}
				closeBlocks(b.t, blocks)
			})
		})
	}
}

// TestBlocksFindWhatCameBack: permits that another process gave back are found by a call that was refused before, after
// the time of a block at the latest, and at once by another call.
func TestBlocksFindWhatCameBack(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		limit := bucket("1/h", 20)
		c := b.limiter(limit)
		ours, theirs := newBlocks(b.t, c.Limiter, 10, time.Second), newBlocks(b.t, b.process(c, limit), 10, time.Second)
		get(b.t, theirs, 1)
		get(b.t, ours, 10)
		refused := get(b.t, ours, 1)
		closeBlocks(b.t, theirs)
		time.Sleep(time.Second - 1)
		again := get(b.t, ours, 1)
		if refused.Allowed || again.Allowed || again.RetryAfter != refused.RetryAfter-time.Second+time.Microsecond {
			b.t.Errorf("%+v, and then %+v", refused, again)
		}
		time.Sleep(time.Nanosecond)
		if d := get(b.t, ours, 1); !d.Allowed {
			b.t.Errorf("after the time of a block: %+v", d)
		}
		get(b.t, ours, 9)
		if d := get(b.t, ours, 7); !d.Allowed {
			b.t.Errorf("another call: %+v", d)
		}
		closeBlocks(b.t, ours)
	})
}

// TestBlockComesBeforeARefusal: an answer that comes after a block hides none of its permits.
func TestBlockComesBeforeARefusal(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		limit := bucket("1/h", 20)
		c := b.limiter(limit)
		others := b.process(c, limit)
		ours := newBlocks(b.t, c.Limiter, 10, time.Second)
		r, err := others.Reserve(b.t.Context(), 15, 0, "k")
		if err != nil {
			b.t.Fatal(err)
		}
		if d := get(b.t, ours, 1); !d.Allowed { // by itself, because 5 are too few for a block
			b.t.Fatalf("%+v", d)
		}
		sent, on := make(chan struct{}), make(chan struct{})
		b.meets(func(context.Context, redis.Cmder) error {
			b.meets(nil)
			close(sent)
			<-on
			return nil
		})
		var calling sync.WaitGroup
		calling.Go(func() {
			if d := get(b.t, ours, 1); d.Allowed {
				b.t.Errorf("%+v", d)
			}
		})
		<-sent
		time.Sleep(time.Second)
		if err := r.Cancel(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
		if d := get(b.t, ours, 1); d.Remaining != 9 {
			b.t.Fatalf("a block: %+v", d)
		}
		if d, err := others.Take(b.t.Context(), 9, "k"); err != nil || !d.Allowed {
			b.t.Fatalf("%+v, %v", d, err)
		}
		close(on)
		calling.Wait()
		if d := get(b.t, ours, 1); !d.Allowed {
			b.t.Errorf("the block has 9: %+v", d)
		}
		closeBlocks(b.t, ours)
	})
}

// TestRefusalOfAnotherKey: a key that shares its hash with one that is refused still has its block.
func TestRefusalOfAnotherKey(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		blocks := newBlocks(b.t, b.limiter(bucket("1/h", 20)).Limiter, 10, time.Second)
		other := "0"
		for i := 1; blocks.rates.rate(other) != blocks.rates.rate("k"); i++ {
			other = fmt.Sprint(i)
		}
		if d, err := blocks.Take(b.t.Context(), 1, other); err != nil || d.Remaining != 9 {
			b.t.Fatalf("a block: %+v, %v", d, err)
		}
		for d := get(b.t, blocks, 10); d.Allowed; d = get(b.t, blocks, 1) {
			continue // until even a single call is refused
		}
		if d, err := blocks.Take(b.t.Context(), 1, other); err != nil || d.Remaining != 8 {
			b.t.Errorf("the rest of its block: %+v, %v", d, err)
		}
		closeBlocks(b.t, blocks)
	})
}

// TestHotKeyAmongMany: of 10,000 keys, of which about ten share a place, only the one that asks often has blocks. All
// others ask Redis once for each call and hold nothing.
func TestHotKeyAmongMany(t *testing.T) {
	redistest.Slow(t)
	inBubble(t, redistest.Shared(t).Client(), func(b *bubble) {
		const keys, hold = 10_000, time.Second
		blocks := newBlocks(b.t, b.limiter(bucket("1000/s", 1000)).Limiter, 0, hold)
		take := func(key string) {
			b.t.Helper()
			if d, err := blocks.Take(b.t.Context(), 1, key); err != nil || !d.Allowed {
				b.t.Fatalf("%+v, %v", d, err)
			}
		}
		for round := range 3 {
			asked := b.scripts.Load()
			for i := range keys {
				if take(fmt.Sprint(i)); i%50 == 0 {
					take("hot")
					time.Sleep(hold / (keys / 50))
				}
			}
			blocks.mu.Lock()
			hot := blocks.held["hot"] != nil
			for key := range blocks.held {
				if key != "hot" {
					b.t.Fatalf("round %d: %d keys have blocks, among them %q", round, len(blocks.held), key)
				}
			}
			blocks.mu.Unlock()
			switch asked = b.scripts.Load() - asked; {
			case round > 0 && !hot:
				b.t.Errorf("round %d: the hot key has no block", round)
			case round > 1 && asked > keys+10:
				b.t.Errorf("round %d: %d scripts for %d cold keys and a hot one", round, asked, keys)
			}
		}
		closeBlocks(b.t, blocks)
	})
}

// TestHottestKeyOwnsItsPlace: of keys that share a place, the one that uses most has its size, whoever came first, and
// no key has more than it used.
func TestHottestKeyOwnsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rates := &keyRates{hold: time.Second}
		place := &rates.of[0]
		for i, round := range []struct {
			uses     []keyUse
			hot      string // of those used in the round before
			hotBlock int64
		}{
			{[]keyUse{{"warm", 3}, {"cold", 1}}, "", 0},
			{[]keyUse{{"warm", 3}, {"hot", 20}, {"cold", 1}}, "warm", 2}, // it was the rival, and "cold" came too
			{[]keyUse{{"a", 1}, {"hot", 20}, {"b", 1}, {"c", 1}, {"warm", 3}, {"d", 1}}, "hot", 19},
			{[]keyUse{{"warm", 3}, {"hot", 20}}, "hot", 20},
			{[]keyUse{{"warm", 3}}, "hot", 20},
			{[]keyUse{{"cold", 1}}, "warm", 3},
			{nil, "", 0},
		} {
			for _, key := range []string{"cold", "hot", "warm", "a", "b", "c", "d"} {
				if size := rates.size(place, key); (key == round.hot) != (size > 1) || key == round.hot && size != round.hotBlock {
					t.Errorf("round %d: %q has blocks of %d", i, key, size)
				}
			}
			for _, use := range round.uses {
				place.use(use.key, use.used)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestCrowdBehindARefusedBlock: calls that waited while a block was refused are refused with it, and do not ask one after
// the other.
func TestCrowdBehindARefusedBlock(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		for _, held := range []bool{false, true} { // whether the process had blocks before
			c := b.limiter(bucket("1/h", 20))
			blocks := newBlocks(b.t, c.Limiter, 10, time.Second)
			if held {
				get(b.t, blocks, 10)
				get(b.t, blocks, 10)
			} else {
				c.take(20)
			}
			before := b.scripts.Load()
			on := make(chan struct{})
			b.meets(func(context.Context, redis.Cmder) error { <-on; return nil })
			var calling sync.WaitGroup
			for range 64 {
				calling.Go(func() {
					if d := get(b.t, blocks, 1); d.Allowed {
						b.t.Errorf("%+v", d)
					}
				})
			}
			synctest.Wait()
			b.meets(nil)
			close(on)
			calling.Wait()
			if sent := b.scripts.Load() - before; sent > 3 { // for a block, and for one call, which the cheap script does not know
				b.t.Errorf("64 calls behind a block that was refused asked Redis %d times", sent)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if n := blocks.known(); n != 0 {
				b.t.Errorf("%d blocks are known", n)
			}
		}
	})
}
