package redistest_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

func TestReplica(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	if err := primary.Client().Set(t.Context(), "before", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	replica := primary.StartReplica()
	if err := primary.Client().Set(t.Context(), "after", "2", 0).Err(); err != nil {
		t.Fatal(err)
	}
	primary.Sync(replica)
	if got := replica.Client().MGet(t.Context(), "before", "after").Val(); len(got) != 2 || got[0] != "1" || got[1] != "2" {
		t.Errorf("the replica has %v", got)
	}
	if err := replica.Client().Set(t.Context(), "x", "1", 0).Err(); !redis.IsReadOnlyError(err) {
		t.Errorf("a write to a replica: %v", err)
	}

	replica.Promote()
	if err := primary.Client().Set(t.Context(), "late", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := primary.Client().Set(t.Context(), "x", "2", 0).Err(); err != nil {
		t.Fatal(err)
	}
	primary.Follow(replica)
	if err := primary.Client().Get(t.Context(), "late").Err(); err != redis.Nil {
		t.Errorf("the old primary follows and still has what it took alone: %v", err)
	}
	primary.Kill()
	if err := replica.Client().Set(t.Context(), "x", "1", 0).Err(); err != nil {
		t.Errorf("a write to a promoted replica: %v", err)
	}
	if got := replica.Client().Exists(t.Context(), "before", "after", "late").Val(); got != 2 {
		t.Errorf("the promoted replica has %d of the three keys; want those written before", got)
	}
}

func TestFillMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.FillMemory()
	if err := server.Client().Set(t.Context(), "x", "1", 0).Err(); !redis.IsOOMError(err) {
		t.Errorf("a write to a full server: %v", err)
	}
	if err := server.Client().Get(t.Context(), "x").Err(); err != redis.Nil {
		t.Errorf("a read of a full server: %v", err)
	}
}
