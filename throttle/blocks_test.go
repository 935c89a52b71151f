package throttle

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

func newBlocks(t *testing.T, l *Limiter, size int64, hold time.Duration) *Blocks {
	t.Helper()
	b, err := NewBlocks(l, size, hold)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// get takes permits from a block, which must not fail.
func get(t *testing.T, b *Blocks, n int64) Decision {
	t.Helper()
	d, err := b.Take(t.Context(), n, "k")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func closeBlocks(t *testing.T, b *Blocks) {
	t.Helper()
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// known is how many keys have a block.
func (b *Blocks) known() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.held)
}

// inBlocks are limits of which a block can be taken, full with so many permits.
func inBlocks(most int64) (limits []Limit) {
	for _, limit := range kinds(most) {
		if limit.Algorithm != LeakyBucket && limit.Algorithm != Concurrency {
			limits = append(limits, limit)
		}
	}
	return limits
}

// TestBlockIsGivenBack: what was not used within hold is there for others then,
// all of it, and not before.
func TestBlockIsGivenBack(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		for _, limit := range inBlocks(100) {
			c := b.limiter(limit)
			blocks := newBlocks(b.t, c.Limiter, 40, 5*time.Second)
			if d := get(b.t, blocks, 3); !d.Allowed || d.Remaining != 37 || d.Quota != 100 || d.Limit != limit.Name || d.ResetAfter != 0 {
				b.t.Errorf("%s: %+v of a new block", limit.Name, d)
			}
			time.Sleep(5*time.Second - 1)
			if left := c.left(); left != 60 {
				b.t.Errorf("%s: %d left of 100 while a block of 40 is held", limit.Name, left)
			}
			if d := get(b.t, blocks, 1); !d.Allowed || d.Remaining != 36 {
				b.t.Errorf("%s: %+v at the end of hold", limit.Name, d)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if left := c.left(); left != 96 {
				b.t.Errorf("%s: %d left of 100 after hold, with 4 used", limit.Name, left)
			}
			if n := blocks.known(); n != 0 {
				b.t.Errorf("%s: %d blocks are still known", limit.Name, n)
			}
			closeBlocks(b.t, blocks)
		}
	})
}

// TestRefusalsOfBlocksAreWholeMicroseconds: also those that are remembered.
func TestRefusalsOfBlocksAreWholeMicroseconds(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(bucket("1/s", 10))
		c.take(10)
		blocks := newBlocks(b.t, c.Limiter, 2, time.Second)
		asked := get(b.t, blocks, 1)
		before := b.scripts.Load()
		time.Sleep(1500 * time.Nanosecond)
		d := get(b.t, blocks, 1)
		if d.Allowed || d.RetryAfter != asked.RetryAfter-time.Microsecond || d.ResetAfter != asked.ResetAfter-time.Microsecond {
			b.t.Errorf("%+v 1.5 µs after %+v", d, asked)
		}
		if n := b.scripts.Load() - before; n != 0 {
			b.t.Errorf("%d scripts; want the refusal remembered", n)
		}
		closeBlocks(b.t, blocks)
	})
}

// TestBlocksExactBound: the worst that a block can do. Its permits go at the end of
// hold, when the limit has refilled what it gave: burst + rate × hold, but for the
// one with which it was fetched.
func TestBlocksExactBound(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		const burst, size, hold = 10, 5, 5 * time.Second
		c := b.limiter(bucket("1/s", burst))
		blocks := newBlocks(b.t, c.Limiter, size, hold)
		get(b.t, blocks, 1)
		time.Sleep(hold - time.Microsecond)
		gone := int64(0)
		for get(b.t, blocks, 1).Allowed {
			gone++
		}
		for c.take(1).Allowed {
			gone++
		}
		// 4 of the block, 9 that the limit has, and a µs is missing to the tenth.
		if gone != burst+size-2 {
			b.t.Errorf("%d permits at once; the bound of 15 is reached but for two", gone)
		}
		closeBlocks(b.t, blocks)
	})
}

// TestLawOfBlocks: whatever several processes do, their calls in any time t are
// at most burst + rate × (t + hold).
func TestLawOfBlocks(t *testing.T) {
	inBubble(t, redistest.Shared(t).Client(), func(b *bubble) {
		for round := range 8 {
			random := rand.New(rand.NewPCG(uint64(round), 7))
			rate := Rate{Count: 1 + random.Int64N(3), Period: time.Second}
			burst := 8 + random.Int64N(16) // blocks of it are worth more than hold is
			hold := time.Duration(1+random.Int64N(2)) * time.Second
			limit := Limit{Name: "l", Algorithm: TokenBucket, Rate: rate, Burst: burst}
			c := b.limiter(limit)
			var processes []*Blocks
			for range 3 {
				processes = append(processes, newBlocks(b.t, b.process(c, limit), 2+random.Int64N(burst/2-1), hold))
			}
			// A permit is a second of debt, which drains by `count` seconds in one.
			permit, debt, at, worst, calls := time.Second, time.Duration(0), time.Now(), time.Duration(0), 0
			for range 100 {
				time.Sleep(time.Duration(random.Int64N(int64(hold) / 8)).Truncate(time.Microsecond))
				if random.IntN(10) == 0 { // as late as a permit can be used, or when it cannot any more
					time.Sleep(time.Duration(1+random.Int64N(20))*hold - time.Microsecond)
				}
				n := 1 + random.Int64N(2)
				for _, p := range processes {
					for get(b.t, p, n).Allowed {
						debt = max(0, debt-time.Since(at)*time.Duration(rate.Count)) + time.Duration(n)*permit
						at, worst, calls = time.Now(), max(worst, debt), calls+1
						if random.IntN(3) > 0 {
							break
						}
					}
				}
			}
			most := time.Duration(burst)*permit + hold*time.Duration(rate.Count)
			if worst > most || calls < 30 {
				b.t.Errorf("round %d: %.3f permits in %d calls at worst, of %d + %v × %v", round, worst.Seconds(), calls, burst, rate, hold)
			}
			for _, p := range processes {
				closeBlocks(b.t, p)
			}
		}
	})
}

// TestBlocksAfterAWindow: of a fixed window up to its count are used within hold
// after its end, beside all of the next one.
func TestBlocksAfterAWindow(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		limit := window("10/min", nil)
		c := b.limiter(limit)
		first, second := newBlocks(b.t, c.Limiter, 5, 2*time.Second), newBlocks(b.t, b.process(c, limit), 5, 2*time.Second)
		time.Sleep(59 * time.Second)
		get(b.t, first, 1)
		get(b.t, second, 1)
		time.Sleep(2 * time.Second)
		synctest.Wait() // both have lapsed, in a window that gives them nothing
		if left := c.left(); left != 10 {
			b.t.Errorf("%d left of 10 in the next window", left)
		}
		time.Sleep(58 * time.Second)
		get(b.t, first, 1)
		get(b.t, second, 1)
		time.Sleep(2*time.Second - 1)
		gone := int64(0)
		for range 4 {
			if get(b.t, first, 1).Allowed && get(b.t, second, 1).Allowed {
				gone += 2
			}
		}
		for c.take(1).Allowed {
			gone++
		}
		if gone != 18 {
			b.t.Errorf("%d permits after the window; want 8 of the one before and 10 of its own", gone)
		}
		closeBlocks(b.t, first)
		closeBlocks(b.t, second)
	})
}

// TestBlocksOfOthers: a process is ahead by less than a block, for no longer than
// hold; then the others have what it did not use.
func TestBlocksOfOthers(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		for _, limit := range inBlocks(100) {
			c := b.limiter(limit)
			ahead, other := newBlocks(b.t, c.Limiter, 50, time.Second), newBlocks(b.t, b.process(c, limit), 50, time.Second)
			get(b.t, ahead, 1)
			gone := int64(1)
			for get(b.t, other, 1).Allowed {
				gone++
			}
			if gone != 100-49 {
				b.t.Errorf("%s: refused after %d of 100; want only the 49 to be missing that a process has", limit.Name, gone)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			for get(b.t, other, 1).Allowed {
				gone++
			}
			if gone != 100 {
				b.t.Errorf("%s: %d of 100 when the process that was ahead has given back", limit.Name, gone)
			}
			closeBlocks(b.t, ahead)
			closeBlocks(b.t, other)
		}
	})
}

// TestCrashOfBlocks: a process that dies takes a block of each key with it, which
// comes back as the limit refills.
func TestCrashOfBlocks(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		for _, limit := range inBlocks(100) {
			c := b.limiter(limit)
			dying := newBlocks(b.t, b.process(c, limit), 40, time.Second)
			for _, key := range []string{"k", "other"} {
				if _, err := dying.Take(b.t.Context(), 1, key); err != nil {
					b.t.Fatal(err)
				}
			}
			b.meets(down) // nothing of it reaches Redis any more
			time.Sleep(time.Second)
			synctest.Wait()
			b.meets(nil)
			for _, key := range []string{"k", "other"} {
				if d := c.peek(key); d.Remaining != 60 {
					b.t.Errorf("%s: %d of 100 left; want a block of 40 to be lost", limit.Name, d.Remaining)
				}
			}
			if limit.Algorithm == TokenBucket {
				time.Sleep(40*time.Hour/100 - 2*time.Second)
				if left := c.left(); left != 99 {
					b.t.Errorf("%d of 100 left just before the limit has refilled by a block", left)
				}
				time.Sleep(2 * time.Second)
				if left := c.left(); left != 100 {
					b.t.Errorf("%d of 100 left when the limit has refilled by a block", left)
				}
			}
		}
	})
}

// TestLargeCallsPassBlocks: a call of more than size permits is the limiter's, and
// so is one of none. The block stays.
func TestLargeCallsPassBlocks(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(kinds(100)[0])
		blocks := newBlocks(b.t, c.Limiter, 10, time.Minute)
		get(b.t, blocks, 1)
		if d := get(b.t, blocks, 11); !d.Allowed || d.Remaining != 79 {
			b.t.Errorf("%+v; want 79 left of 100", d)
		}
		if d := get(b.t, blocks, 80); d.Allowed {
			b.t.Errorf("%+v", d)
		}
		if d := get(b.t, blocks, 9); !d.Allowed || d.Remaining != 0 {
			b.t.Errorf("%+v; want the rest of the block", d)
		}
		if d := get(b.t, blocks, 10); !d.Allowed || d.Remaining != 0 {
			b.t.Errorf("%+v; want a whole block", d)
		}
		_, err := blocks.Take(b.t.Context(), 101, "k")
		if cost, ok := errors.AsType[*CostError](err); !ok || cost.Max != 100 {
			b.t.Errorf("%v; want a *CostError", err)
		}
		for _, n := range []int64{0, -1} {
			if d, err := blocks.Take(b.t.Context(), n, "k"); err == nil {
				b.t.Errorf("%d permits: %+v", n, d)
			}
		}
		closeBlocks(b.t, blocks)
	})
}

// TestBlocksAndPauses: a pause shows at the end of hold, and what is given back
// then is the paused bucket's.
func TestBlocksAndPauses(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		for _, limit := range inBlocks(100) {
			c := b.limiter(limit)
			blocks := newBlocks(b.t, c.Limiter, 50, 2*time.Second)
			get(b.t, blocks, 1)
			if err := c.Pause(b.t.Context(), limit.Name, "k", time.Now().Add(time.Minute), "why"); err != nil {
				b.t.Fatal(err)
			}
			time.Sleep(2*time.Second - 1)
			if d := get(b.t, blocks, 1); !d.Allowed {
				b.t.Errorf("%s: %+v of a block that was there before the pause", limit.Name, d)
			}
			time.Sleep(time.Nanosecond)
			if d := get(b.t, blocks, 1); d.Allowed || d.Paused != "why" {
				b.t.Errorf("%s: %+v after hold", limit.Name, d)
			}
			synctest.Wait()
			closeBlocks(b.t, blocks)
		}
	})
}

// TestBlocksRoundTrips: so many calls as a block holds make one round trip.
func TestBlocksRoundTrips(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, limit := range inBlocks(1000) {
		c := newClocked(t, server.Client(), limit)
		blocks := newBlocks(t, c.Limiter, 50, time.Minute)
		for _, key := range []string{"so that the scripts are known", "k"} {
			scripts(t, server)
			for range 200 {
				if d, err := blocks.Take(t.Context(), 1, key); err != nil || !d.Allowed {
					t.Fatalf("%s: %+v, %v", limit.Name, d, err)
				}
			}
		}
		if n := scripts(t, server); n != 4 {
			t.Errorf("%s: 200 calls with blocks of 50 asked Redis %d times", limit.Name, n)
		}
		closeBlocks(t, blocks)
		if n := scripts(t, server); n != 0 {
			t.Errorf("%s: %d scripts to give back nothing", limit.Name, n)
		}
	}
}

// TestBlocksCrowd: concurrent calls of several processes use a limit to the last
// permit and no further, share their blocks, and Close is safe among them: it
// does not wait for blocks that are fetched meanwhile, and loses nothing.
func TestBlocksCrowd(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		const most, callers = 3000, 12
		limit := kinds(most)[2] // a window, which gives back all: a token bucket gives back nearly all
		c := newClocked(t, client, limit)
		var used atomic.Int64
		var calling sync.WaitGroup
		var processes []*Blocks
		for range 2 {
			other := newClocked(t, client, limit)
			other.prefix, other.now = c.prefix, c.now
			processes = append(processes, newBlocks(t, other.Limiter, 100, time.Minute))
		}
		done := make(chan struct{})
		for i := range callers {
			blocks := processes[i%len(processes)]
			calling.Go(func() {
				for refused := 0; refused < 20; {
					d, err := blocks.Take(t.Context(), 1+int64(i%3), "k")
					switch {
					case err != nil:
						t.Error(err)
						return
					case d.Allowed:
						used.Add(1 + int64(i%3))
					default:
						refused++
					}
				}
			})
		}
		go func() { calling.Wait(); close(done) }()
		for closing := true; closing; {
			for _, blocks := range processes {
				closed := make(chan error, 1)
				go func() { closed <- blocks.Close(context.Background()) }()
				if err := soon(t, "Close", closed); err != nil {
					t.Error(err)
				}
			}
			select {
			case <-done:
				closing = false
			case <-time.After(ms):
			}
		}
		for _, blocks := range processes {
			closeBlocks(t, blocks)
			if n := blocks.known(); n != 0 {
				t.Errorf("%d blocks are known after Close", n)
			}
		}
		if left := c.left(); left+used.Load() != most {
			t.Errorf("%d permits used and %d left of %d", used.Load(), left, most)
		}
	})
}

// TestUsableBlocks: what blocks can be taken of, and what is said otherwise.
func TestUsableBlocks(t *testing.T) {
	client := redistest.Shared(t).Client()
	split := bucket("100/s", 100)
	split.Shards = 2
	for name, test := range map[string]struct {
		limits []Limit
		size   int64
		hold   time.Duration
		says   string // "": it can
	}{
		"smallest":        {[]Limit{bucket("1/s", 4)}, 2, ms, ""},
		"largest":         {[]Limit{bucket("1/s", 101)}, 50, time.Minute, ""},
		"a window":        {[]Limit{window("100/day", time.UTC)}, 50, time.Second, ""},
		"a log":           {[]Limit{logged("100/s")}, 50, time.Second, ""},
		"a counter":       {[]Limit{counted("100/s")}, 50, time.Second, ""},
		"one shard":       {[]Limit{{Name: "one", Algorithm: TokenBucket, Rate: PerSecond(1), Burst: 9, Shards: 1}}, 4, time.Second, ""},
		"size 1":          {[]Limit{bucket("1/s", 100)}, 1, time.Second, "a size of 1 must be 2 to 50"},
		"no size":         {[]Limit{bucket("1/s", 100)}, -3, time.Second, "a size of -3 must be 2 to 50"},
		"more than half":  {[]Limit{bucket("1/s", 101)}, 51, time.Second, `a size of 51 must be 2 to 50, half of what limit "tb" holds`},
		"a short hold":    {[]Limit{bucket("1/s", 100)}, 2, ms - 1, "a hold of 999.999µs must be 1ms to 1m"},
		"a long hold":     {[]Limit{bucket("1/s", 100)}, 2, time.Minute + 1, "must be 1ms to 1m"},
		"a leaky bucket":  {[]Limit{leaky("1/s", 100)}, 2, time.Second, "not a leaky_bucket or concurrency"},
		"calls in flight": {[]Limit{inFlightOf(100, 0)}, 2, time.Second, "not a leaky_bucket or concurrency"},
		"several limits":  {[]Limit{bucket("1/s", 100), window("100/s", nil)}, 2, time.Second, "a single limit"},
		"shards":          {[]Limit{split}, 2, time.Second, "without shards"},
	} {
		l, err := New(client, "usable", test.limits...)
		if err != nil {
			t.Fatal(err)
		}
		b, err := NewBlocks(l, test.size, test.hold)
		if test.says == "" && (err != nil || b == nil) || test.says != "" && (b != nil || err == nil || !strings.Contains(cmp.Or(err, errDown).Error(), test.says)) {
			t.Errorf("%s: %v; want %q", name, err, test.says)
		}
	}
}

// TestBlocksSizeThemselves: a key that is asked about often has blocks of what it uses, and one that is not has none,
// so that nothing of it lies in a process.
func TestBlocksSizeThemselves(t *testing.T) {
	redistest.Slow(t)
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr()})
	defer client.Close()
	c := newClocked(t, client, bucket("1000000/s", 1_000_000))
	blocks, err := NewBlocks(c.Limiter, 0, 10*ms)
	if err != nil {
		t.Fatal(err)
	}
	take := func(n int64, key string) Decision {
		t.Helper()
		d, err := blocks.Take(t.Context(), n, key)
		if err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		return d
	}
	seen := &scriptCount{}
	client.AddHook(seen)
	calls := 0
	for end := time.Now().Add(300 * ms); time.Now().Before(end); calls++ {
		take(1, "hot")
	}
	if short, long := seen.sent(); (short+long)*20 > calls {
		t.Errorf("%d calls of a hot key took %d scripts", calls, short+long)
	}
	if err := blocks.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := c.peek("hot"); d.Remaining != 1_000_000-int64(calls) { // the limiter's clock stands still
		t.Errorf("after %d calls, %d are left", calls, d.Remaining)
	}
	for i := range 5 {
		time.Sleep(15 * ms) // longer than a block is held
		if d := take(3, "cold"); d.Remaining != 1_000_000-3*int64(i+1) {
			t.Errorf("call %d of a cold key: %+v", i+1, d)
		}
	}
	for _, size := range []int64{-1, 1, 500_001} {
		if _, err := NewBlocks(c.Limiter, size, time.Second); err == nil {
			t.Errorf("blocks of %d", size)
		}
	}
}
