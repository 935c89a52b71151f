package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisproc"
)

// The variable makes tests of [Any] run on a Cluster, and skips all others that use a Redis.
var onCluster = os.Getenv("HEADGATE_TEST_CLUSTER") != ""

// Redis is a Redis for tests that do not depend on how many servers it has.
type Redis struct {
	client  redis.UniversalClient
	options redis.UniversalOptions
	server  *Server // nil: none, or several
}

// Client returns the client of the Redis, always the same one, which is closed with the test.
func (r *Redis) Client() redis.UniversalClient { return r.client }

// Options returns the options of another client, which the caller may change.
func (r *Redis) Options() *redis.UniversalOptions {
	options := r.options
	return &options
}

// Server returns the only server, for tests that call [Start].
func (r *Redis) Server() *Server { return r.server }

// Redis returns the server for tests that do not depend on its being one.
func (s *Server) Redis() *Redis {
	return &Redis{client: s.Client(), options: *s.Options(), server: s}
}

// Of returns an imitation of Redis for tests that do not depend on it: see [Embedded].
func Of(client *redis.Client) *Redis {
	return &Redis{client: client, options: redis.UniversalOptions{Addrs: []string{client.Options().Addr}}}
}

// Any returns the Redis that tests of this binary share: the server of [Shared], or with
// HEADGATE_TEST_CLUSTER a Cluster without replicas.
func Any(t testing.TB) *Redis {
	t.Helper()
	if !onCluster || oneServer[whole(t)] {
		return Shared(t).Redis()
	}
	note(t, true)
	return sharedCluster(t).Redis()
}

// Own is [Any] of a Redis that no other test uses.
func Own(t testing.TB) *Redis {
	t.Helper()
	if !onCluster {
		return Start(t).Redis()
	}
	note(t, true)
	return StartCluster(t).Redis()
}

// Redis returns the Cluster for tests that do not depend on its being one.
func (c *Cluster) Redis() *Redis { return &Redis{client: c.Client(), options: *c.Options()} }

// oneServer is the tests for which [Any] always returns one server.
var oneServer = map[string]bool{}

// OneServer lists tests that need one server, although they or their rig call [Any]. TestMain calls it
// before [Main].
func OneServer(tests ...string) {
	for _, test := range tests {
		oneServer[test] = true
	}
}

// alone skips a test of a single server while tests run on a Cluster.
func alone(t testing.TB) {
	t.Helper()
	if onCluster {
		note(t, false)
		t.Skip("it needs a server of its own: make test runs it")
	}
}

// sharedNodes is the nodes of the cluster of this test binary; nil until it is needed. The caller must
// hold shared.
var sharedNodes []*redisproc.Process

func sharedCluster(t testing.TB) *Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	dir, c := sharedDir(t), newCluster(t, nil)
	first := sharedNodes == nil
	for i := range primaries {
		if first {
			own := filepath.Join(dir, fmt.Sprint("node", i))
			if err := os.Mkdir(own, 0o700); err != nil {
				t.Fatalf("redistest: %v", err)
			}
			sharedNodes = append(sharedNodes, start(t, own, clusterConfig(nil)...))
		}
		c.nodes = append(c.nodes, newServer(t, sharedNodes[i], true))
	}
	if first {
		c.form()
	}
	return c
}

// ran is the tests that used a Redis, and whether that was a Cluster.
var ran = struct {
	sync.Mutex
	onCluster map[string]bool
}{onCluster: map[string]bool{}}

func note(t testing.TB, cluster bool) {
	ran.Lock()
	defer ran.Unlock()
	ran.onCluster[whole(t)] = ran.onCluster[whole(t)] || cluster
}

// whole returns the name of the test that t is, or is a part of.
func whole(t testing.TB) string {
	test, _, _ := strings.Cut(t.Name(), "/")
	return test
}

// report prints how many tests ran on a Cluster, and the names of the others.
func report() {
	ran.Lock()
	defer ran.Unlock()
	var others []string
	for test, cluster := range ran.onCluster {
		if !cluster {
			others = append(others, test)
		}
	}
	slices.Sort(others)
	fmt.Printf("redistest: %d tests ran on a Cluster, %d need a single server: %s\n", len(ran.onCluster)-len(others), len(others), strings.Join(others, " "))
}

// Keys returns the keys that match a pattern, of all nodes.
func Keys(t testing.TB, client redis.UniversalClient, pattern string) (all []string) {
	t.Helper()
	var mu sync.Mutex
	add := func(ctx context.Context, node *redis.Client) error {
		keys, err := node.Keys(ctx, pattern).Result()
		mu.Lock()
		defer mu.Unlock()
		all = append(all, keys...)
		return err
	}
	var err error
	if cluster, ok := client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(t.Context(), add)
	} else {
		err = add(t.Context(), client.(*redis.Client))
	}
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return all
}

// OnCluster reports whether tests run on a Cluster: see [Any].
func OnCluster() bool { return onCluster }
