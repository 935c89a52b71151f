package redistest

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/until"
)

// StartReplicatedCluster is [StartCluster] with a replica for each primary, which is in sync when it
// returns. A primary that was away for two seconds has failed, and its replica takes its place.
func StartReplicatedCluster(t testing.TB, config ...string) *Cluster {
	t.Helper()
	c := newCluster(t, clusterConfig(append([]string{
		"--cluster-node-timeout", "2000",
		"--cluster-replica-validity-factor", "0", // a replica always tries
		"--repl-diskless-sync-delay", "0", // by default, the primary waits five seconds for a second replica
	}, config...)))
	for range primaries {
		c.nodes = append(c.nodes, startOwn(t, c.config...))
	}
	c.form()
	for _, primary := range c.nodes {
		replica := c.join()
		c.replicas = append(c.replicas, replica)
		c.ask(replica, "cluster", "replicate", c.ids[primary])
	}
	for i, primary := range c.nodes {
		until.Done(t, "redistest: replica that the cluster knows", func() bool {
			return !slices.ContainsFunc(c.all(), func(node *Server) bool { return len(c.rangeOf(node, primary).Nodes) != 2 })
		})
		primary.Sync(c.replicas[i])
	}
	c.ready(c.all())
	return c
}

// Replica returns the replica of one of the first three primaries.
func (c *Cluster) Replica(primary *Server) *Server { return c.replicas[slices.Index(c.nodes, primary)] }

// WaitFailover waits until the replica of a killed primary serves its slots, as all nodes know, and
// returns the replica.
func (c *Cluster) WaitFailover(primary *Server) *Server {
	c.t.Helper()
	replica := c.Replica(primary)
	until.Done(c.t, "redistest: failover", func() bool {
		return !slices.ContainsFunc(c.living(), func(node *Server) bool {
			return len(c.rangeOf(node, primary).Nodes) > 0 || len(c.rangeOf(node, replica).Nodes) == 0
		})
	})
	return replica
}

// rangeOf returns the first slots that a primary serves, as a node knows; zero if it serves none.
func (c *Cluster) rangeOf(node, primary *Server) redis.ClusterSlot {
	for _, r := range c.ranges(node) {
		if r.Nodes[0].ID == c.ids[primary] {
			return r
		}
	}
	return redis.ClusterSlot{}
}

// Add adds a primary without slots, to which [Cluster.Move] can move some.
func (c *Cluster) Add() *Server {
	c.t.Helper()
	added := c.join()
	c.ready([]*Server{added})
	c.nodes = append(c.nodes, added)
	return added
}

// join starts a node that knows all others, and is known to them.
func (c *Cluster) join() *Server {
	c.t.Helper()
	added, others := startOwn(c.t, c.config...), c.living()
	c.ids[added] = c.id(added)
	c.meet(added, others)
	until.Done(c.t, "redistest: node that the cluster knows", func() bool {
		return !slices.ContainsFunc(append(others, added), func(node *Server) bool {
			known, err := node.Client().ClusterNodes(c.t.Context()).Result()
			return err != nil || !knowsAll(known, len(others)+1)
		})
	})
	return added
}

// knowsAll reports whether a reply to CLUSTER NODES has n nodes that did not fail, and each of them has
// answered.
func knowsAll(reply string, n int) bool {
	known := 0
	for line := range strings.Lines(reply) {
		// id address flags primary pinged ponged epoch state slots...
		words := strings.Fields(line)
		if strings.Contains(words[2], "fail") {
			continue
		}
		if strings.Contains(words[2], "handshake") || words[7] != "connected" {
			return false
		}
		known++
	}
	return known == n
}
