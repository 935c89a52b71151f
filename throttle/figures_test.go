package throttle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// The figures of docs/limits.md that no other test holds.

// sizes are limits of one name that hold so many permits, of each algorithm.
func sizes(n int64) []Limit {
	rate := Rate{Count: n, Period: time.Minute}
	return []Limit{
		{Name: "x", Algorithm: TokenBucket, Rate: rate, Burst: n},
		{Name: "x", Algorithm: LeakyBucket, Rate: rate, Capacity: n},
		{Name: "x", Algorithm: FixedWindow, Rate: rate},
		{Name: "x", Algorithm: SlidingWindowCounter, Rate: rate},
		{Name: "x", Algorithm: SlidingWindowLog, Rate: rate},
	}
}

// TestLongerWindows: a window or log that is made longer knows no more than it
// had kept.
func TestLongerWindows(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for name, test := range map[string]struct {
			short, long Limit
			left        int64 // of 10 a minute, after 2, 3 and 4 permits in three windows of 10 s
		}{
			"fixed window":           {window("10/10s", nil), window("10/min", nil), 6},
			"sliding window log":     {logged("10/10s"), logged("10/min"), 6},
			"sliding window counter": {counted("10/10s"), counted("10/min"), 3},
		} {
			c := newClocked(t, client, test.short)
			for _, n := range []int64{2, 3, 4} {
				c.take(n)
				c.now = c.now.Add(10 * time.Second)
			}
			c.now = c.now.Add(-10 * time.Second)
			c.change(test.long)
			if d := c.peek(); d.Remaining != test.left {
				t.Errorf("%s: %d left, want %d", name, d.Remaining, test.left)
			}
		}
	})
}

// TestWobble: a clock that goes back by no more than a second costs at most
// that, and gives nothing.
func TestWobble(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range sizes(5) {
			limit.Rate.Period = 30 * time.Second
			c := newClocked(t, client, limit)
			start := c.now
			c.take(5)
			c.now = c.now.Add(-time.Second)
			for d := c.take(1); !d.Allowed; d = c.take(1) {
				c.now = c.now.Add(d.RetryAfter)
			}
			want := 30 * time.Second // the period
			if limit.drains() {
				want = 6 * time.Second // one permit
			}
			if limit.Algorithm == SlidingWindowCounter {
				want = 30*time.Second + time.Microsecond // until less than 5 of 5 count
			}
			if got := c.now.Sub(start); got != want {
				t.Errorf("%s: the next permit comes %v after the others by the clock as it was, want %v", limit.Algorithm, got, want)
			}
		}
	})
}

// TestFullQueue: a queue that is full says when it has a place again, which is
// before it has drained.
func TestFullQueue(t *testing.T) {
	c := newClocked(t, redistest.Shared(t).Client(), leaky("10/s", 3))
	for range 3 {
		c.reserve(1, time.Minute)
	}
	if d := c.reserve(1, time.Minute); d.Allowed || d.RetryAfter != 100*ms || d.Delay != 300*ms {
		t.Errorf("%+v", d)
	}
	c.now = c.now.Add(100 * ms)
	if d := c.reserve(1, time.Minute); !d.Allowed || d.Delay != 200*ms {
		t.Errorf("%+v", d)
	}
}

// TestSlotsOfALogAreBounded: slots that were reserved do not make a log longer than 20,000 moments. A call that finds no
// place is told when there is one.
func TestSlotsOfALogAreBounded(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		limit := logged("1000/s")
		c := newClocked(t, client, limit)
		length := func() int64 { return client.LLen(t.Context(), c.bucket(limit, "k")).Val() - 1 }
		for i := range 20 {
			if d := c.reserve(1000, time.Hour); !d.Allowed || d.Delay != time.Duration(i)*time.Second {
				t.Fatalf("slot %d: %+v", i, d)
			}
		}
		for range 2 {
			if d := c.reserve(1, time.Hour); d.Allowed || d.Delay != 20*time.Second || d.RetryAfter != time.Second {
				t.Errorf("%+v; want it refused until the first thousand count no more", d)
			}
			c.now = c.now.Add(time.Second - time.Microsecond)
			if d := c.reserve(1, time.Hour); d.Allowed || d.RetryAfter != time.Microsecond {
				t.Errorf("%+v; want it refused for another µs", d)
			}
			c.now = c.now.Add(time.Microsecond)
			if d := c.reserve(1000, time.Hour); !d.Allowed || d.Delay != 19*time.Second {
				t.Errorf("%+v; want the place of the first thousand", d)
			}
			if n := length(); n != 20_000 {
				t.Errorf("%d moments are stored", n)
			}
		}
	})
}

// TestFarSlotsOfSharedLayers: a far slot of one key's own limit takes its moment
// of the shared one and all before it.
func TestFarSlotsOfSharedLayers(t *testing.T) {
	c := newClocked(t, redistest.Shared(t).Client(), bucket("1/min", 1).named("own"), leaky("10/s", 0).named("shared"))
	c.reserve(1, 0, "a", "all")
	if d := c.reserve(1, time.Hour, "a", "all"); d.Delay != time.Minute || d.Limit != "own" {
		t.Fatalf("%+v", d)
	}
	if d := c.reserve(1, time.Hour, "b", "all"); d.Delay != time.Minute+100*ms || d.Limit != "shared" {
		t.Errorf("%+v", d)
	}
}

// TestPauseOfShards: after it each part starts with one permit.
func TestPauseOfShards(t *testing.T) {
	client := redistest.Shared(t).Client()
	limit := bucket("100/h", 100)
	limit.Shards = 4
	l, err := New(client, fmt.Sprintf("figures:%d", time.Now().UnixNano()), limit)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Pause(t.Context(), "tb", "k", time.Now().Add(time.Hour), "why"); err != nil {
		t.Fatal(err)
	}
	if d, err := l.Take(t.Context(), 1, "k"); err != nil || d.Allowed || d.Paused != "why" {
		t.Errorf("%+v, %v", d, err)
	}
	if err := l.Resume(t.Context(), "tb", "k"); err != nil {
		t.Fatal(err)
	}
	if d, err := l.Peek(t.Context(), 1, "k"); err != nil || d.Remaining != 4 {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestStates: what a bucket looks like in Redis, by algorithm. The moments are
// µs; base is when the limiter's clock stands still.
func TestStates(t *testing.T) {
	client := redistest.Shared(t).Client()
	base := time.Date(2026, 5, 4, 12, 0, 7, 0, time.UTC)
	at := func(d time.Duration) string { return fmt.Sprint(base.Add(d).UnixMicro()) }
	plain := func(d time.Duration) string { return fmt.Sprint(base.Add(d).UnixMicro() - 1577836800000000) }
	second := fmt.Sprint("@", base.Unix())
	start := func(d time.Duration) string { return fmt.Sprint(base.Add(d).Truncate(time.Minute).UnixMicro()) }
	for name, test := range map[string]struct {
		limit   Limit
		reserve bool
		want    []string
	}{
		"plain":            {bucket("10/s", 20), false, []string{plain(300*ms) + "1003"}},
		"plain, metering":  {leaky("10/s", 20), false, []string{plain(300*ms) + "1003"}},
		"detailed":         {bucket("10/s", 20), true, []string{"r", at(300 * ms), "0", "100000", "1", at(0), at(0)}},
		"sevenths":         {bucket("7/s", 20), false, []string{plain(428571*time.Microsecond) + ":1000000/7+3" + second}},
		"more than 60 s":   {bucket("2/min", 20), false, []string{plain(90*time.Second) + ":30000000/1+0" + second}},
		"no three digits":  {bucket("1/1234ms", 20), false, []string{plain(3702*ms) + ":1234000/1+0" + second}},
		"fixed window":     {window("10/min", nil), false, []string{"f", start(0), start(time.Minute), "3", at(0), at(0)}},
		"sliding counter":  {counted("10/min"), false, []string{"c", start(0), "60000000", "0", "3", at(0), at(0)}},
		"sliding log":      {logged("10/min"), false, []string{"@" + at(0), at(0), at(0), at(0)}},
		"leaky, reserving": {leaky("10/s", 20), true, []string{"r", at(300 * ms), "0", "100000", "1", at(0), at(0)}},
	} {
		c := newClocked(t, client, test.limit)
		c.now = base
		if test.reserve {
			c.book(3, time.Minute)
		} else {
			c.take(3)
		}
		key, got := c.bucket(test.limit, "k"), ""
		if test.limit.Algorithm == SlidingWindowLog {
			got = strings.Join(client.LRange(t.Context(), key, 0, -1).Val(), " ")
		} else {
			got = client.Get(t.Context(), key).Val()
		}
		// What comes behind is for those who give permits back.
		if test.want[0] == "r" {
			got = strings.Join(strings.Split(got, " ")[:7], " ")
		}
		if want := strings.Join(test.want, " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	c := newClocked(t, client, bucket("10/s", 20))
	c.now = base
	c.pause(time.Minute, "why")
	if got, want := client.Get(t.Context(), c.bucket(c.limits[0], "k")).Val(), " !"+at(time.Minute)+" why"; !strings.HasSuffix(got, want) {
		t.Errorf("paused: %q, want it to end in %q", got, want)
	}
}

// TestWhatDoesNotComeBack: of a window behind one that was used, and of a bucket
// whose rate was changed since.
func TestWhatDoesNotComeBack(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for name, test := range map[string]struct {
			limit Limit
			later time.Duration // when another call takes its slot
			back  int64         // of 2 permits
		}{
			"fixed window, behind another":           {window("10/min", nil), time.Minute, 0},
			"sliding window counter, behind another": {counted("10/min"), time.Minute, 2},
			"sliding window counter, behind two":     {counted("10/min"), 2 * time.Minute, 0},
			"sliding window log, behind another":     {logged("10/min"), 30 * time.Second, 2},
		} {
			c := newClocked(t, client, test.limit)
			r := c.book(2, 0)
			c.now = c.now.Add(test.later)
			c.take(1)
			before := c.peek()
			c.cancel(r)
			if back := c.peek().Remaining - before.Remaining; back != test.back {
				t.Errorf("%s: %d came back, want %d", name, back, test.back)
			}
		}
		c := newClocked(t, client, bucket("1/min", 10))
		c.take(6)
		r := c.book(2, 0)
		c.take(1)
		c.change(bucket("2/min", 10))
		c.take(1)
		c.cancel(r)
		if d := c.peek(); d.Remaining != 0 {
			t.Errorf("%+v: it came back across a change of the rate", d)
		}
	})
}
