package throttle

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestReadOnly: a replica takes nothing and says that it is one. It is asked
// once, or twice where it did not know the script; and once it is a primary the
// same limiter works on.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := primary.StartReplica()
	atReplica := eager(t, replica.Addr(), patience)
	check := func(t *testing.T, c *clocked) {
		t.Helper()
		for _, q := range append(questions, pauses...) {
			if c.limits[0].Algorithm == Concurrency && q.name == "Pause" {
				break
			}
			scripts(t, replica)
			got := q.ask(t.Context(), c)
			if q.name == "Resume" && got.err == nil {
				continue // there is nothing to resume
			}
			if !redis.IsReadOnlyError(got.err) || got.d != (Decision{}) {
				t.Errorf("%s: %+v, %v; want the error of a replica", q.name, got.d, got.err)
			}
			if n := scripts(t, replica); n > 2 {
				t.Errorf("%s: the replica was asked %d times", q.name, n)
			}
		}
	}
	all := map[string]*clocked{"layers": newClocked(t, atReplica, kinds(10)...)}
	for _, limit := range kinds(10) {
		all[limit.Name] = newClocked(t, atReplica, limit)
	}
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			check(t, c)
			if left := c.left(); left != 10 {
				t.Errorf("%d of 10 left; want nothing taken", left)
			}
		})
	}
	replica.Promote()
	for name, c := range all {
		if d := c.take(1); !d.Allowed || d.Remaining != 9 {
			t.Errorf("%s, after the failover: %+v", name, d)
		}
	}
	// And the way back: what was the primary is a replica now.
	primary.Follow(replica)
	old := newClocked(t, eager(t, primary.Addr(), patience), kinds(10)[0])
	replica = primary
	check(t, old)
}

// TestFailover: a replica that takes over knows what had reached it. What had
// not may go once more: up to one full bucket, and never more.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := primary.StartReplica()
	const most, reached = 10, 4
	type pair struct{ before, after *clocked }
	half, none := map[string]pair{}, map[string]pair{}
	for _, limit := range kinds(most) {
		for _, pairs := range []map[string]pair{half, none} {
			before := newClocked(t, primary.Client(), limit)
			after := newClocked(t, replica.Client(), limit)
			after.prefix, after.now = before.prefix, before.now
			pairs[limit.Name] = pair{before, after}
		}
		for range reached {
			half[limit.Name].before.take(1)
		}
	}
	primary.Sync(replica)
	replica.Promote()
	for name := range half {
		for _, p := range []pair{half[name], none[name]} {
			for p.before.take(1).Allowed {
			}
		}
	}
	primary.Kill()
	drain := func(c *clocked) (n int) {
		for c.take(1).Allowed {
			n++
		}
		return n
	}
	for name := range half {
		if n := drain(half[name].after); n != most-reached {
			t.Errorf("%s: %d more permits; want the %d that were left when it was last in step", name, n, most-reached)
		}
		if n := drain(none[name].after); n != most {
			t.Errorf("%s: %d permits of a bucket that had not reached the replica; want %d, once", name, n, most)
		}
	}
}

// TestFailoverToAnotherClock: the new primary's clock is an hour behind, or
// before. Behind, a used bucket gives nothing at once and recovers as if the
// clock were right, within what it owes and a minute. Before, it gives what an
// hour refills.
func TestFailoverToAnotherClock(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := primary.StartReplica()
	const most = 10
	limits := append(kinds(most), kinds(most)[0].named("uneven"))
	for i, limit := range limits {
		switch {
		case limit.Algorithm == Concurrency:
			limits[i].Lease = 10 * time.Second
		case limit.Name == "uneven":
			limits[i].Rate = Rate{Count: 7, Period: 8 * time.Second} // an interval that is no whole µs
		case limit.Location == nil:
			limits[i].Rate = Rate{Count: most, Period: 10 * time.Second}
		}
	}
	type pair struct{ before, after *clocked }
	pairs := map[time.Duration][]pair{}
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		for _, layers := range append(single(limits), limits) {
			before := newClocked(t, primary.Client(), layers...)
			before.now = before.now.Truncate(day).Add(12 * time.Hour) // an hour more or less is the same day
			for before.take(1).Allowed {
			}
			after := newClocked(t, replica.Client(), layers...)
			after.prefix, after.now = before.prefix, before.now.Add(skew)
			pairs[skew] = append(pairs[skew], pair{before, after})
		}
	}
	primary.Sync(replica)
	primary.Kill()
	replica.Promote()

	for _, p := range pairs[-time.Hour] {
		c, name := p.after, p.after.limits[0].Name
		if len(c.limits) > 1 {
			name = "layers"
		}
		longest := 10*time.Second + 10*time.Second + time.Minute
		if name == "calendar" || name == "layers" {
			longest = day // its window is that long
		}
		start := c.now
		for d := c.take(1); !d.Allowed; d = c.take(1) {
			if d.RetryAfter <= 0 {
				t.Fatalf("%s: refused without a wait: %+v", name, d)
			}
			c.now = c.now.Add(d.RetryAfter)
			if waited := c.now.Sub(start); waited > longest {
				t.Errorf("%s: refused for %v by a clock set back an hour, longer than %v", name, waited, longest)
				break
			}
		}
		if c.now.Equal(start) {
			t.Errorf("%s: a clock that was set back gave a permit", name)
		}
	}
	for _, p := range pairs[time.Hour] {
		c, n := p.after, 0
		for c.take(1).Allowed {
			n++
		}
		want := most
		if c.limits[0].Name == "calendar" || len(c.limits) > 1 {
			want = 0 // the same day
		}
		if n != want {
			t.Errorf("%d limits, %s: %d permits an hour later; want %d", len(c.limits), c.limits[0].Name, n, want)
		}
	}
}

// single is a limiter's worth of limits for each.
func single(limits []Limit) [][]Limit {
	each := make([][]Limit, len(limits))
	for i, limit := range limits {
		each[i] = []Limit{limit}
	}
	return each
}
