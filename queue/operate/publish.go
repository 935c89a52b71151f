package operate

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// ErrPartly is the cause of an error of [Publish] while a node of a Redis Cluster does not answer: what it has
// keeps the limits that are in force there, and the rest has the new ones.
var ErrPartly = errors.New("published in part, because a node does not answer; publish again when it does")

// Publish puts limits in force for all workers and clients of a Redis, at once for each
// queue. The used permits of their buckets are kept. Overrides stay, and are applied to
// the new limits. An override that does not fit its limit any more is not in force until
// it fits again: see [inspect.Overrides]. Queues that limits does not contain keep
// theirs. Publish checks the limits first: after an error of [limits.Set.Validate]
// nothing has changed. [ErrPartly] says that the rest has to follow. The audit names the
// program, its host and its process.
func Publish(ctx context.Context, client redis.UniversalClient, limits limits.Set) error {
	return PublishBy(ctx, client, limits, Operator{})
}

// PublishBy is [Publish] for an operator, or with a reason such as the name of a file. An
// empty Actor stands for this program.
func PublishBy(ctx context.Context, client redis.UniversalClient, limits limits.Set, by Operator) error {
	return publish(ctx, client, limits, by, false)
}

// Republish is [PublishBy] for limits that were in force and are gone from Redis, after a flush or a
// failover to an empty one. What was used of them is lost with them, so they start empty: no tenant
// gets a second burst, or the rest of a day's quota twice. Queues whose limits are still there keep
// those, which somebody else may have published.
func Republish(ctx context.Context, client redis.UniversalClient, limits limits.Set, by Operator) error {
	return publish(ctx, client, limits, by, true)
}

func publish(ctx context.Context, client redis.UniversalClient, limits limits.Set, by Operator, lost bool) error {
	if err := limits.Validate(); err != nil {
		return err
	}
	by.Actor = cmp.Or(by.Actor, program())
	if by.Reason != "" {
		if err := by.Check(); err != nil {
			return err
		}
	}
	known, err := client.HGetAll(ctx, store.RoutesKey).Result()
	if err != nil {
		return fmt.Errorf("read the queues of kinds: %w", err)
	}
	routes, away := map[string]string{}, error(nil)
	published := limits
	published.Queues = maps.Clone(limits.Queues)
	for _, name := range slices.Sorted(maps.Keys(limits.Queues)) {
		q := limits.Queues[name]
		if lost && !gone(ctx, client, layoutOf(limits, name)) {
			delete(published.Queues, name)
			for _, kind := range q.Kinds {
				if len(known) == 0 { // its routes are gone, too
					routes[kind] = name
				}
			}
			continue
		}
		for _, kind := range q.Kinds {
			routes[kind] = name
		}
		var err error
		for range publishTries {
			err = publishQueue(ctx, client, name, limits, by, lost)
			if _, meanwhile := errors.AsType[*meanwhileError](err); !meanwhile {
				break
			}
		}
		// Kinds come after all limits of their queue, so one with kinds has limits where it does not answer, too.
		of, ok := errors.AsType[*inspect.AwayError](err)
		if ok && slices.Contains(slices.Collect(maps.Values(known)), of.Queue) {
			away = cmp.Or(away, err)
		} else if err != nil {
			return fmt.Errorf("publish the limits of queue %q: %w", name, err)
		}
	}
	if away != nil {
		return fmt.Errorf("%w: %w", ErrPartly, away)
	}
	if err := publishRoutes(ctx, client, known, routes, published); err != nil {
		return fmt.Errorf("publish the queues of kinds: %w", err)
	}
	return nil
}

// program returns this program as the actor of a change: "worker on host1, process 4711".
func program() string {
	name := filepath.Base(os.Args[0])
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	return check.Printable(fmt.Sprintf("%s on %s, process %d", name, host, os.Getpid()), 256)
}

// publishRoutes sets the queues of kinds, and removes kinds that the published queues no longer
// list.
func publishRoutes(ctx context.Context, client redis.UniversalClient, known, routes map[string]string, set limits.Set) error {
	pipe := client.Pipeline()
	for kind, queue := range known {
		if _, published := set.Queues[queue]; published && routes[kind] == "" {
			pipe.HDel(ctx, store.RoutesKey, kind)
		}
	}
	for kind, queue := range routes {
		if known[kind] != queue {
			pipe.HSet(ctx, store.RoutesKey, kind, queue)
		}
	}
	return store.Execute(ctx, pipe)
}

// publishTries is how often limits are published whose queue gets other partitions meanwhile.
const publishTries = 5

// publishQueue publishes the limits of a queue to all its partitions. The first one comes last: clients
// find the others in it, and no job may reach a partition without limits. If some partitions do not answer,
// the others get theirs, and the error is an [inspect.AwayError].
func publishQueue(ctx context.Context, client redis.UniversalClient, queue string, limits limits.Set, by Operator, lost bool) error {
	layout := layoutOf(limits, queue)
	if err := arrange(ctx, client, &layout, limits); err != nil {
		return err
	}
	fields, err := stored(limits, layout)
	if err != nil {
		return err
	}
	settled := layout
	settled.From = nil
	after, err := stored(limits, settled)
	if err != nil {
		return err
	}
	first := ""
	if layout.From != nil {
		if first, err = client.HGet(ctx, store.Key(queue, "limits"), store.EpochField).Result(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	names, away := layout.Names(), 0
	for i, name := range slices.Backward(names) {
		newEpoch := func(now time.Time) string {
			if first != "" && i >= layout.From.N { // nothing was used there, and nothing was lost
				return first
			}
			return store.NewEpoch(now, lost)
		}
		if i == 0 && away > 0 && !inForce(ctx, client, queue) {
			break // they may have none
		}
		err := publishPartition(ctx, client, name, fields, after, by, newEpoch)
		if store.Unreachable(err) && ctx.Err() == nil {
			away++
		} else if err != nil {
			return err
		}
	}
	if away > 0 {
		return &inspect.AwayError{Queue: queue, Away: away, Of: len(names)}
	}
	return asynqwire.RegisterQueues(ctx, client, names...)
}

// gone reports whether a partition of a queue has lost its limits. One that does not answer may still have them.
func gone(ctx context.Context, client redis.UniversalClient, layout partition.Layout) bool {
	was, found, err := inRedis(ctx, client, layout)
	if err != nil || !found {
		return err == nil
	}
	for _, home := range was.Names() {
		if err := client.HGet(ctx, store.Key(home, "limits"), store.EpochField).Err(); errors.Is(err, redis.Nil) {
			return true
		}
	}
	return false
}

// inForce reports whether a partition has limits, or does not answer.
func inForce(ctx context.Context, client redis.UniversalClient, home string) bool {
	n, err := client.Exists(ctx, store.Key(home, "limits")).Result()
	return n > 0 || err != nil
}

// publishPartition writes to a new key and then renames it, so that no script ever reads a
// part of the limits. It writes nothing if they are in force already, so that workers also
// start if Redis is full. after is what a partition gets that knows already that all tenants have arrived.
func publishPartition(ctx context.Context, client redis.UniversalClient, queue string, fields, after map[string]string, by Operator, newEpoch func(now time.Time) string) error {
	before, err := store.ScanHash(ctx, client, store.Key(queue, "limits"))
	if err != nil {
		return err
	}
	epoch := before[store.EpochField]
	delete(before, store.EpochField)
	if before["*"] != "" && before[store.SumField] == after[store.SumField] {
		fields = after
	}
	if maps.Equal(before, fields) && epoch != "" {
		return nil
	}
	// A unique name: workers that start together publish at the same time.
	next := store.Key(queue, "limits:"+rand.Text())
	if err := writeBeside(ctx, client, next, fields); err != nil {
		return err
	}
	return putInForce(ctx, client, queue, next, by, newEpoch)
}

// stored returns the hash of a queue's limits.
func stored(set limits.Set, layout partition.Layout) (map[string]string, error) {
	q, tenants := set.Queues[layout.Queue], effective.StoreTenants(set, layout.Queue)
	stored := effective.StoreQueue(q, tenants)
	if stored.From = store.BeforeOf(layout.From); layout.N > 1 {
		stored.Partitions = layout.N
	}
	for i, limit := range q.Limits {
		one := &stored.Limits[i]
		one.Spec.Leased = one.Spec.Leased || len(layout.Names()) > 1 && limit.Leased()
		one.Spec.Pool = one.Spec.Leased && limit.Pooled()
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{"*": string(text)}
	if sum := layout.Sum(); sum != "" {
		fields[store.SumField] = sum
	}
	if len(layout.Pins) > 0 {
		text, err := json.Marshal(layout.Pins)
		if err != nil {
			return nil, err
		}
		fields[store.PinsField] = string(text)
	}
	for tenant, own := range tenants {
		text, err := json.Marshal(own)
		if err != nil {
			return nil, err
		}
		fields["t:"+rediskey.Escape(tenant)] = string(text)
	}
	return fields, nil
}
