package store

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestTime: in a cluster, the node that has a key is asked for the time, and no other.
func TestTime(t *testing.T) {
	redistest.Slow(t)
	cluster := redistest.StartCluster(t)
	client := cluster.Client()
	away := cluster.Nodes()[0]
	key := Key("q", "waiting")
	for i := 0; cluster.Owner(cluster.Slot(key)) == away; i++ {
		key = Key("q"+string(rune('a'+i)), "waiting")
	}
	away.Pause()
	defer away.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 20 {
		if at, err := Time(ctx, client, key); err != nil || time.Since(at).Abs() > time.Minute {
			t.Fatalf("%v, %v", at, err)
		}
		pipe := client.Pipeline()
		clock := AddTime(ctx, pipe, client, key)
		if err := Execute(ctx, pipe); err != nil || time.Since(clock.Val()).Abs() > time.Minute {
			t.Fatalf("in a pipeline: %v, %v", clock.Val(), err)
		}
	}
}
