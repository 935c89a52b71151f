package throttle

import (
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// TestStoredIsWhatScriptsSee: what is read of a bucket's text without a script is
// what the scripts make of it.
func TestStoredIsWhatScriptsSee(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	limits := []Limit{
		bucket("10/s", 20), bucket("7/3s", 5), leaky("30/s", 10), window("50/s", nil), window("6/s", nil), window("100/day", berlin),
		counted("60/10s"), counted("6/s"),
		logged("1/s"),
	}
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		rapid.Check(t, func(rt *rapid.T) {
			limit := limits[rapid.IntRange(0, len(limits)-2).Draw(rt, "limit")]
			c := newClocked(t, client, limit)
			for range rapid.IntRange(0, 8).Draw(rt, "calls") {
				c.now = c.now.Add(time.Duration(rapid.IntRange(0, 3_000_000).Draw(rt, "wait")) * time.Microsecond)
				n := int64(rapid.IntRange(1, 5).Draw(rt, "permits"))
				if rapid.Bool().Draw(rt, "reserve") {
					c.reserve(n, time.Second)
				} else {
					c.take(n)
				}
			}
			c.now = c.now.Add(time.Duration(rapid.IntRange(0, 500_000).Draw(rt, "then")) * time.Microsecond)
			spec := limit.lua().Spec(false, time.Second)
			text, err := client.Get(t.Context(), c.bucket(limit, "k")).Result()
			if err != nil && err != redis.Nil {
				rt.Fatal(err)
			}
			got, err := spec.Stored(text, c.now.UnixMicro(), limit.lua().Windows(c.now, 2))
			if err != nil {
				rt.Fatal(err)
			}
			peek, err := c.Peek(t.Context(), 1, "k")
			if err != nil {
				rt.Fatal(err)
			}
			if left := int64(math.Floor(max(got.Left, 0) + 1e-6)); left != int64(peek.Remaining) {
				rt.Fatalf("%v: %q is %+v; the script says that %d are left", limit, text, got, peek.Remaining)
			}
			if got.Opens == 0 {
				return
			}
			c.now = time.UnixMicro(got.Opens)
			if peek, err = c.Peek(t.Context(), 1, "k"); err != nil {
				rt.Fatal(err)
			}
			if left := float64(spec.Burst) - got.Used - got.Given; max(left, 0) != float64(peek.Remaining) {
				rt.Fatalf("%v: %q is %+v; when it opens, the script says that %d are left", limit, text, got, peek.Remaining)
			}
		})
	})
	if _, err := limits[0].lua().Spec(false, 0).Stored("no bucket", 0, nil); err == nil {
		t.Error("a text that is no bucket was read")
	}
	if _, err := limits[len(limits)-1].lua().Spec(false, 0).Stored("", 0, nil); err == nil {
		t.Error("a log was read from a text")
	}
}

func TestStoredPause(t *testing.T) {
	now := time.Now()
	limit := bucket("10/s", 20)
	got, err := limit.lua().Spec(false, 0).Stored("r 0 0 0 1 0 0 0 !"+"1 of old", now.UnixMicro(), nil)
	if err != nil || got.PausedUntil != 1 || got.Left != 20 {
		t.Errorf("%+v, %v", got, err)
	}
}
