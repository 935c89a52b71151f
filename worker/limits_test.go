package worker

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/limits"
)

// TestOldLimitsReplaceNoNewOnes: limits that are put in effect again, however often, do not replace those of a file
// that is read meanwhile.
func TestOldLimitsReplaceNoNewOnes(t *testing.T) {
	t.Parallel()
	var published limits.Set
	file := fileLimits{publish: func(_ context.Context, set limits.Set, _ bool) error {
		time.Sleep(2 * time.Millisecond) // those who have waited for a mutex for a millisecond get it in turn
		published = set
		return nil
	}}
	for version := int64(1); version <= 20; version++ {
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { _ = file.again(t.Context()) })
		}
		all.Go(func() {
			_ = file.put(t.Context(), limits.Set{Queues: map[string]limits.Queue{"q": {MaxQueue: version}}})
		})
		all.Go(func() { _ = file.again(t.Context()) }) // begins first
		all.Wait()
		if got := published.Queues["q"].MaxQueue; got != version {
			t.Fatalf("after version %d was put in effect, the limits are those of version %d", version, got)
		}
	}
}
