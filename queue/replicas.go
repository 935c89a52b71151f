package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/queue/internal/store"
)

// maxAck is how long one request waits for a replica. A request that was not acknowledged is repeated
// like one without an answer.
const maxAck = time.Second

// replicas sends requests whose writes a replica must have: see [limits.Replicated].
//
// WAIT is about the writes before it on its own connection, so it is sent in one pipeline with the
// script, to one server. If a request is repeated, its script finds what it wrote before and writes
// nothing, and WAIT still counts: Redis takes the end of its log at the latest command of the
// connection, whatever that command was.
type replicas struct {
	redis redis.UniversalClient

	// A connection is taken while its WAIT waits. At most half of them may be, so that the others
	// can use the rest while no replica answers.
	places chan struct{}
}

func newReplicas(client redis.UniversalClient) replicas {
	connections := 0
	switch client := client.(type) {
	case *redis.Client:
		connections = client.Options().PoolSize
	case *redis.ClusterClient:
		connections = client.Options().PoolSize
	}
	return replicas{client, make(chan struct{}, max(connections/2, 1))}
}

// run runs a script that writes to a queue, and waits until a replica has what it wrote. Beside an
// [ErrNotReplicated], the reply is that of the script.
func (r replicas) run(ctx context.Context, script *redisscript.Script, queue string, args ...any) (any, error) {
	keys := store.ScriptKeys(queue)
	primary, err := primaryOf(ctx, r.redis, keys[0])
	if err == nil {
		err = r.enter(ctx)
	}
	if err != nil {
		return nil, &unsentError{err}
	}
	defer func() { <-r.places }()
	timeout := ackTimeout(ctx, primary)
	wait := redis.NewIntCmd(ctx, "wait", 1, timeout.Milliseconds())
	reply, err := script.RunThen(ctx, primary, wait, keys, args...)
	if cluster, ok := r.redis.(*redis.ClusterClient); ok && err != nil {
		cluster.ReloadState(ctx) // this is a client of one node, which follows no MOVED
	}
	if err != nil {
		return nil, err
	}
	switch n, err := wait.Result(); {
	case err != nil:
		return reply, fmt.Errorf("%w: %v", ErrNotReplicated, err) // not wrapped: it says nothing of the script
	case n == 0:
		return reply, fmt.Errorf("%w within %v", ErrNotReplicated, timeout)
	}
	return reply, nil
}

// enter takes one of the places.
func (r replicas) enter(ctx context.Context) error {
	timer := time.NewTimer(maxAck)
	defer timer.Stop()
	select {
	case r.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("too many requests wait for a replica: %w", redis.ErrPoolTimeout)
	}
}

// ackTimeout returns the timeout of a WAIT: at least a millisecond, because 0 means forever, and at most
// half of the time that the client waits for replies and of what ctx has left. If Redis did not know
// the script, WAIT was in vain, and both are sent again.
func ackTimeout(ctx context.Context, primary *redis.Client) time.Duration {
	timeout := maxAck
	if read := primary.Options().ReadTimeout; read > 0 {
		timeout = min(timeout, read/2)
	}
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end)/2)
	}
	return max(timeout, time.Millisecond).Truncate(time.Millisecond)
}

// primaryOf returns a client of the server that has a key.
func primaryOf(ctx context.Context, client redis.UniversalClient, key string) (*redis.Client, error) {
	switch client := client.(type) {
	case *redis.Client:
		return client, nil
	case *redis.ClusterClient:
		return client.MasterForKey(ctx, key)
	}
	return nil, fmt.Errorf("a queue with durability replicated needs a *redis.Client or a *redis.ClusterClient, not a %T", client)
}
