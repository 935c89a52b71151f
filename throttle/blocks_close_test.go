package throttle

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestCloseOfBlocks: it gives back every key's block at once, however long hold
// is, and calls after it take new ones.
func TestCloseOfBlocks(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		for _, limit := range inBlocks(100) {
			c := b.limiter(limit)
			blocks := newBlocks(b.t, c.Limiter, 50, time.Minute)
			begin := time.Now()
			for round := range int64(2) {
				for i := range int64(5) {
					if d, err := blocks.Take(b.t.Context(), 1+i, fmt.Sprint(i)); err != nil || !d.Allowed || d.Remaining != 49-i {
						b.t.Errorf("%s: %+v, %v", limit.Name, d, err)
					}
				}
				closeBlocks(b.t, blocks)
				for i := range int64(5) {
					if d := c.peek(fmt.Sprint(i)); d.Remaining != 100-(round+1)*(1+i) {
						b.t.Errorf("%s: %d of 100 left after Close", limit.Name, d.Remaining)
					}
				}
			}
			closeBlocks(b.t, blocks) // of nothing
			if took := time.Since(begin); took != 0 {
				b.t.Errorf("%s: it took %v", limit.Name, took)
			}
		}
	})
}

// TestCloseWaitsForWhatIsGivenBack: a block that is being given back as its time
// is over has been when Close returns.
func TestCloseWaitsForWhatIsGivenBack(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(kinds(100)[0])
		blocks := newBlocks(b.t, c.Limiter, 50, time.Second)
		get(b.t, blocks, 1)
		b.meets(func(context.Context, redis.Cmder) error { time.Sleep(100 * ms); return nil })
		time.Sleep(time.Second + ms)
		closeBlocks(b.t, blocks)
		b.meets(nil)
		if left := c.left(); left != 99 {
			b.t.Errorf("%d of 100 left after Close", left)
		}
	})
}

// TestCloseLeavesNewBlocks: it does not wait for the time of a block that is
// fetched meanwhile.
func TestCloseLeavesNewBlocks(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(kinds(100)[0])
		blocks := newBlocks(b.t, c.Limiter, 50, time.Minute)
		get(b.t, blocks, 1)
		b.meets(func(context.Context, redis.Cmder) error { time.Sleep(time.Second); return nil })
		begin := time.Now()
		var closing sync.WaitGroup
		closing.Go(func() {
			closeBlocks(b.t, blocks)
			if took := time.Since(begin); took != time.Second {
				b.t.Errorf("Close took %v; want the second that giving back takes", took)
			}
		})
		synctest.Wait()
		b.meets(nil)
		if d, err := blocks.Take(b.t.Context(), 1, "another"); err != nil || !d.Allowed {
			b.t.Errorf("%+v, %v", d, err)
		}
		closing.Wait()
		closeBlocks(b.t, blocks)
		for _, key := range []string{"k", "another"} {
			if d := c.peek(key); d.Remaining != 99 {
				b.t.Errorf("%s: %d of 100 left", key, d.Remaining)
			}
		}
	})
}
