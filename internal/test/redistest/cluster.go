package redistest

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/internal/test/until"
)

const slots = 16384

// Cluster is a Redis Cluster of three primaries, each with a third of the slots. They have replicas
// if [StartReplicatedCluster] started it.
type Cluster struct {
	t        testing.TB
	config   []string
	nodes    []*Server // the primaries at the start, and those that were added
	replicas []*Server // of the first primary, the second and the third; or none
	ids      map[*Server]string
	client   func() *redis.ClusterClient
}

// StartCluster starts a cluster for this test, which stops with it. It takes two seconds, because
// new nodes wait that long before they serve.
func StartCluster(t testing.TB, config ...string) *Cluster {
	t.Helper()
	c := newCluster(t, clusterConfig(config))
	for range primaries {
		c.nodes = append(c.nodes, startOwn(t, c.config...))
	}
	c.form()
	return c
}

const primaries = 3

func clusterConfig(config []string) []string {
	return append([]string{
		"--cluster-enabled", "yes",
		"--cluster-announce-ip", "127.0.0.1",
		// On a busy machine a node can be slow without having failed.
		"--cluster-node-timeout", "60000",
		// A primary whose last slot moves away stays one.
		"--cluster-allow-replica-migration", "no",
	}, config...)
}

func newCluster(t testing.TB, config []string) *Cluster {
	Slow(t)
	c := &Cluster{t: t, config: config, ids: map[*Server]string{}}
	c.client = sync.OnceValue(func() *redis.ClusterClient {
		client := c.NewClient(&redis.ClusterOptions{})
		t.Cleanup(func() { _ = client.Close() })
		return client
	})
	return c
}

// form makes a cluster of the empty nodes.
func (c *Cluster) form() {
	c.t.Helper()
	for i, node := range c.nodes {
		c.ids[node] = c.id(node)
		c.ask(node, "cluster", "set-config-epoch", i+1)
		c.ask(node, "cluster", "addslotsrange", i*slots/primaries, (i+1)*slots/primaries-1)
		c.meet(node, c.nodes[:i])
	}
	c.ready(c.nodes)
	c.agree()
}

func (c *Cluster) id(node *Server) string {
	c.t.Helper()
	id, err := node.Client().ClusterMyID(c.t.Context()).Result()
	if err != nil {
		c.t.Fatalf("redistest: %v", err)
	}
	return id
}

// meet makes a node known to each of the others: through gossip it could take seconds.
func (c *Cluster) meet(node *Server, others []*Server) {
	c.t.Helper()
	for _, other := range others {
		host, port := other.hostPort()
		c.ask(node, "cluster", "meet", host, port)
	}
}

// ready waits until nodes serve all slots.
func (c *Cluster) ready(nodes []*Server) {
	c.t.Helper()
	for _, node := range nodes {
		until.Done(c.t, "redistest: cluster", func() bool {
			said, err := node.Client().ClusterInfo(c.t.Context()).Result()
			return err == nil && strings.Contains(said, "cluster_state:ok") && strings.Contains(said, "cluster_slots_ok:16384") && strings.Contains(said, "cluster_size:3")
		})
	}
}

// Client returns the client of the cluster, always the same one, which is closed with the test.
func (c *Cluster) Client() *redis.ClusterClient { return c.client() }

// NewClient returns a client that the caller must close. It sets the addresses of options.
func (c *Cluster) NewClient(options *redis.ClusterOptions) *redis.ClusterClient {
	options.Addrs = c.addrs()
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClusterClient(options)
}

// Options returns the options of a worker on the cluster.
func (c *Cluster) Options() *redis.UniversalOptions {
	return &redis.UniversalOptions{IsClusterMode: true, Addrs: c.addrs()}
}

func (c *Cluster) addrs() (all []string) {
	for _, node := range c.all() {
		all = append(all, node.Addr())
	}
	return all
}

func (c *Cluster) all() []*Server { return slices.Concat(c.nodes, c.replicas) }

// living returns the nodes that were not killed.
func (c *Cluster) living() []*Server {
	return slices.DeleteFunc(c.all(), func(node *Server) bool {
		conn, err := net.Dial("tcp", node.Addr())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}

// Nodes returns the cluster's servers without replicas.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// StartReplica starts a replica of a node, which is in sync when StartReplica returns.
func (c *Cluster) StartReplica(of *Server) *Server {
	c.t.Helper()
	replica := Start(c.t, c.config...)
	host, port := of.hostPort()
	c.ask(of, "config", "set", "repl-diskless-sync-delay", "0")
	c.ask(replica, "cluster", "meet", host, port)
	until.Done(c.t, "redistest: replica that knows its node", func() bool {
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
	slot, err := c.living()[0].Client().ClusterKeySlot(c.t.Context(), key).Result()
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
	owner := ""
	ranges := c.ranges(c.living()[0])
	for _, r := range ranges {
		if r.Start <= slot && slot <= r.End {
			owner = r.Nodes[0].ID
		}
	}
	for _, r := range ranges {
		for _, node := range c.all() {
			if c.ids[node] == r.Nodes[0].ID && (r.Nodes[0].ID == owner) == owns {
				return node
			}
		}
	}
	c.t.Fatalf("redistest: no node for slot %d", slot)
	return nil
}

// ranges returns ranges of slots as a node knows them. The first node of a range is its primary.
func (c *Cluster) ranges(node *Server) []redis.ClusterSlot {
	c.t.Helper()
	//lint:ignore SA1019 CLUSTER SHARDS does not list the primary first
	ranges, err := node.Client().ClusterSlots(c.t.Context()).Result()
	if err != nil {
		c.t.Fatalf("redistest: %v", err)
	}
	return ranges
}

// agree waits until all nodes have the same view of slots and epochs. Moving a slot twice before
// that would be a conflict, whose loser drops its keys.
func (c *Cluster) agree() {
	c.t.Helper()
	until.Done(c.t, "redistest: agreement of the nodes", func() bool {
		living := c.living()
		first := c.view(living[0])
		return !slices.ContainsFunc(living[1:], func(node *Server) bool { return c.view(node) != first })
	})
}

// view returns what a node knows of each node: its id, its epoch and its slots. That one of these is on its way,
// only its two nodes know.
func (c *Cluster) view(node *Server) string {
	c.t.Helper()
	said, err := node.Client().ClusterNodes(c.t.Context()).Result()
	if err != nil {
		c.t.Fatalf("redistest: %v", err)
	}
	var known []string
	for line := range strings.Lines(said) {
		// id address flags primary pinged ponged epoch state slots...
		words := strings.Fields(line)
		served := slices.DeleteFunc(slices.Clone(words[8:]), func(slot string) bool { return slot[0] == '[' })
		if len(served) > 0 {
			known = append(known, strings.Join(append(served, words[0], words[6]), " "))
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
