package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/internal/store"
)

// TestRedisClock: the bounds that replies to TIME prove for the offset between two clocks.
func TestRedisClock(t *testing.T) {
	const ms = time.Millisecond
	// answer is a reply to a request. The times are on the boot clock, and
	// Redis's clock is ahead of it; Redis reads its clock `read` after the request.
	type answer struct {
		sent, came, ahead, read time.Duration
		off                     time.Duration // error of our clock afterwards: at least this much too early
	}
	for name, answers := range map[string][]answer{
		"jitter": {
			{0, 4 * ms, time.Hour, 1 * ms, -3 * ms},
			{500 * ms, 501 * ms, time.Hour, ms / 2, -ms / 2},
			{1000 * ms, 1100 * ms, time.Hour, 99 * ms, -ms / 2}, // it says -1 ms
			{1500 * ms, 1600 * ms, time.Hour, 0, -ms / 2},
		},
		"set back": {
			{0, ms, time.Hour, 0, -ms},
			{500 * ms, 502 * ms, time.Hour - 3*ms, 0, -2 * ms},
			{1000 * ms, 1001 * ms, -time.Hour, 0, -ms},
		},
		"set forward": {
			{0, ms, -time.Hour, 0, -ms},
			{500 * ms, 502 * ms, -time.Hour + 5*ms, 0, -2 * ms},
			{1000 * ms, 1001 * ms, time.Hour, 0, -ms},
		},
		"set forward, and back again": {
			{0, ms, 0, 0, -ms},
			{500 * ms, 501 * ms, time.Hour, 0, -ms},
			{1000 * ms, 1001 * ms, 0, 0, -ms},
		},
		"an answer from before the step comes after one from behind it": {
			{500 * ms, 501 * ms, time.Hour, 0, -ms},
			{700 * ms, 710 * ms, 0, 9 * ms, -ms},
			{600 * ms, 800 * ms, time.Hour, 0, -ms - time.Hour}, // it gives no better bound
		},
		"a clock that loses a little": {
			{0, ms, 0, 0, -ms},
			{9000 * ms, 9003 * ms, -ms, 0, 0},
			{12000 * ms, 12003 * ms, -2 * ms, 0, -3 * ms}, // its bounds rule the first one out
		},
		"a clock that loses less than the bounds tell": {
			{0, 2 * ms, 0, 0, -2 * ms},
			{9000 * ms, 9006 * ms, -ms, 0, -ms},
			{12000 * ms, 12006 * ms, -ms, 0, -ms},     // a new window begins
			{23000 * ms, 23006 * ms, -ms, 0, -6 * ms}, // and another: the first one is over
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &redisClock{}
			for i, a := range answers {
				read := a.sent + a.read + a.ahead
				c.observe((read + 10000*time.Hour).Microseconds(), a.sent, a.came)
				moment := a.came + a.ahead + 10000*time.Hour // what Redis's clock shows now
				if off := a.came - c.boot(moment.Microseconds()); off != a.off {
					t.Errorf("answer %d: a moment is taken for %v later than it is; want %v", i, -off, -a.off)
				}
			}
		})
	}
}

// TestMissesSlowDown: a job asks for another slot at once after a few misses, and slower
// after many; each of them lasts longer, as far as slots may be ahead.
func TestMissesSlowDown(t *testing.T) {
	if first, second, last := slotLasts(0), slotLasts(1), slotLasts(1<<30); first != inHand || second != 2*inHand || last != store.Horizon {
		t.Errorf("slots last %v, %v and in the end %v", first, second, last)
	}
	if first := missPause(freeMisses + 1); first != 2*inHand {
		t.Errorf("the first pause is %v", first)
	}
	if last := missPause(1 << 30); last != maxMiss {
		t.Errorf("the longest pause is %v", last)
	}
}

// TestQueuesShareAClock: a worker asks for Redis's time once for all its queues.
func TestQueuesShareAClock(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), func(c *Config) {
		for i := range 9 {
			c.Queues = append(c.Queues, fmt.Sprint(c.Queues[0], "-", i))
		}
	})
	runWorker(t, r.worker)
	until(t, "ready", func() bool { return r.worker.Ready() == nil })
	if n := r.seen.outcomes("to redis: time"); n >= 2*firstSamples {
		t.Errorf("it asked for the time %d times before it was ready; want %d for all queues", n, firstSamples)
	}
}
