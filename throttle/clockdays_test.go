package throttle

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestClockDaysAway: if the clock of a process is days away from Redis's, a calendar limit
// admits no more than it would with the right clock.
func TestClockDaysAway(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		right := time.Now()
		inBubble(t, client, func(b *bubble) {
			for _, away := range []int{-400, -10, -3, -2, -1, 0, 1, 2, 10, 400} {
				time.Sleep(time.Until(right.AddDate(0, 0, away)))
				c := newClocked(t, b.client, window("2/day", time.UTC))
				c.Limiter.now = nil // by the clock of Redis
				admitted := 0
				for range 5 {
					if d, err := c.Take(t.Context(), 1, "user"); err == nil && d.Allowed {
						admitted++
					}
				}
				if near := away >= -1 && away <= 1; admitted > 2 || near && admitted != 2 {
					t.Errorf("%d days away: %d calls of 2 a day were admitted", away, admitted)
				}
			}
		})
	})
}
