package throttle

import (
	"testing"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
)

// driftScript walks one bucket through many steps of a clock of its own, using it
// as take.lua does: opened, asked, taken from and written, anew every 100 steps.
//
//	KEYS[1] the bucket
//	ARGV    steps, now, seed, longest step in µs, within in µs, cost of the first
//	        step, and the six words of the limit
//	Returns now, seed, the permits given, and the moment of the next one
var driftScript = limitlua.NewScript(`
local steps, now, seed = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local longest, within, n = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local limit, given = limit_read(7), 0
for first = 1, steps, 100 do
  local b = limit_open(limit, KEYS[1], now)
  for _ = 1, 100 do
    local t = limit_earliest(limit, b, now, now, n)
    if t - now <= within then
      limit_commit(limit, b, now, t, n)
      given = given + n
    end
    n = 1
    seed = seed * 16807 % 2147483647
    now = now + seed % longest
  end
  limit_save(b, now)
end
-- However long it takes until the next call of this script, the bucket is there.
redis.call('PERSIST', KEYS[1])
return {now, seed, given, limit_earliest(limit, limit_open(limit, KEYS[1], now), now, now, 1)}
`)

// TestDrift: after ten million steps (fewer, unless the long tests run) at rates that
// are no whole number of µs the bucket is where arithmetic says, to the µs, and not
// only to the permit. Steps last from 0 to 1.8 intervals, 0.9 on average, so the
// limit always binds and what it gave must be all that there was.
func TestDrift(t *testing.T) {
	redistest.Slow(t)
	steps := 500_000
	if testlong.On() {
		steps = 10_000_000
	}
	const (
		perCall = 20_000 // some 10 ms of Redis
		burst   = 50     // ever waiting for the next permit, ten steps never fill it
	)
	for name, limit := range map[string]Limit{
		"token bucket, 7/s":    {Name: "tb", Algorithm: TokenBucket, Rate: PerSecond(7), Burst: burst},
		"token bucket, 9973/s": {Name: "tb", Algorithm: TokenBucket, Rate: PerSecond(9973), Burst: burst},
		"leaky bucket, 7/s":    {Name: "lb", Algorithm: LeakyBucket, Rate: PerSecond(7)},
		"leaky bucket, 9973/s": {Name: "lb", Algorithm: LeakyBucket, Rate: PerSecond(9973)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // with the other three, each on a Redis of its own
			client := redistest.Start(t).Client()
			c := newClocked(t, client, limit)
			start := c.now.UnixMicro()
			interval := 1_000_000 / limit.Rate.Count
			// A full bucket at first, or a queue that never runs empty: no time is idle.
			within, first, free := int64(0), int64(burst), int64(burst)-1
			if limit.Algorithm == LeakyBucket {
				within, first, free = 1000*interval, 100, 0
			}
			now, seed, given := start, int64(1), int64(0)
			for step := 0; step < steps; step += perCall {
				args := append([]any{perCall, now, seed, 9 * interval / 5, within, first}, c.specs[shape]...)
				reply, err := driftScript.Run(t.Context(), client, []string{c.bucket(limit, "k")}, args...)
				if err != nil {
					t.Fatal(err)
				}
				answer := reply.([]any)
				now, seed, first = answer[0].(int64), answer[1].(int64), 1
				given += answer[2].(int64)
				// The permit after `given` others is due when all but the free ones of
				// them have drained: rounded up to the µs, in integers far below 2^63.
				due := start + ((given-free)*1_000_000+limit.Rate.Count-1)/limit.Rate.Count
				if next := answer[3].(int64); next != max(due, now) {
					t.Fatalf("after %d steps and %d permits the next one is due at %d µs, exactly at %d: drifted by %.6f permits",
						step+perCall, given, next-start, max(due, now)-start, float64(next-max(due, now))*float64(limit.Rate.Count)/1e6)
				}
			}
			if fair := (now - start) / interval; given < fair*99/100 {
				t.Fatalf("%d permits given of about %d: the limit did not bind", given, fair)
			}
		})
	}
}
