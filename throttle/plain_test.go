package throttle

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// TestPlainAnswersAlike: by the short script or the long one, the decisions and
// the states that are left behind are the same, for states of its own kind and
// all others.
func TestPlainAnswersAlike(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		known := 0
		rapid.Check(t, func(rt *rapid.T) {
			limit := Limit{Name: "l", Algorithm: TokenBucket,
				Rate:  Rate{Count: rapid.SampledFrom([]int64{1, 2, 5, 10, 50}).Draw(rt, "count"), Period: rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * ms, time.Second}).Draw(rt, "period")},
				Burst: rapid.Int64Range(1, 20).Draw(rt, "burst"),
			}
			if rapid.Bool().Draw(rt, "leaky") {
				limit.Algorithm, limit.Capacity, limit.Burst = LeakyBucket, limit.Burst, 0
			}
			limits := []Limit{limit}
			if rapid.Bool().Draw(rt, "layers") {
				limits = append(limits, bucket("20/s", 20), leaky("100/s", 40))
			}
			short, long := newClocked(t, client, limits...), newClocked(t, client, limits...)
			long.plain = nil
			both := []*clocked{short, long}
			for range 6 {
				after := rapid.Int64Range(-2e6, 4*limit.Rate.Period.Microseconds()/limit.Rate.Count).Draw(rt, "after")
				other := rapid.IntRange(0, 7).Draw(rt, "other")
				n := rapid.Int64Range(1, limit.Most(false)).Draw(rt, "n")
				times := rapid.IntRange(1, 5).Draw(rt, "times")
				several := rapid.IntRange(0, 1).Draw(rt, "several")
				var answers, states [2]string
				var ttl [2]time.Duration
				for side, c := range both {
					c.now = c.now.Add(time.Duration(after) * time.Microsecond)
					if c.plain != nil {
						c.plain.passing.Store(0)
					}
					switch other { // a state of another form, for the next ones to find
					case 0:
						c.reserve(1, time.Hour, []string{"k1", "b", "c1"}[:len(limits)]...)
					case 1:
						if err := c.Pause(t.Context(), "l", "k0", c.now.Add(100*ms), "x"); err != nil {
							rt.Fatal(err)
						}
					}
					var calls []*call
					for i := range times {
						one, err := c.ask(police, n, 0, []string{fmt.Sprint("k", i*several%3), "b", fmt.Sprint("c", i*several%3)}[:len(limits)])
						if err != nil {
							rt.Fatal(err)
						}
						calls = append(calls, one)
					}
					if err := c.send(t.Context(), modeTake, calls); err != nil {
						rt.Fatal(err)
					}
					if c.plain != nil && c.plain.passing.Load() == 0 {
						known++
					}
					for i, one := range calls {
						answers[side] += fmt.Sprintf("%+v\n", one.decision)
						states[side] += fmt.Sprintln(client.MGet(t.Context(), one.buckets...).Val()...)
						if i == 0 {
							ttl[side] = client.PTTL(t.Context(), one.buckets[0]).Val()
						}
					}
				}
				// The clock of expiry is a real one.
				if answers[0] != answers[1] || states[0] != states[1] || (ttl[0]-ttl[1]).Abs() > 3*time.Second {
					rt.Fatalf("%d × %d of %+v: short\n%s%slong\n%s%s", times, n, limit, answers[0], states[0], answers[1], states[1])
				}
			}
		})
		if known < 100 {
			t.Errorf("the short script knew only %d answers", known)
		}
	})
}
