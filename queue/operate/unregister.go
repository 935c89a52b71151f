package operate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/seats"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/queue/workers"
)

// Unregister removes a queue that nobody needs any more, with its limits, pauses and counts, and
// the kinds that go there. Its audit stays. It is refused with [ErrState] while the queue has a job
// in any state or a worker serves it, which would publish its limits again. A job that is enqueued
// meanwhile by name stays, in a queue without limits.
func Unregister(ctx context.Context, client redis.UniversalClient, queue string, by Operator) error {
	if err := by.Check(); err != nil {
		return err
	}
	listed, err := store.AllPartitions(ctx, client)
	if err != nil {
		return err
	}
	if err := store.CheckListed(queue, listed); err != nil {
		return err
	}
	entry := AuditEntry{At: time.Now(), Action: "unregister", Actor: by.Actor, Reason: by.Reason, Before: map[string]string{"queue": queue}}
	removing := false
	fail := func(err error) error {
		if removing {
			by.unsure(err, entry)
		}
		return fmt.Errorf("unregister queue %q: %w", queue, err)
	}
	refuse := func(reason string) error {
		return &validation.Error{Field: "queue", Reason: check.Quote(queue) + " " + reason, Cause: ErrState}
	}
	alive, err := workers.List(ctx, client)
	if err != nil {
		return fail(err)
	}
	for _, w := range alive {
		if slices.Contains(w.Queues, queue) {
			return refuse(fmt.Sprintf("is served by worker %s on %s: stop it, or take the queue from its HEADGATE_QUEUES and limits file", check.Quote(w.ID), check.Quote(w.Host)))
		}
	}
	l, err := store.ReadLayout(ctx, client, queue)
	if err != nil {
		return fail(err)
	}
	homes := withListed(l.Names(), listed)
	passes := []bool{false, true} // all have to be empty before one is removed
	if len(homes) == 1 {
		passes = []bool{true}
	}
	for _, remove := range passes { // the first partition last: it knows the others
		jobs := int64(0)
		for _, home := range slices.Backward(homes) {
			var reply any
			removing = remove
			err := store.Patient(ctx, func() (err error) {
				reply, err = store.UnregisterScript.Run(ctx, client, store.ScriptKeys(home), home, remove, "")
				return err
			})
			if err != nil {
				return fail(err)
			}
			n, _ := reply.(int64)
			if jobs += n; remove && jobs > 0 {
				break
			}
		}
		if jobs > 0 {
			return refuse(fmt.Sprintf("has jobs, %d of them: cancel and delete them, or wait until none is kept any more", jobs))
		}
	}
	if err := seats.Expire(ctx, client, queue, store.Key(queue, "ledger"), store.LedgerKept); err != nil {
		return fail(err)
	}
	if err := keepAudit(ctx, client, queue, homes); err != nil {
		return fail(err)
	}
	routes, err := client.HGetAll(ctx, store.RoutesKey).Result()
	if err != nil {
		return fail(err)
	}
	pipe := client.Pipeline()
	for kind, home := range routes {
		if home == queue {
			pipe.HDel(ctx, store.RoutesKey, kind)
		}
	}
	pipe.SRem(ctx, asynqwire.Queues, homes)
	if err := store.Execute(ctx, pipe); err != nil {
		return fail(err)
	}
	return Record(ctx, client, entry, by)
}
