package redistest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const slots = 16384

// Cluster is a Redis Cluster of three primaries, each with a third of the slots.
type Cluster struct {
	t      testing.TB
	nodes  []*Server
	ids    map[*Server]string
	config []string // of each node
	client func() *redis.ClusterClient
}

// StartCluster starts a cluster for this test, which stops with it. It takes two seconds, because
// new nodes wait that long before they serve.
func StartCluster(t testing.TB, config ...string) *Cluster {
	t.Helper()
	const nodes = 3
	c := &Cluster{t: t, ids: map[*Server]string{}}
	config = append([]string{
		"--cluster-enabled", "yes",
		"--cluster-announce-ip", "127.0.0.1",
		// On a busy machine a node can be slow without having failed.
		"--cluster-node-timeout", "60000",
	}, config...)
	c.config = config
	for range nodes {
		c.nodes = append(c.nodes, Start(t, config...))
	}
	for i, node := range c.nodes {
		id, err := node.Client().ClusterMyID(t.Context()).Result()
		if err != nil {
			t.Fatalf("redistest: %v", err)
		}
		c.ids[node] = id
		c.ask(node, "cluster", "set-config-epoch", i+1)
		c.ask(node, "cluster", "addslotsrange", i*slots/nodes, (i+1)*slots/nodes-1)
		// Each node meets each: through gossip it could take seconds.
		for _, other := range c.nodes[:i] {
			host, port := other.hostPort()
			c.ask(node, "cluster", "meet", host, port)
		}
	}
	for _, node := range c.nodes {
		wait(t, "cluster", func() bool {
			said, err := node.Client().ClusterInfo(t.Context()).Result()
			return err == nil && strings.Contains(said, "cluster_state:ok") && strings.Contains(said, "cluster_slots_ok:16384") && strings.Contains(said, "cluster_size:3")
		})
	}
	c.agree()
	c.client = sync.OnceValue(func() *redis.ClusterClient {
		client := c.NewClient(&redis.ClusterOptions{})
		t.Cleanup(func() { _ = client.Close() })
		return client
	})
	return c
}

// Client returns the client of the cluster, always the same one, which is closed with the test.
func (c *Cluster) Client() *redis.ClusterClient { return c.client() }

// NewClient returns a client that the caller must close. It sets the addresses of options.
func (c *Cluster) NewClient(options *redis.ClusterOptions) *redis.ClusterClient {
	for _, node := range c.nodes {
		options.Addrs = append(options.Addrs, node.Addr())
	}
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClusterClient(options)
}

// Nodes returns the cluster's servers.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// StartReplica starts a replica of a node, which is in sync when StartReplica returns.
func (c *Cluster) StartReplica(of *Server) *Server {
	c.t.Helper()
	replica := Start(c.t, c.config...)
	host, port := of.hostPort()
	c.ask(of, "config", "set", "repl-diskless-sync-delay", "0")
	c.ask(replica, "cluster", "meet", host, port)
	wait(c.t, "replica that knows its node", func() bool {
		said, err := replica.Client().ClusterNodes(c.t.Context()).Result()
		return err == nil && strings.Contains(said, c.ids[of])
	})
	c.ask(replica, "cluster", "replicate", c.ids[of])
	of.Sync(replica)
	return replica
}

// Slot returns the slot of a key.
func (c *Cluster) Slot(key string) int {
	c.t.Helper()
	slot, err := c.nodes[0].Client().ClusterKeySlot(c.t.Context(), key).Result()
	if err != nil {
		c.t.Fatalf("redistest: %v", err)
	}
	return int(slot)
}

// Owner returns the node that serves a slot.
func (c *Cluster) Owner(slot int) *Server { return c.find(slot, true) }

// Other returns a node that does not serve the slot.
func (c *Cluster) Other(slot int) *Server { return c.find(slot, false) }

func (c *Cluster) find(slot int, owns bool) *Server {
	c.t.Helper()
	shards, err := c.nodes[0].Client().ClusterShards(c.t.Context()).Result()
	if err != nil {
		c.t.Fatalf("redistest: %v", err)
	}
	for _, shard := range shards {
		holds := slices.ContainsFunc(shard.Slots, func(r redis.SlotRange) bool { return int(r.Start) <= slot && slot <= int(r.End) })
		if holds != owns {
			continue
		}
		for _, node := range c.nodes {
			if c.ids[node] == shard.Nodes[0].ID {
				return node
			}
		}
	}
	c.t.Fatalf("redistest: no node for slot %d", slot)
	return nil
}

// Move is the migration of a slot from one node to another.
type Move struct {
	cluster  *Cluster
	slot     int
	from, to *Server
}

// Move begins the migration of a slot: its owner answers for the keys that it still has, and
// redirects for the others.
func (c *Cluster) Move(slot int, to *Server) *Move {
	c.t.Helper()
	m := &Move{cluster: c, slot: slot, from: c.Owner(slot), to: to}
	c.ask(to, "cluster", "setslot", slot, "importing", c.ids[m.from])
	c.ask(m.from, "cluster", "setslot", slot, "migrating", c.ids[to])
	return m
}

// Keys moves the keys of the slot on its old node, one at a time.
func (m *Move) Keys() {
	m.cluster.t.Helper()
	for m.Key() {
	}
}

// Key moves one of these keys, and returns false if there is none.
func (m *Move) Key() bool {
	t := m.cluster.t
	t.Helper()
	host, port := m.to.hostPort()
	keys, err := m.from.Client().ClusterGetKeysInSlot(t.Context(), m.slot, 1).Result()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	if len(keys) == 0 {
		return false
	}
	m.cluster.ask(m.from, "migrate", host, port, keys[0], 0, 60000)
	return true
}

// End moves the remaining keys and gives the slot to its new node. When it returns, all nodes know
// the new owner.
func (m *Move) End() {
	m.cluster.t.Helper()
	m.Keys()
	// The new owner first, so that the slot always has an owner.
	for _, node := range append([]*Server{m.to, m.from}, m.cluster.nodes...) {
		m.cluster.ask(node, "cluster", "setslot", m.slot, "node", m.cluster.ids[m.to])
	}
	m.cluster.agree()
}

// agree waits until all nodes have the same view of slots and epochs. Moving a slot twice before
// that would be a conflict, whose loser drops its keys.
func (c *Cluster) agree() {
	c.t.Helper()
	wait(c.t, "agreement of the nodes", func() bool {
		first := c.view(c.nodes[0])
		return !slices.ContainsFunc(c.nodes[1:], func(node *Server) bool { return c.view(node) != first })
	})
}

// view returns what a node knows of each node: its id, its epoch and its slots.
func (c *Cluster) view(node *Server) string {
	c.t.Helper()
	said, err := node.Client().ClusterNodes(c.t.Context()).Result()
	if err != nil {
		c.t.Fatalf("redistest: %v", err)
	}
	var known []string
	for line := range strings.Lines(said) {
		// id address flags primary pinged ponged epoch state slots...
		if words := strings.Fields(line); len(words) > 8 {
			known = append(known, strings.Join(append(words[8:], words[0], words[6]), " "))
		}
	}
	slices.Sort(known)
	return strings.Join(known, "\n")
}

func (c *Cluster) ask(node *Server, words ...any) {
	c.t.Helper()
	if err := node.Client().Do(context.Background(), words...).Err(); err != nil {
		c.t.Fatalf("redistest: %s %s: %v", node.Addr(), words, err)
	}
}
