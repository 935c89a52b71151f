package throttle

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// gate is a hook that counts a client's round trips, and holds them while it is
// shut.
type gate struct {
	trips atomic.Int64
	mu    sync.RWMutex // held to write while the gate is shut
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.pass()
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		g.pass()
		return next(ctx, cmds)
	}
}

func (g *gate) pass() {
	g.mu.RLock()
	defer g.mu.RUnlock()
	g.trips.Add(1)
}

// TestCluster: what holds with one Redis holds with several.
func TestCluster(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	cluster := redistest.StartCluster(t)
	t.Run("keys of one limit are on all nodes", func(t *testing.T) {
		c := newClocked(t, cluster.Client(), kinds(10)[0])
		for i := range 300 {
			c.take(1, fmt.Sprint(i))
		}
		for _, node := range cluster.Nodes() {
			// Of 300 keys 100 each, and 50 is six sigma away.
			if n := len(node.Client().Keys(t.Context(), "*"+c.prefix+"*").Val()); n < 50 || n > 150 {
				t.Errorf("%s has %d of 300 buckets", node.Addr(), n)
			}
		}
	})
	t.Run("shards are on all nodes", func(t *testing.T) {
		limit := kinds(1000)[0]
		limit.Shards = 32
		c := newClocked(t, cluster.Client(), limit)
		for range 500 {
			c.take(1)
		}
		for _, node := range cluster.Nodes() {
			if n := len(node.Client().Keys(t.Context(), "*"+c.prefix+"*").Val()); n == 0 {
				t.Errorf("%s has none of the 32 parts", node.Addr())
			}
		}
	})
	t.Run("layers are in one slot", func(t *testing.T) {
		c := newClocked(t, cluster.Client(), kinds(1000)...)
		for i := range 20 {
			if d := c.take(1, fmt.Sprint(i)); !d.Allowed {
				t.Fatalf("%+v", d)
			}
		}
		slot := cluster.Slot(c.bucket(c.limits[0], "0"))
		inSlot, err := cluster.Owner(slot).Client().ClusterGetKeysInSlot(t.Context(), slot, 1000).Result()
		// One of the hundreds of keys that the other limits left may be in the slot too.
		ours := slices.DeleteFunc(inSlot, func(key string) bool { return !strings.Contains(key, c.prefix) })
		if want := 20 * len(c.limits); err != nil || len(ours) != want {
			t.Errorf("%d buckets in the slot, %v; want all %d", len(ours), err, want)
		}
	})
	t.Run("concurrent calls", func(t *testing.T) {
		client := cluster.NewClient(&redis.ClusterOptions{})
		defer client.Close()
		concurrentCalls(t, client)
	})
	t.Run("a node is away", func(t *testing.T) { oneNodeAway(t, redistest.StartCluster(t)) })
}

// TestManyKeys: calls of many keys share round trips, and each key gives what it
// has, with one Redis.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr()})
	defer client.Close()
	concurrentCalls(t, client)
}

// TestRing: and so they do with servers that know nothing of each other.
func TestRing(t *testing.T) {
	t.Parallel()
	first, second := redistest.Start(t), redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"first": first.Addr(), "second": second.Addr()}})
	defer ring.Close()
	concurrentCalls(t, ring)
	for _, server := range []*redistest.Server{first, second} {
		if n := server.Client().DBSize(t.Context()).Val(); n == 0 {
			t.Errorf("%s has no bucket", server.Addr())
		}
	}
	c := newClocked(t, ring, kinds(10)...)
	for range 10 {
		if d := c.take(1); !d.Allowed {
			t.Errorf("layers: %+v", d)
		}
	}
	if d := c.take(1); d.Allowed {
		t.Errorf("layers: %+v", d)
	}
}

// concurrentCalls: calls of many keys share round trips, and each key gives
// exactly what it has.
func concurrentCalls(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	const keys, callers, most = 30, 30, 20
	for _, limit := range kinds(most) {
		t.Run(limit.Name, func(t *testing.T) {
			c := newClocked(t, client, limit)
			for i := range 20 {
				c.take(1, fmt.Sprint("before ", i)) // on all nodes, so that the scripts are known
			}
			watch := &gate{}
			client.AddHook(watch)
			watch.mu.Lock()
			open := sync.OnceFunc(watch.mu.Unlock)
			defer open()
			var allowed [keys]atomic.Int64
			var calling sync.WaitGroup
			for i := range keys * callers {
				calling.Go(func() {
					d, err := c.Take(t.Context(), 1, fmt.Sprint(i%keys))
					if err != nil {
						t.Error(err)
					} else if d.Allowed {
						allowed[i%keys].Add(1)
					}
				})
			}
			gathered(t, c.taking, keys*callers)
			open()
			calling.Wait()
			for key := range keys {
				if n := allowed[key].Load(); n != most {
					t.Errorf("key %d gave %d permits; want %d", key, n, most)
				}
			}
			if n := watch.trips.Load(); n > keys*callers/10 {
				t.Errorf("%d calls made %d round trips; want ten calls in each, and more", keys*callers, n)
			}
		})
	}
	t.Run("ended calls", func(t *testing.T) {
		c := newClocked(t, client, inFlightOf(callers, time.Hour))
		var held []*Reservation
		for i := range keys * callers {
			held = append(held, hold(t, c.Limiter, fmt.Sprint(i%keys)))
		}
		var ending sync.WaitGroup
		for _, r := range held {
			ending.Go(func() { release(t, r) })
		}
		ending.Wait()
		for key := range keys {
			if d, err := c.Peek(t.Context(), 1, fmt.Sprint(key)); err != nil || d.Remaining != callers {
				t.Errorf("key %d has %d permits left, %v; want all %d", key, d.Remaining, err, callers)
			}
		}
	})
}

// oneNodeAway: what a dead node does not know does not keep the others from
// answering, also those that share the round trip.
func oneNodeAway(t *testing.T, cluster *redistest.Cluster) {
	t.Helper()
	client := cluster.NewClient(&redis.ClusterOptions{MaxRedirects: 1, DialerRetries: 1, PoolSize: 1000, ReadTimeout: patience})
	defer client.Close()
	const callers, most = 60, 10
	c := newClocked(t, client, kinds(most)[0])
	dead := map[string]bool{}
	for i := range callers {
		key := fmt.Sprint(i)
		c.take(1, key)
		dead[key] = cluster.Owner(cluster.Slot(c.bucket(c.limits[0], key))) == cluster.Nodes()[1]
	}
	cluster.Nodes()[1].Kill()
	watch := &gate{}
	client.AddHook(watch)
	watch.mu.Lock()
	open := sync.OnceFunc(watch.mu.Unlock)
	defer open()
	var calling sync.WaitGroup
	for key, away := range dead {
		calling.Go(func() {
			d, err := c.Take(t.Context(), 1, key)
			if away && (err == nil || d != (Decision{})) {
				t.Errorf("%s, whose node is away: %+v, %v", key, d, err)
			}
			if !away && (err != nil || !d.Allowed || d.Remaining != most-2) {
				t.Errorf("%s, whose node is there: %+v, %v", key, d, err)
			}
		})
	}
	gathered(t, c.taking, callers)
	open()
	calling.Wait()
}

// TestSlotMoves: slots that move between nodes while calls go on cost no permit
// and give none. A call of one limit is redirected and answered; one of several
// limits whose buckets stand on both sides is Redis's TRYAGAIN, and takes nothing.
func TestSlotMoves(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	cluster := redistest.StartCluster(t)
	const callers, most = 16, 400
	layers := kinds(most)[:3]
	for name, limits := range map[string][]Limit{"one limit": layers[:1], "several": layers} {
		t.Run(name, func(t *testing.T) {
			client := cluster.NewClient(&redis.ClusterOptions{})
			defer client.Close()
			c := newClocked(t, client, limits...)
			slot := cluster.Slot(c.bucket(limits[0], "0"))
			var allowed, again, calls atomic.Int64
			var calling sync.WaitGroup
			stop := make(chan struct{})
			stopped := sync.OnceFunc(func() { close(stop) })
			defer stopped()
			for range callers {
				calling.Go(func() {
					for {
						// Every call is a new one, so that the clients meet the slot in
						// each of its states.
						d, err := c.Take(t.Context(), 1, "0")
						switch {
						case err == nil && d.Allowed:
							allowed.Add(1)
						case err != nil && len(limits) > 1 && redis.IsTryAgainError(err):
							again.Add(1)
						case err != nil:
							t.Error(err)
							return
						}
						calls.Add(1)
						select {
						case <-stop:
							return
						case <-time.After(ms):
						}
					}
				})
			}
			// Some calls in each state of the slot, and more than its permits in all.
			some := func() {
				t.Helper()
				before := calls.Load()
				for deadline := time.Now().Add(patience); calls.Load() < before+50 && !t.Failed(); time.Sleep(ms) {
					if time.Now().After(deadline) {
						t.Fatalf("%d calls after %v", calls.Load()-before, patience)
					}
				}
			}
			some()
			for range 4 {
				move := cluster.Move(slot, cluster.Other(slot))
				some()
				move.Keys()
				some()
				move.End()
				some()
			}
			stopped()
			calling.Wait()
			for d := c.take(1, "0"); d.Allowed; d = c.take(1, "0") {
				allowed.Add(1)
			}
			if allowed.Load() != most {
				t.Errorf("%d permits of %d in %d calls, %d of them to be tried again", allowed.Load(), most, calls.Load(), again.Load())
			}
			if calls.Load() < most {
				t.Errorf("only %d calls: the test shows little", calls.Load())
			}
		})
	}
}
