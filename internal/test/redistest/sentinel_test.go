package redistest_test

import (
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
)

func TestSentinel(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := primary.StartReplica()
	sentinel := primary.StartSentinel(replica)
	if at := sentinel.Primary(); at != primary.Addr() {
		t.Errorf("the primary is said to be at %s; want %s", at, primary.Addr())
	}
	primary.Kill()
	sentinel.WaitPrimary(replica)
	if err := replica.Client().Set(t.Context(), "x", "1", 0).Err(); err != nil {
		t.Errorf("a write to the new primary: %v", err)
	}
}
