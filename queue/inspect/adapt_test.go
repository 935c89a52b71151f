package inspect

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/store"
)

// TestAdaptIsLanes: forecasts know the level of an adaptive limit as the scripts do.
func TestAdaptIsLanes(t *testing.T) {
	t.Parallel()
	client, queue := redistest.Any(t).Client(), redistest.Queue(t)
	script := store.NewScript(`return string.format('%.0f', parts_now(headgate .. 'b:x', tonumber(ARGV[2])))`)
	random := rand.New(rand.NewPCG(3, 4))
	const now = int64(1_795_900_000_000_000)
	for range 500 {
		low := random.Int64N(1025)
		a := adapt{low, min(low+random.Int64N(1025), 1025), now - random.Int64N(500_000_000) + 2_000_000, random.Int64N(1025), now - random.Int64N(1_000_000_000)}
		text := fmt.Sprint(a.low, a.high, a.since, a.told, a.at)
		if err := client.Set(t.Context(), store.Key(queue, "adapt:x"), text, 0).Err(); err != nil {
			t.Fatal(err)
		}
		reply, err := script.Run(t.Context(), client, store.ScriptKeys(queue), queue, now)
		part, why := a.part(now)
		if want := fmt.Sprintf("%.0f", 1024*part); err != nil || reply != want {
			t.Errorf("%s: the scripts have %v, %v; forecasts %s", text, reply, err, want)
		}
		if (why == NotLowered) != (part == 1) {
			t.Errorf("%s: %v of the rate is in force, lowered by %q", text, part, why)
		}
	}
}
