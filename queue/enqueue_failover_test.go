package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/redistest"
)

// TestClientRefusesEvictingRedis: a Redis that evicts keys would lose accepted jobs.
func TestClientRefusesEvictingRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
	client := NewClient(server.Client())
	job := Job{Kind: "call", Queue: "q", Tenant: "a"}
	refused := func(what string) {
		t.Helper()
		_, err := client.Enqueue(t.Context(), job)
		if !errors.Is(err, ErrEvicts) || errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "allkeys-lru") || !strings.Contains(err.Error(), "set maxmemory-policy noeviction") {
			t.Errorf("%s: Enqueue = %v; want an error with the remedy", what, err)
		}
	}
	policy := func(policy string) {
		t.Helper()
		if err := server.Client().ConfigSet(t.Context(), "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
	}
	refused("at the first job")
	if n := server.Client().DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys were written", n)
	}
	policy("noeviction")
	if _, err := client.Enqueue(t.Context(), job); err != nil {
		t.Fatalf("once it is mended: %v", err)
	}
	before := commandStats(t, server.Client()).commands
	for range 10 {
		if _, err := client.Enqueue(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	if each := (commandStats(t, server.Client()).commands - before) / 10; each > 15 {
		t.Errorf("%.1f commands a job; want no look at the settings for each", each)
	}
	policy("allkeys-lru")
	client.fit.nodes = nil // as if some time had passed
	refused("later")

	// If the policy cannot be read, the client goes on.
	if err := server.Client().Do(t.Context(), "acl", "setuser", "producer", "on", ">p", "~*", "+@all", "-info", "-config").Err(); err != nil {
		t.Fatal(err)
	}
	blind := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "producer", Password: "p"})
	defer blind.Close()
	if _, err := NewClient(blind).Enqueue(t.Context(), job); err != nil {
		t.Errorf("where INFO and CONFIG are not allowed: %v", err)
	}
}

// redisSaid is an error reply of Redis.
type redisSaid string

func (s redisSaid) Error() string { return string(s) }
func (redisSaid) RedisError()     {}

// TestEnqueueOutlastsAFailover: after temporary errors, and while nothing listens, the
// client retries until the context is done.
func TestEnqueueOutlastsAFailover(t *testing.T) {
	t.Parallel()
	refusedDial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connect: connection refused")}
	for _, answer := range []error{
		redisSaid("LOADING Redis is loading the dataset in memory"),
		redisSaid("CLUSTERDOWN The cluster is down"),
		redisSaid("READONLY You can't write against a read only replica."),
		redisSaid("TRYAGAIN Multiple keys request during rehashing of slot"),
		redisSaid("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
		redisSaid("NOREPLICAS Not enough good replicas to write."),
		redisSaid("BUSY Redis is busy running a script."),
		redisSaid("ERR Script attempted to access a non local key in a cluster node script"),
		refusedDial,
		io.EOF,
	} {
		t.Run(answer.Error(), func(t *testing.T) {
			t.Parallel()
			server, queue := redistest.Any(t), redistest.Queue(t)
			ids := map[any]bool{}
			var h *tries
			client, h := producer(t, server, func(try int, send func() error) error {
				args := h.last.Args()
				ids[fmt.Sprint(args[5:])] = true
				if try <= 4 {
					return answer
				}
				return send()
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			receipt, err := client.Enqueue(ctx, Job{Kind: "call", Queue: queue, Tenant: "a"})
			if err != nil || h.n != 5 && h.n != 6 { // once more if Redis did not have the script
				t.Fatalf("after %d tries: %+v, %v", h.n, receipt, err)
			}
		})
	}
}

// TestEnqueueOnARedisThatFailsOver tests the same with real servers.
func TestEnqueueOnARedisThatFailsOver(t *testing.T) {
	t.Parallel()
	within := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		return ctx
	}
	job := Job{Kind: "call", Queue: "q", Tenant: "a"}
	t.Run("a replica that becomes the primary", func(t *testing.T) {
		t.Parallel()
		primary := redistest.Start(t)
		replica := primary.StartReplica()
		client, h := producer(t, replica.Redis(), func(try int, send func() error) error {
			if try == 4 {
				replica.Promote()
			}
			return send()
		})
		// The list of queues is written first, and its write would be rejected.
		client.registered["q"] = true
		if _, err := client.Enqueue(within(t), job); err != nil || h.n < 4 {
			t.Errorf("after %d tries: %v", h.n, err)
		}
	})
	t.Run("a replica that becomes the primary, at the first job", func(t *testing.T) {
		t.Parallel()
		primary := redistest.Start(t)
		replica := primary.StartReplica()
		client := NewClient(replica.Client())
		ended := make(chan error, 1)
		go func() {
			_, err := client.Enqueue(within(t), job)
			ended <- err
		}()
		until(t, "the client was refused often", func() bool {
			stats, err := replica.Client().InfoMap(t.Context(), "errorstats").Result()
			var n int
			_, _ = fmt.Sscanf(stats["Errorstats"]["errorstat_READONLY"], "count=%d", &n) // 0 when there was none
			return err != nil || n > 8
		})
		select {
		case err := <-ended:
			t.Fatalf("gave up: %v", err)
		default:
		}
		replica.Promote()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("a server that is restarted", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		client, h := producer(t, server.Redis(), func(try int, send func() error) error {
			if try == 1 {
				server.Kill()
			} else if try == 4 {
				server.Restart()
			}
			return send()
		})
		client.registered["q"] = true
		client.fit.nodes = map[string]*nodeFitness{"": {at: time.Now().Add(time.Hour), left: math.MaxInt64}}
		if _, err := client.Enqueue(within(t), job); err != nil || h.n < 4 {
			t.Errorf("after %d tries: %v", h.n, err)
		}
	})
	t.Run("a cluster without slots", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, "--cluster-enabled", "yes")
		client, h := producer(t, server.Redis(), func(try int, send func() error) error {
			if try == 4 {
				if err := server.Client().ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
					t.Error(err)
				}
				until(t, "the cluster is up", func() bool {
					return strings.Contains(server.Client().ClusterInfo(t.Context()).Val(), "cluster_state:ok")
				})
			}
			return send()
		})
		client.registered["q"] = true
		client.routes.layouts["q"] = partition.Layout{Queue: "q", N: 1}
		client.routes.in("q").Read = func(context.Context) (listing, error) {
			return listing{layout: partition.Layout{Queue: "q", N: 1}}, nil
		}
		if _, err := client.Enqueue(within(t), job); err != nil || h.n < 4 {
			t.Errorf("after %d tries: %v", h.n, err)
		}
	})
}

// TestEnqueueSaysWhatIsCertain: the error says whether the job may have been enqueued,
// whatever the last try returned.
func TestEnqueueSaysWhatIsCertain(t *testing.T) {
	t.Parallel()
	server := redistest.Any(t)
	loading, full := redisSaid("LOADING Redis is loading the dataset in memory"), redisSaid("OOM command not allowed when used memory > 'maxmemory'.")
	tests := map[string]struct {
		first, then error
		unknown     bool
	}{
		"Redis loads":                      {loading, loading, false},
		"memory is full":                   {full, full, false},
		"the connection breaks":            {io.EOF, io.EOF, true},
		"it breaks, and then Redis loads":  {io.EOF, loading, true},
		"it breaks, and memory is full":    {io.EOF, full, true},
		"no connection was free":           {redis.ErrPoolTimeout, redis.ErrPoolTimeout, false},
		"the caller closed its connection": {redis.ErrClosed, redis.ErrClosed, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, _ := producer(t, server, func(try int, send func() error) error {
				if try == 1 {
					return test.first
				}
				return test.then
			})
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			_, err := client.Enqueue(ctx, Job{Kind: "call", Queue: redistest.Queue(t), Tenant: "a"})
			if err == nil || errors.Is(err, ErrUnknown) != test.unknown || errors.Is(err, ErrRedisFull) != (test.then == full) {
				t.Errorf("Enqueue = %v; want ErrUnknown: %v", err, test.unknown)
			}
			if certain := err != nil && strings.Contains(err.Error(), "certainly not enqueued"); certain == test.unknown {
				t.Errorf("Enqueue = %v", err)
			}
		})
	}
}

// TestEnqueueGivesUp: without a deadline the client retries for a bounded time, which is for
// the whole call.
func TestEnqueueGivesUp(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	client, h := producer(t, redistest.Any(t), func(int, func() error) error { return redisSaid("LOADING") })
	jobs := make([]Job, 5*maxBatch)
	for i := range jobs {
		jobs[i] = Job{Kind: "call", Queue: redistest.Queue(t), Tenant: "a"}
		jobs[i].Queue = jobs[0].Queue
	}
	began := time.Now()
	for _, result := range client.EnqueueMany(t.Context(), jobs) {
		if result.Err == nil || errors.Is(result.Err, ErrUnknown) {
			t.Fatalf("%+v", result)
		}
	}
	if took := time.Since(began); took < patience-maxRetryPause || h.n < 8 {
		t.Errorf("gave up after %v and %d tries", took, h.n)
	}
	if h.n > 30 {
		t.Errorf("%d tries; the batches behind the first one have no patience of their own", h.n)
	}
}
