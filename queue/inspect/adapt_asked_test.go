package inspect

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// TestLoweredSinceAReading: a limit that was lowered after a reading that others share is lowered, though its moment is
// ahead of that of the reading.
func TestLoweredSinceAReading(t *testing.T) {
	now := time.Now()
	asked := now.Add(3 * time.Second)
	text := fmt.Sprint("1024 1024 0 256 ", asked.Add(-time.Second).UnixMicro())
	f := &forecast{
		queue: "q", now: now, asked: asked, rules: limits.Queue{Limits: []limits.Limit{{Name: "x", Adaptive: true}}},
		buckets: []string{store.Key("q", "b:x:")}, beside: map[string]string{store.Key("q", "adapt:x:"): text},
	}
	if part, why := f.lowered(0, &lane{buckets: []int{0}}); part != 0.25 || why != LoweredByQuota {
		t.Errorf("%v of its rate, %q; want 0.25, %q", part, why, LoweredByQuota)
	}
}
