package throttle

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// hold reserves a permit that must be given.
func hold(t *testing.T, l *Limiter, keys ...string) *Reservation {
	t.Helper()
	r, err := l.Reserve(t.Context(), 1, time.Hour, keysOr(keys)...)
	if err != nil || !r.Allowed {
		t.Fatalf("%+v, %v", r, err)
	}
	return r
}

func release(t *testing.T, r *Reservation) {
	t.Helper()
	if err := r.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func isLost(r *Reservation) bool {
	select {
	case <-r.Lost():
		return true
	default:
		return false
	}
}

// known is how many reservations are renewed.
func (h *leases) known() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held)
}

// TestHeldPermitsAreRenewed: a permit is its call's for as long as that takes, by
// one script each quarter of a lease; and released it is another's at once.
func TestHeldPermitsAreRenewed(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(b *bubble) {
		for lease, length := range map[time.Duration]time.Duration{0: DefaultLease, time.Second: time.Second, day: day} {
			c := b.limiter(inFlightOf(2, lease))
			first, second := hold(b.t, c.Limiter), hold(b.t, c.Limiter)
			other := b.process(c, inFlightOf(2, lease))
			before := b.scripts.Load()
			for range 10 {
				time.Sleep(length + length/16) // and in the end not at the moment of a renewal
				d, err := other.Take(b.t.Context(), 1, "k")
				if err != nil || d.Allowed || d.RetryAfter <= length/2 || d.RetryAfter > length {
					b.t.Fatalf("lease %v: %+v, %v while all permits are held", length, d, err)
				}
			}
			if n := b.scripts.Load() - before - 10; n != 42 {
				b.t.Errorf("lease %v: renewed %d times in 42.5 quarters", length, n)
			}
			release(b.t, first)
			if left := c.left(); left != 1 {
				b.t.Errorf("lease %v: %d permits left after one of two was released", length, left)
			}
			release(b.t, first) // ended: it does nothing
			time.Sleep(2 * length)
			if left := c.left(); left != 1 || isLost(second) || isLost(first) {
				b.t.Errorf("lease %v: %d permits left, lost: %v", length, left, isLost(second))
			}
			release(b.t, second)
			if left := c.left(); left != 2 {
				b.t.Errorf("lease %v: %d permits left", length, left)
			}
		}
	})
}

// TestTakenPermitsAreNotRenewed: nobody can release them.
func TestTakenPermitsAreNotRenewed(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(inFlightOf(1, 10*time.Second))
		c.take(1)
		time.Sleep(10*time.Second - time.Microsecond)
		if d := c.take(1); d.Allowed || d.RetryAfter != time.Microsecond {
			b.t.Errorf("%+v just before the lease ends", d)
		}
		time.Sleep(time.Microsecond)
		if d := c.take(1); !d.Allowed {
			b.t.Errorf("%+v when the lease has ended", d)
		}
	})
}

// TestPermitsOfADeadProcess come back within a lease, not earlier than its last
// renewal allows.
func TestPermitsOfADeadProcess(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(inFlightOf(1, 8*time.Second))
		r := hold(b.t, c.Limiter)
		time.Sleep(5 * time.Second) // renewed 4 s after it was taken
		c.leases.remove(r)          // it is dead: it neither renews nor releases
		other := b.process(c, inFlightOf(1, 8*time.Second))
		time.Sleep(7*time.Second - time.Microsecond)
		if d, err := other.Take(b.t.Context(), 1, "k"); err != nil || d.Allowed || d.RetryAfter != time.Microsecond {
			b.t.Errorf("%+v, %v just before the lease ends", d, err)
		}
		time.Sleep(time.Microsecond)
		next := hold(b.t, other)
		release(b.t, next)
	})
}

// TestLost: it is closed when the permit has lapsed although it was held, as Redis
// was away for a lease, and not before. Its release takes away nobody's permit.
func TestLost(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(inFlightOf(1, 8*time.Second))
		other := b.process(c, inFlightOf(1, 8*time.Second))
		r := hold(b.t, c.Limiter)
		b.meets(down)
		time.Sleep(5 * time.Second) // two renewals failed
		b.meets(nil)
		if isLost(r) {
			b.t.Error("lost within its lease")
		}
		time.Sleep(4 * time.Second) // the third one did not
		if d, err := other.Take(b.t.Context(), 1, "k"); err != nil || d.Allowed || isLost(r) {
			b.t.Errorf("%+v, %v; want it held, lost: %v", d, err, isLost(r))
		}

		b.meets(down)
		time.Sleep(9 * time.Second)
		b.meets(nil)
		next := hold(b.t, other) // it may be another's now
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !isLost(r) || isLost(next) {
			b.t.Errorf("lost: %v; the other's: %v", isLost(r), isLost(next))
		}
		if n := c.leases.known(); n != 0 {
			b.t.Errorf("%d permits that are lost are renewed", n)
		}
		release(b.t, r)
		if left := c.left(); left != 0 {
			b.t.Errorf("%d permits left: the release of a lost one took another's", left)
		}
		release(b.t, next)
		if left := c.left(); left != 1 {
			b.t.Errorf("%d permits left", left)
		}
	})
}

// TestLapsedPermitsStayLapsed: what lapsed is not taken again by a renewal, also
// where nobody has it meanwhile, nor by one that was on its way at the release.
func TestLapsedPermitsStayLapsed(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, inFlightOf(2, day), inFlightOf(2, day).named("second"))
		lapsed, released, kept := hold(t, c.Limiter, "a"), hold(t, c.Limiter, "a"), hold(t, c.Limiter, "b")
		group := c.renewals([]*Reservation{lapsed, released, kept})
		c.now = c.now.Add(day - time.Microsecond)
		release(t, released)
		c.leases.extend(c.Limiter, c.renewals([]*Reservation{kept})[0], patience)
		c.now = c.now.Add(time.Microsecond)
		for _, one := range group {
			c.leases.extend(c.Limiter, one, patience)
		}
		if !isLost(lapsed) || isLost(released) || isLost(kept) {
			t.Errorf("lost: %v, %v, %v; want the first one alone", isLost(lapsed), isLost(released), isLost(kept))
		}
		for key, want := range map[string]int64{"a": 2, "b": 1} {
			if d := c.peek(key); d.Remaining != want {
				t.Errorf("%s: %d permits left; want %d", key, d.Remaining, want)
			}
		}
		release(t, kept)
	})
}

// TestKeyOfAnotherType: a permit whose key became something else has lapsed, and the permits that are renewed with it
// have not.
func TestKeyOfAnotherType(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, inFlightOf(1, day))
		gone, kept := hold(t, c.Limiter, "a"), hold(t, c.Limiter, "b")
		if err := client.Set(t.Context(), gone.call.buckets[0], "text", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		c.now = c.now.Add(time.Hour)
		c.leases.extend(c.Limiter, c.renewals([]*Reservation{gone, kept})[0], patience)
		if !isLost(gone) || isLost(kept) {
			t.Errorf("lost: %v, %v; want the first one alone", isLost(gone), isLost(kept))
		}
		if d := c.take(1, "b"); d.RetryAfter != day {
			t.Errorf("%+v; want the permit renewed", d)
		}
		release(t, kept)
	})
}

// TestLostWithoutRedis: a permit that nobody could renew for a lease is lost, also if the machine was suspended for most
// of that time, and not earlier.
func TestLostWithoutRedis(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(inFlightOf(2, 8*time.Second))
		other := b.process(c, inFlightOf(2, 8*time.Second))
		r := hold(b.t, c.Limiter)
		time.Sleep(5 * time.Second) // renewed after 2 and 4 s
		b.meets(down)
		time.Sleep(7*time.Second - 1) // from now on each renewal fails
		if isLost(r) {
			b.t.Error("lost within its lease")
		}
		time.Sleep(2 * time.Second)
		if !isLost(r) || c.leases.known() != 0 {
			b.t.Errorf("lost: %v after its lease, %d permits are renewed", isLost(r), c.leases.known())
		}
		b.meets(nil)
		if d, err := other.Peek(b.t.Context(), 1, "k"); err != nil || d.Remaining != 2 {
			b.t.Errorf("%+v, %v; want the permit free", d, err)
		}
		release(b.t, r)

		var suspended atomic.Int64
		c.Limiter.now = func() time.Time { return time.Now().Round(0).Add(time.Duration(suspended.Load())) }
		r = hold(b.t, c.Limiter)
		b.meets(down)
		time.Sleep(3 * time.Second)
		suspended.Store(int64(time.Hour))
		time.Sleep(2 * time.Second)
		if !isLost(r) {
			b.t.Error("not lost after an hour without a renewal")
		}
		b.meets(nil)
		release(b.t, r)
	})
}

// TestLostIsTold: a deleted or evicted key is a permit lost; and without a
// concurrency limit there is nothing to lose.
func TestLostIsTold(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(inFlightOf(1, 8*time.Second))
		r := hold(b.t, c.Limiter)
		if err := b.client.Del(b.t.Context(), c.bucket(c.limits[0], "k")).Err(); err != nil {
			b.t.Fatal(err)
		}
		begin := time.Now()
		<-r.Lost()
		if took := time.Since(begin); took > 2*time.Second {
			b.t.Errorf("it took %v to tell; want a quarter of the lease", took)
		}
		rates := b.limiter(kinds(10)[:6]...)
		if r := hold(b.t, rates.Limiter); r.Lost() != nil || rates.leases.known() != 0 {
			b.t.Error("a permit of a rate is renewed")
		}
	})
}

// TestEndedCallsHoldNoPermit: however a call ends, and whatever other limits it has, its permit is free at once.
func TestEndedCallsHoldNoPermit(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limits := range [][]Limit{{inFlightOf(3, time.Hour)}, {bucket("10/s", 20), inFlightOf(3, time.Hour)}} {
			c := newClocked(t, client, limits...)
			for name, end := range map[string]func(*Reservation) error{
				"Release":               func(r *Reservation) error { return r.Release(t.Context()) },
				"Cancel":                func(r *Reservation) error { return r.Cancel(t.Context()) },
				"Settle":                func(r *Reservation) error { return r.Settle(t.Context(), 2) },
				"Settle what was taken": func(r *Reservation) error { return r.Settle(t.Context(), 1) },
			} {
				r := hold(t, c.Limiter)
				key := r.call.buckets[len(limits)-1]
				if held := client.ZCard(t.Context(), key).Val(); held != 1 {
					t.Fatalf("%d permits are held; want 1", held)
				}
				if err := end(r); err != nil {
					t.Error(err)
				}
				if held := client.ZCard(t.Context(), key).Val(); held != 0 {
					t.Errorf("%s: %d permits are held after it", name, held)
				}
			}
		}
	})
}

// TestRenewalsEnd: what renews ends with the last permit, and begins again. It is
// the bubble that would not end otherwise.
func TestRenewalsEnd(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(inFlightOf(3, 8*time.Second))
		ends := map[string]func(*Reservation) error{
			"Release": func(r *Reservation) error { return r.Release(b.t.Context()) },
			"Cancel":  func(r *Reservation) error { return r.Cancel(b.t.Context()) },
			"Settle":  func(r *Reservation) error { return r.Settle(b.t.Context(), 9) },
		}
		for name, end := range ends {
			first, second := hold(b.t, c.Limiter), hold(b.t, c.Limiter)
			time.Sleep(9 * time.Second)
			if err := end(first); err != nil {
				b.t.Error(err)
			}
			time.Sleep(10 * time.Second) // and so not at the moment of a renewal
			if left := c.left(); left != 2 {
				b.t.Errorf("%s: %d permits left while one is held", name, left)
			}
			if err := end(second); err != nil {
				b.t.Error(err)
			}
			before := b.scripts.Load()
			time.Sleep(time.Minute)
			if n := b.scripts.Load() - before; n != 0 || c.left() != 3 {
				b.t.Errorf("%s: %d scripts when nothing is held, %d permits left", name, n, c.left())
			}
		}
		// Of a Wait that is refused, or whose context ends, nothing is held.
		r := hold(b.t, c.Limiter)
		defer release(b.t, r)
		release(b.t, hold(b.t, c.Limiter))
		if n := c.leases.known(); n != 1 {
			b.t.Errorf("%d permits are renewed; want 1", n)
		}
	})
}

// TestFailedReleaseIsOver: after an error the permit is not renewed any more, and
// comes back by itself.
func TestFailedReleaseIsOver(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(inFlightOf(1, 8*time.Second))
		r := hold(b.t, c.Limiter)
		b.meets(down)
		if err := r.Release(b.t.Context()); err == nil {
			b.t.Error("released without a Redis")
		}
		b.meets(nil)
		time.Sleep(8 * time.Second)
		if left := c.left(); left != 1 || isLost(r) {
			b.t.Errorf("%d permits left after a lease, lost: %v", left, isLost(r))
		}
	})
}

// TestRenewalsOfASilentRedis: a renewal without an answer is left for the next
// one, which is in time.
func TestRenewalsOfASilentRedis(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(inFlightOf(1, 8*time.Second))
		r := hold(b.t, c.Limiter)
		var silent atomic.Bool
		silent.Store(true)
		b.meets(func(context.Context, redis.Cmder) error {
			if silent.Swap(false) {
				time.Sleep(time.Minute)
				return errDown
			}
			return nil
		})
		time.Sleep(7 * time.Second)
		b.meets(nil)
		time.Sleep(5 * time.Second)
		if left := c.left(); left != 0 || isLost(r) {
			b.t.Errorf("%d permits left, lost: %v", left, isLost(r))
		}
		release(b.t, r)
		time.Sleep(time.Minute) // the silent one ends
	})
}

// TestRenewalsAreBounded: many permits are renewed by scripts of bounded length,
// all of them; where keys live on different servers, each by its own.
func TestRenewalsAreBounded(t *testing.T) {
	client := redistest.Shared(t).Client()
	const held = 2*maxTogether + 44
	groups := func(c *clocked) (sizes []int) {
		var list []*Reservation
		for i := range held {
			list = append(list, &Reservation{call: &call{id: fmt.Sprint(i), buckets: slices.Repeat([]string{fmt.Sprint(i)}, len(c.limits))}, renewed: make([]time.Time, len(c.limits))})
		}
		seen := map[string]int{}
		for _, group := range c.renewals(list) {
			sizes = append(sizes, len(group))
			for _, one := range group {
				seen[one.r.call.id]++
			}
		}
		want := 0
		for _, limit := range c.limits {
			if limit.Algorithm == Concurrency {
				want++
			}
		}
		if len(seen) != held || seen["7"] != want {
			t.Errorf("%d reservations of %d are renewed, each %d times; want %d", len(seen), held, seen["7"], want)
		}
		return sizes
	}
	if got := groups(newClocked(t, client, inFlightOf(9, 0))); !slices.Equal(got, []int{maxTogether, maxTogether, 44}) {
		t.Errorf("one limit: groups of %d", got)
	}
	layers := []Limit{bucket("1/s", 1), inFlightOf(9, 0), inFlightOf(9, 0).named("second")}
	if got := groups(newClocked(t, client, layers...)); len(got) != 5 || slices.Max(got) > maxTogether {
		t.Errorf("layers: groups of %d", got)
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"nowhere:0"}})
	defer cluster.Close()
	if got := groups(newClocked(t, cluster, inFlightOf(9, 0))); len(got) != held || slices.Max(got) != 1 {
		t.Errorf("a cluster: %d groups, of up to %d; want each permit alone, as each may be of another slot", len(got), slices.Max(got))
	}
	// Limits that are taken together share a slot.
	if got := groups(newClocked(t, cluster, layers...)); len(got) != 5 {
		t.Errorf("layers in a cluster: groups of %d", got)
	}
}

// TestManyHeldPermits: all are renewed, those of many groups too.
func TestManyHeldPermits(t *testing.T) {
	t.Parallel()
	inBubble(t, redistest.Shared(t).Client(), func(b *bubble) {
		const held = maxTogether + 20
		c := b.limiter(inFlightOf(held, 8*time.Second))
		var all []*Reservation
		for range held {
			all = append(all, hold(b.t, c.Limiter))
		}
		before := b.scripts.Load()
		time.Sleep(21 * time.Second)
		if left := c.left(); left != 0 {
			b.t.Errorf("%d of %d permits lapsed", left, held)
		}
		if n := b.scripts.Load() - before - 1; n != 20 {
			b.t.Errorf("%d scripts in ten rounds of two groups", n)
		}
		for _, r := range all {
			release(b.t, r)
		}
	})
}

// TestRenewalsBesideASilentServer: a server that says nothing does not cost the
// permits of another.
func TestRenewalsBesideASilentServer(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	living, silent := redistest.Start(t), redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{
		Addrs:              map[string]string{"living": living.Addr(), "silent": silent.Addr()},
		HeartbeatFrequency: time.Hour, // or it would send the keys of one to the other
		ReadTimeout:        patience,
		DialTimeout:        patience,
	})
	defer ring.Close()
	const each = 12
	limit := inFlightOf(1, 2*time.Second)
	c := newClocked(t, ring, limit)
	atLiving := newClocked(t, living.Client(), limit)
	atLiving.prefix = c.prefix
	c.Limiter.now, atLiving.Limiter.now = nil, nil
	held := map[bool][]*Reservation{}
	keys := map[*Reservation]string{}
	for i := 0; len(held[true]) < each || len(held[false]) < each; i++ {
		key := fmt.Sprint(i)
		r := hold(t, c.Limiter, key)
		lives := living.Client().Exists(t.Context(), r.call.buckets[0]).Val() == 1
		if len(held[lives]) == each {
			release(t, r)
			continue
		}
		held[lives], keys[r] = append(held[lives], r), key
	}
	silent.Pause()
	defer silent.Resume()
	// By what Redis has, not by how long it takes: longer than a lease, in which the
	// permits of the silent one could not be renewed one after the other.
	ends := func(r *Reservation) time.Time {
		return time.UnixMicro(int64(living.Client().ZScore(t.Context(), r.call.buckets[0], r.call.id).Val()))
	}
	first := held[true][0]
	begin, deadline := ends(first), time.Now().Add(patience)
	for ; !isLost(first) && ends(first).Before(begin.Add(3*time.Second)) && time.Now().Before(deadline); time.Sleep(10 * ms) {
	}
	now := living.Client().Time(t.Context()).Val()
	for _, r := range held[true] {
		if isLost(r) || !ends(r).After(now) {
			t.Errorf("the permit of %s has lapsed, whose server is there", keys[r])
		}
	}
	silent.Resume()
	for _, r := range slices.Concat(held[true], held[false]) {
		if err := r.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestChangedLease: each process renews by the lease it knows. A longer one holds
// from the next renewal on; a shorter one cuts what is held to it, which is no loss
// while a process renews more often than that.
func TestChangedLease(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(b *bubble) {
		c := b.limiter(inFlightOf(1, 20*time.Second))
		r := hold(b.t, c.Limiter)
		for _, lease := range []time.Duration{time.Hour, 6 * time.Second} {
			other := b.process(c, inFlightOf(1, lease))
			for range 100 {
				time.Sleep(1100 * ms)
				d, err := other.Take(b.t.Context(), 1, "k")
				if err != nil || d.Allowed || d.RetryAfter > min(lease, 20*time.Second)+time.Second {
					b.t.Fatalf("lease of %v: %+v, %v while a process with 20 s holds the permit", lease, d, err)
				}
			}
			if isLost(r) {
				b.t.Errorf("lease of %v: lost", lease)
			}
		}
		// Shorter than what it renews by: its permit lapses, and it is told. Its next
		// renewal is 3 s away.
		time.Sleep(2 * time.Second)
		short := b.process(c, inFlightOf(1, time.Second))
		if _, err := short.Take(b.t.Context(), 1, "k"); err != nil {
			b.t.Fatal(err)
		}
		<-r.Lost()
		release(b.t, r)

		// A process that dies under the longer lease is waited for by the shorter one.
		r = hold(b.t, b.process(c, inFlightOf(1, day)))
		r.limiter.leases.remove(r)
		if d, err := short.Take(b.t.Context(), 1, "k"); err != nil || d.Allowed || d.RetryAfter > time.Second {
			b.t.Errorf("%+v, %v; want no longer than the shorter lease", d, err)
		}
		time.Sleep(time.Second)
		if d, err := short.Take(b.t.Context(), 1, "k"); err != nil || !d.Allowed {
			b.t.Errorf("%+v, %v after the shorter lease", d, err)
		}
	})
}

// TestLeasesOfLayers: a call holds a permit of each concurrency limit while it
// waits for its slot too, each is renewed by the shortest lease, and the loss of
// one is the call's.
func TestLeasesOfLayers(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		layers := []Limit{inFlightOf(2, 8*time.Second).named("account"), leaky("1/min", 0), inFlightOf(1, time.Minute).named("tenant")}
		c := b.limiter(layers...)
		first := hold(b.t, c.Limiter, "all", "all", "a")
		second := hold(b.t, c.Limiter, "all", "all", "b")
		if second.Delay != time.Minute {
			b.t.Errorf("%+v; want a slot a minute away", second.Decision)
		}
		held := func(limit Limit, key string, want int64) {
			b.t.Helper()
			n, err := b.client.ZCount(b.t.Context(), c.bucket(limit, key), fmt.Sprint(time.Now().UnixMicro()+1), "+inf").Result()
			if err != nil || n != want {
				b.t.Errorf("%s of %s: %d permits held, %v; want %d", limit.Name, key, n, err, want)
			}
		}
		before := b.scripts.Load()
		time.Sleep(45 * time.Second)
		held(layers[0], "all", 2)
		held(layers[2], "a", 1)
		held(layers[2], "b", 1)
		if n := b.scripts.Load() - before; n != 22 {
			b.t.Errorf("%d scripts in 45 s; want one in each quarter of 8 s for all permits", n)
		}
		release(b.t, first)
		time.Sleep(80 * time.Second)
		held(layers[0], "all", 1)
		held(layers[2], "a", 0)
		held(layers[2], "b", 1)
		key := c.bucket(layers[0], "all")
		if err := b.client.Del(b.t.Context(), key).Err(); err != nil {
			b.t.Fatal(err)
		}
		<-second.Lost()
		if n := c.leases.known(); n != 0 {
			b.t.Errorf("%d reservations are renewed", n)
		}
		release(b.t, second) // gives back what it still has
		held(layers[2], "b", 0)
	})
}

// TestPermitsOfShards: they are renewed and released where they were taken.
func TestPermitsOfShards(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(b *bubble) {
		limit := inFlightOf(7, 8*time.Second)
		limit.Shards = 3
		c := b.limiter(limit)
		c.clockShards()
		var held []*Reservation
		for range 1000 { // two parts may be empty
			r, err := c.Reserve(b.t.Context(), 5, 0, "k") // whatever it costs
			if err != nil {
				b.t.Fatal(err)
			}
			if r.Allowed {
				held = append(held, r)
			}
			if len(held) == 7 {
				break
			}
		}
		if len(held) != 7 {
			b.t.Errorf("%d calls under way of 7", len(held))
		}
		time.Sleep(time.Minute)
		if left := c.left(); left != 0 {
			b.t.Errorf("%d permits lapsed", left)
		}
		for i, r := range held {
			release(b.t, r)
			if left := c.left(); left != int64(i+1) {
				b.t.Errorf("%d permits left after %d were released", left, i+1)
			}
		}
	})
}

// TestWaitForAPermit: a caller that waits gets the permit soon after it comes
// back, and of one that leaves nothing is held.
func TestWaitForAPermit(t *testing.T) {
	inBubbles(t, func(b *bubble) {
		c := b.limiter(inFlightOf(1, time.Second))
		r := hold(b.t, c.Limiter)
		leaving, leave := context.WithTimeout(b.t.Context(), 2*time.Second)
		defer leave()
		if _, err := c.Wait(leaving, 1, "k"); err == nil {
			b.t.Error("a second call while the permit is held")
		}
		if n := c.leases.known(); n != 1 {
			b.t.Errorf("%d permits are renewed", n)
		}
		given := make(chan *Reservation)
		go func() {
			next, err := c.Wait(b.t.Context(), 1, "k")
			if err != nil {
				b.t.Error(err)
			}
			given <- next
		}()
		time.Sleep(3 * time.Second)
		begin := time.Now()
		release(b.t, r)
		next := <-given
		if took := time.Since(begin); took > 20*ms {
			b.t.Errorf("it took %v to notice", took)
		}
		release(b.t, next)
	})
}
