package redistest_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := cluster.Client()
	if cluster.Client() != client {
		t.Error("Client made a second client")
	}
	owners := map[*redistest.Server]int{}
	for i := range 100 {
		key := strconv.Itoa(i)
		if err := client.Set(t.Context(), key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		owner := cluster.Owner(cluster.Slot(key))
		if owner == cluster.Other(cluster.Slot(key)) {
			t.Fatalf("%q: owner and other are one", key)
		}
		if n, err := owner.Client().Exists(t.Context(), key).Result(); n != 1 || err != nil {
			t.Fatalf("%q is not where its slot is: %v", key, err)
		}
		owners[owner]++
	}
	if len(owners) != 3 || len(cluster.Nodes()) != 3 {
		t.Errorf("%d nodes have keys; want 3", len(owners))
	}
}

func TestClusterMove(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := cluster.Client()
	const key, other = "{slot}1", "{slot}2"
	slot := cluster.Slot(key)
	from, to := cluster.Owner(slot), cluster.Other(slot)
	incr := func(key string, want int64) {
		t.Helper()
		if n, err := client.Incr(t.Context(), key).Result(); n != want || err != nil {
			t.Fatalf("incr %s = %d, %v; want %d", key, n, err, want)
		}
	}
	incr(key, 1)
	move := cluster.Move(slot, to)
	incr(key, 2)   // the old node has it
	incr(other, 1) // nobody has it: the new node makes it
	if err := from.Client().Incr(t.Context(), other).Err(); !redis.HasErrorPrefix(err, "ASK ") {
		t.Errorf("the old node of an open slot said %v", err)
	}
	move.Keys()
	incr(key, 3) // on the new node, as the old one says
	move.End()
	incr(key, 4)
	incr(other, 2)
	if err := from.Client().Incr(t.Context(), key).Err(); !redis.HasErrorPrefix(err, "MOVED ") {
		t.Errorf("the old node of a moved slot said %v", err)
	}
	if cluster.Owner(slot) != to {
		t.Error("the slot did not move")
	}
}

// TestClusterFailover: replicas have what was written, and take the place of a primary that died.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartReplicatedCluster(t)
	client := cluster.NewClient(&redis.ClusterOptions{ClusterStateReloadInterval: 100 * time.Millisecond}) // by default a minute
	defer client.Close()
	for i := range 100 {
		if err := client.Set(t.Context(), strconv.Itoa(i), "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range cluster.Nodes() {
		node.Sync(cluster.Replica(node))
		if mine, its := node.Client().DBSize(t.Context()).Val(), cluster.Replica(node).Client().DBSize(t.Context()).Val(); mine == 0 || mine != its {
			t.Errorf("a primary has %d keys, its replica %d", mine, its)
		}
	}
	slot := cluster.Slot("1")
	dead := cluster.Owner(slot)
	began := time.Now()
	dead.Kill()
	promoted := cluster.WaitFailover(dead)
	if promoted != cluster.Replica(dead) || cluster.Owner(slot) != promoted || cluster.Other(slot) == promoted {
		t.Error("the slot of a dead primary is not its replica's")
	}
	taken := time.Since(began)
	for client.Get(t.Context(), "1").Err() != nil && t.Context().Err() == nil { // until the client knows
	}
	t.Logf("the replica took over within %v, and the client knew within %v", taken, time.Since(began))
	for i := range 100 {
		if text, err := client.Get(t.Context(), strconv.Itoa(i)).Result(); text != "x" || err != nil {
			t.Errorf("%d is %q after the failover, %v", i, text, err)
		}
	}
}

// TestClusterAdd: a slot moves to a node that was added, which has no other.
func TestClusterAdd(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := cluster.Client()
	if err := client.Set(t.Context(), "key", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	added, slot := cluster.Add(), cluster.Slot("key")
	if len(cluster.Nodes()) != 4 || cluster.Owner(slot) == added || cluster.Other(slot) == added {
		t.Error("a node that was added has slots")
	}
	cluster.Move(slot, added).End()
	if cluster.Owner(slot) != added {
		t.Error("the slot did not move")
	}
	if text, err := client.Get(t.Context(), "key").Result(); text != "x" || err != nil {
		t.Errorf("the key is %q, %v", text, err)
	}
	if n, err := added.Client().DBSize(t.Context()).Result(); n != 1 || err != nil {
		t.Errorf("the node that was added has %d keys, %v", n, err)
	}
}
