package throttle

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// clockShards gives the parts of a limit the limiter's clock.
func (c *clocked) clockShards() *clocked {
	for _, shard := range c.shards {
		shard.now = c.Limiter.now
	}
	return c
}

// newSplit is a limiter whose limit has so many parts.
func newSplit(t *testing.T, client redis.UniversalClient, limit Limit, shards int) *clocked {
	t.Helper()
	return newClocked(t, client, limit.split(shards)).clockShards()
}

func (l Limit) split(shards int) Limit {
	l.Shards = shards
	return l
}

// lefts are what the parts have left.
func (c *clocked) lefts() (lefts []int64) {
	c.t.Helper()
	for i, shard := range c.shards {
		d, err := shard.Peek(c.t.Context(), 1, part("k", i))
		if err != nil {
			c.t.Fatal(err)
		}
		lefts = append(lefts, d.Remaining)
	}
	return lefts
}

// drain takes what the parts have left, from each of them.
func (c *clocked) drain() (n int64) {
	c.t.Helper()
	for i, shard := range c.shards {
		for {
			d, err := shard.Take(c.t.Context(), 1, part("k", i))
			if err != nil {
				c.t.Fatal(err)
			}
			if !d.Allowed {
				break
			}
			n++
		}
	}
	return n
}

// splittable are limits that can be split, full with so many permits.
func splittable(most int64) (limits []Limit) {
	for _, limit := range kinds(most) {
		if limit.Algorithm != LeakyBucket && limit.Algorithm != SlidingWindowCounter {
			limits = append(limits, limit)
		}
	}
	return limits
}

// TestPartsAreTheWhole: the parts hold what the limit holds and flow as fast,
// whatever it divides into, and the last one is the smallest.
func TestPartsAreTheWhole(t *testing.T) {
	t.Parallel()
	for _, most := range []int64{2, 7, 64, 97, 100, 1000} {
		for _, limit := range splittable(most) {
			for shards := 2; shards <= maxShards; shards++ {
				split := limit.split(shards)
				if int64(shards) > most {
					if split.Validate() == nil {
						t.Errorf("%s: %d permits in %d parts", limit.Name, most, shards)
					}
					continue
				}
				if err := split.Validate(); err != nil {
					t.Fatalf("%s: %d permits in %d parts: %v", limit.Name, most, shards, err)
				}
				sum, flow, last := int64(0), new(big.Rat), most
				for i := range shards {
					part := split.shard(i)
					quota := part.Quota()
					if sum += quota; quota > last || part.Shards != 0 || part.Name != limit.Name {
						t.Errorf("%s: part %d of %d: %+v", limit.Name, i, shards, part)
					}
					last = quota
					if part.Rate.Period > 0 {
						flow.Add(flow, big.NewRat(part.Rate.Count, part.Rate.Period.Microseconds()))
					}
				}
				if sum != most || most/int64(shards) != last {
					t.Errorf("%s: %d permits in %d parts are %d, the last has %d", limit.Name, most, shards, sum, last)
				}
				if limit.Algorithm != Concurrency && flow.Cmp(big.NewRat(most, limit.Rate.Period.Microseconds())) != 0 {
					t.Errorf("%s: %d parts flow at %v per µs", limit.Name, shards, flow)
				}
				if got := split.Quota(); got != last {
					t.Errorf("%s: Quota of %d parts is %d; want %d", limit.Name, shards, got, last)
				}
				want := last
				if limit.Algorithm == Concurrency {
					want = 0
				}
				if got := split.maxCost(false); got != want {
					t.Errorf("%s: Max of %d parts is %d; want %d", limit.Name, shards, got, want)
				}
			}
		}
	}
}

// TestShardsNeverOver: concurrent callers of several processes get no more than
// the whole, and exactly the whole is there; after a while what has flown back.
func TestShardsNeverOver(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		const most, processes, callers = 31, 2, 4
		for _, limit := range splittable(most) {
			for _, shards := range []int{2, 7} {
				first := newSplit(t, client, limit, shards)
				all := []*clocked{first}
				for range processes - 1 {
					c := newSplit(t, client, limit, shards)
					c.prefix, c.now = first.prefix, first.now
					for _, shard := range c.shards {
						shard.prefix = first.prefix
					}
					all = append(all, c)
				}
				var allowed atomic.Int64
				var calling sync.WaitGroup
				for i := range processes * callers {
					c := all[i%processes]
					calling.Go(func() {
						for refused := 0; refused < 2; {
							d, err := c.Take(t.Context(), 1, "k")
							if err != nil {
								t.Error(err)
								return
							}
							if d.Allowed {
								allowed.Add(1)
							} else {
								refused++
							}
						}
					})
				}
				calling.Wait()
				found := allowed.Load()
				if got := found + first.drain(); got != most {
					t.Errorf("%s: %d of %d permits in %d parts, %d of them found by callers", limit.Name, got, most, shards, found)
				}
				if limit.Algorithm == TokenBucket {
					// A third of an hour refills a third, of which each part has whole permits.
					first.now = first.now.Add(20 * time.Minute)
					if got := first.drain(); got > most/3 || got <= most/3-int64(shards) {
						t.Errorf("%d permits in %d parts after a third of the time in which %d flow", got, shards, most)
					}
				}
				first.now = first.now.Add(2 * day)
				if got := first.drain(); got != most {
					t.Errorf("%s: %d of %d permits in %d parts when all is there again", limit.Name, got, most, shards)
				}
			}
		}
	})
}

// TestLoneCallerOfShards: what one caller finds before it is refused. Two parts
// are always both asked, so it finds all. Of more a refusal is by chance, two that
// are empty while others are not; as the parts are used evenly, that is late. (In
// 100,000 simulated runs: never below 988 of 4 parts, 960 of 16, 811 of 64.)
func TestLoneCallerOfShards(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client()
	const most = 1000
	found := func(c *clocked) (n int) {
		for c.take(1).Allowed {
			n++
		}
		return n
	}
	for _, test := range []struct{ shards, least, rested int }{{2, most, most}, {4, 960, 700}, {16, 900, 0}, {64, 650, 0}} {
		c := newSplit(t, client, kinds(most)[0], test.shards)
		if n := found(c); n < test.least {
			t.Errorf("%d parts: refused after %d of %d permits; want %d", test.shards, n, most, test.least)
		}
		if test.rested == 0 {
			continue
		}
		// A caller that last saw the parts empty may come back to one of them only when
		// the others are. (Never below 740 of 4 parts.)
		c.drain()
		c.now = c.now.Add(time.Hour)
		if n := found(c); n < test.rested {
			t.Errorf("%d parts, after a rest: refused after %d of %d permits; want %d", test.shards, n, most, test.rested)
		}
	}
}

// TestShardsAreUsedEvenly: the better of two parts taken at random keeps them
// nearly equal. One part at random would let them differ by some 35 here, and the
// worst of 100,000 simulated runs with two was 11.
func TestShardsAreUsedEvenly(t *testing.T) {
	client := redistest.Shared(t).Client()
	const shards, calls = 16, 1600
	c := newSplit(t, client, kinds(2 * calls)[0], shards)
	for range calls {
		c.take(1)
	}
	lefts := c.lefts()
	if gap := slices.Max(lefts) - slices.Min(lefts); gap > 14 {
		t.Errorf("the parts differ by %d after %d calls: %d", gap, calls, lefts)
	}
	// And so with what others have taken, once it was seen: here half of the parts
	// are nearly empty.
	for i, shard := range c.shards[:shards/2] {
		if _, err := shard.Take(t.Context(), lefts[i]-1, part("k", i)); err != nil {
			t.Fatal(err)
		}
		c.load.left[hashOf(c, "k")][i].Store(1)
	}
	for range calls / 4 {
		c.take(1)
	}
	spent := int64(0)
	for _, left := range c.lefts()[:shards/2] {
		spent += 1 - left
	}
	if spent > shards/2 {
		t.Errorf("%d permits of parts that had one", spent)
	}
}

// hashOf is where a key's parts are remembered.
func hashOf(c *clocked, key string) int {
	left, _, _ := c.two(key)
	return slices.IndexFunc(c.load.left[:], func(of []atomic.Int64) bool { return &of[0] == &left[0] })
}

// TestCostsOfShards: what the smallest part cannot hold is a *CostError, never by
// chance, in each form of a call, and Redis is not asked. A concurrency limit has
// calls and no costs.
func TestCostsOfShards(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr()})
	defer client.Close()
	watch := &gate{}
	client.AddHook(watch)
	for _, limit := range splittable(11) { // 4, 4 and 3
		c := newSplit(t, client, limit, 3)
		ask := []func(n int64) error{
			func(n int64) error { _, err := c.Take(t.Context(), n, "k"); return err },
			func(n int64) error { _, err := c.Reserve(t.Context(), n, time.Hour, "k"); return err },
			func(n int64) error {
				ctx, end := context.WithTimeout(t.Context(), ms)
				defer end()
				_, err := c.Wait(ctx, n, "k")
				return err
			},
			func(n int64) error { _, err := c.Peek(t.Context(), n, "k"); return err },
		}
		if limit.Algorithm == Concurrency {
			c.take(1000)
			continue
		}
		before := watch.trips.Load()
		for range 20 {
			for i, form := range ask {
				for _, n := range []int64{4, 12, exact} {
					cost, ok := errors.AsType[*CostError](form(n))
					if !ok || cost.Max != 3 || cost.Cost != n || cost.Limit != limit.Name {
						t.Errorf("%s, form %d: %v for a cost of %d", limit.Name, i, cost, n)
					}
				}
				if err := form(0); err == nil {
					t.Errorf("%s, form %d: no error for a cost of 0", limit.Name, i)
				}
			}
		}
		if n := watch.trips.Load() - before; n != 0 {
			t.Errorf("%s: %d round trips for costs that are never admitted", limit.Name, n)
		}
		for range 3 { // and the smallest is admitted by every part
			if d := c.take(3); !d.Allowed && d.RetryAfter == 0 {
				t.Errorf("%s: %+v", limit.Name, d)
			}
		}
	}
	c := newSplit(t, client, kinds(11)[0], 3)
	longest := strings.Repeat("x", maxKey)
	if _, err := c.Take(t.Context(), 1, longest); err != nil {
		t.Errorf("a key of %d bytes: %v", maxKey, err)
	}
	if err := c.Pause(t.Context(), kinds(11)[0].Name, longest, c.now.Add(time.Hour), "why"); err != nil {
		t.Errorf("pause of a key of %d bytes: %v", maxKey, err)
	}
	for _, keys := range [][]string{nil, {"a", "b"}, {longest + "x"}} {
		if d, err := c.Take(t.Context(), 1, keys...); err == nil || d != (Decision{}) {
			t.Errorf("%d keys: %+v, %v", len(keys), d, err)
		}
		if r, err := c.Reserve(t.Context(), 1, 0, keys...); err == nil || r != nil {
			t.Errorf("%d keys: %+v, %v", len(keys), r, err)
		}
		if d, err := c.Peek(t.Context(), 1, keys...); err == nil || d != (Decision{}) {
			t.Errorf("%d keys: %+v, %v", len(keys), d, err)
		}
	}
}

// TestShardsRoundTrips: one for a call that is admitted, or two where the better
// part refuses; an error is not asked of another part, where it would take again.
func TestShardsRoundTrips(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr()})
	defer client.Close()
	watch, wire := &gate{}, &breaker{}
	client.AddHook(watch)
	client.AddHook(wire)
	for _, limit := range splittable(40) {
		c := newSplit(t, client, limit, 4)
		for _, shard := range c.shards {
			shard.short = noShort // they would be asked about what the other form left, once
		}
		forms := map[string]func() (Decision, error){
			"Take":    func() (Decision, error) { return c.Take(t.Context(), 1, "k") },
			"Reserve": func() (Decision, error) { return decision(c.Reserve(t.Context(), 1, 0, "k")) },
		}
		if limit.Algorithm == Concurrency {
			delete(forms, "Reserve") // it would have to be released
		}
		for _, form := range forms { // so that the scripts are known
			if d, err := form(); err != nil || !d.Allowed {
				t.Fatalf("%s: %+v, %v", limit.Name, d, err)
			}
		}
		for name, form := range forms {
			before := watch.trips.Load()
			if d, err := form(); err != nil || !d.Allowed || watch.trips.Load() != before+1 {
				t.Errorf("%s, %s: %+v, %v after %d round trips", limit.Name, name, d, err, watch.trips.Load()-before)
			}
			before = watch.trips.Load()
			wire.broken.Store(true)
			d, err := form()
			wire.broken.Store(false)
			if !errors.Is(err, errDown) || d != (Decision{}) || watch.trips.Load() != before+1 {
				t.Errorf("%s, %s: %+v, %v after %d round trips; want the error after one", limit.Name, name, d, err, watch.trips.Load()-before)
			}
		}
		c.drain()
		for name, form := range forms {
			before := watch.trips.Load()
			if d, err := form(); err != nil || d.Allowed || watch.trips.Load() != before+2 {
				t.Errorf("%s, %s: %+v, %v after %d round trips; want it refused after two", limit.Name, name, d, err, watch.trips.Load()-before)
			}
		}
	}
}

// TestShardsInSlots: the parts of a key stand in slots of their own, and no key's
// part is another's.
func TestShardsInSlots(t *testing.T) {
	client := redistest.Shared(t).Client()
	c := newSplit(t, client, kinds(1000)[0], maxShards)
	seen := map[string]bool{}
	for _, key := range []string{"", "k", "alice@example.com", "k1", "k#1", "k#0", "#", "{x}", strings.Repeat("long", 1000)} {
		slots := map[uint16]bool{}
		for i := range maxShards {
			bucket := c.bucket(c.limits[0], part(key, i))
			_, tag, _ := strings.Cut(bucket, "{")
			tag, _, _ = strings.Cut(tag, "}")
			slots[slotOf(tag)] = true
			if seen[bucket] {
				t.Errorf("%q has the part %s of another key", key, bucket)
			}
			seen[bucket] = true
		}
		// 64 things in 16,384 places at random share one at most now and then.
		if len(slots) < maxShards-1 {
			t.Errorf("%.20q: %d parts in %d slots", key, maxShards, len(slots))
		}
	}
	if got := slotOf("123456789"); got != 0x31C3 { // the example of the cluster specification
		t.Fatalf("slot %x", got)
	}
}

// slotOf is the slot of a hash tag: CRC16 (XMODEM) modulo 16,384.
func slotOf(tag string) uint16 {
	crc := uint16(0)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			high := crc&0x8000 != 0
			if crc <<= 1; high {
				crc ^= 0x1021
			}
		}
	}
	return crc % 16384
}

// TestChangedShards: with more parts those that were there keep what was used of
// them, and the others are new; without parts it is another bucket.
func TestChangedShards(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range splittable(24) {
			if limit.Algorithm == Concurrency {
				continue
			}
			c := newSplit(t, client, limit, 2)
			c.drain()
			change := func(shards int, want ...int64) {
				t.Helper()
				c.change(limit.split(shards))
				c.clockShards()
				if got := c.lefts(); !slices.Equal(got, want) {
					t.Errorf("%s: %d parts have %d left; want %d", limit.Name, shards, got, want)
				}
			}
			change(4, 0, 0, 6, 6)
			change(2, 0, 0)
			c.change(limit)
			if d := c.take(1); d.Remaining != 23 {
				t.Errorf("%s: %+v without parts", limit.Name, d)
			}
			c.change(limit.split(1))
			if d := c.take(1); d.Remaining != 22 {
				t.Errorf("%s: %+v with one part, which is none", limit.Name, d)
			}
		}
	})
}

// TestUsableShards: what can be split, and what is said otherwise, by Validate
// as by New.
func TestUsableShards(t *testing.T) {
	client := redistest.Shared(t).Client()
	for name, test := range map[string]struct {
		limit Limit
		says  string // "": it can
	}{
		"none":            {bucket("1/s", 1).split(0), ""},
		"one":             {bucket("1/s", 1).split(1), ""},
		"one leaky":       {leaky("1/s", 1).split(1), ""},
		"a permit each":   {bucket("1/s", 64).split(64), ""},
		"calls in flight": {inFlightOf(64, 0).split(64), ""},
		"negative":        {bucket("1/s", 100).split(-1), "shards: -1 must be 0 to 64"},
		"too many":        {bucket("1/s", 100).split(65), "shards: 65 must be 0 to 64"},
		"too few permits": {bucket("1/s", 3).split(4), "shards: 4 shards for 3 permits leave some without any"},
		"no burst":        {bucket("100/s", 0).split(2), "shards: 2 shards for 1 permits leave some without any"},
		"too few calls":   {inFlightOf(2, 0).split(3), "shards: 3 shards for 2 permits"},
		"a small window":  {window("2/s", nil).split(3), "shards: 3 shards for 2 permits"},
		"leaky":           {leaky("100/s", 100).split(2), "shards: a leaky_bucket cannot be split: it lets calls go one by one"},
		"a counter":       {counted("64/s").split(64), "shards: a sliding_window_counter cannot be split: each shard would round its estimate down, so together they would exceed the limit; use a fixed_window, a sliding_window_log or a token_bucket"},
		"a log":           {logged("64/s").split(64), ""},
		"a long period":   {Limit{Name: "x", Algorithm: TokenBucket, Rate: Rate{Count: 7, Period: 200 * day}, Burst: 4, Shards: 2}, "shards: each of 2: rate: "},
	} {
		said := test.limit.Validate()
		_, err := New(client, "usable", test.limit)
		for _, err := range []error{said, err} {
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("%s: %v; want %q", name, err, test.says)
			}
		}
	}
	for _, limits := range [][]Limit{{bucket("1/s", 9).split(2), window("9/s", nil)}, {window("9/s", nil), bucket("1/s", 9).split(2)}} {
		if _, err := New(client, "usable", limits...); err == nil || !strings.Contains(err.Error(), "must be in one slot of a cluster, so none of them can be split") {
			t.Errorf("split beside others: %v", err)
		}
	}
	if _, err := New(client, "us{able", bucket("1/s", 9).split(2)); err == nil {
		t.Error("a prefix with braces")
	}
}

// BenchmarkShards: what a decision costs on a single Redis, by how many shards its bucket has.
func BenchmarkShards(b *testing.B) {
	client := redistest.Shared(b).Client()
	for _, outcome := range []string{"admitted", "refused"} {
		for _, shards := range []int{0, 2, 8} {
			b.Run(fmt.Sprintf("%s/shards=%d", outcome, shards), func(b *testing.B) {
				limit := Limit{Name: "tb", Algorithm: TokenBucket, Rate: PerSecond(1_000_000), Burst: 1_000_000, Shards: shards}
				if outcome == "refused" {
					limit.Rate, limit.Burst = Rate{Count: 1, Period: time.Hour}, 8
				}
				l, err := New(client, fmt.Sprintf("bench:%s:%s:%d", redistest.Queue(b), outcome, shards), limit)
				if err != nil {
					b.Fatal(err)
				}
				for range 100 {
					if _, err := l.Take(b.Context(), 1, "k"); err != nil {
						b.Fatal(err)
					}
				}
				b.SetParallelism(32) // goroutines for each processor
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if _, err := l.Take(b.Context(), 1, "k"); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}
