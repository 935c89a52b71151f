package operate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
)

// putInForce replaces the limits of the queue by those written under the name next,
// applies the overrides to them, and adds the differences to the audit. If several
// workers publish the same limits, only one finds a difference. Limits that are not there yet get the epoch
// that newEpoch returns.
func putInForce(ctx context.Context, client redis.UniversalClient, queue, next string, by Operator, newEpoch func(now time.Time) string) error {
	limits, overrides := store.Key(queue, "limits"), store.Key(queue, "overrides")
	var before, after map[string]string
	var entry AuditEntry
	sent := false
	change := func(tx *redis.Tx) (err error) {
		sent = false
		if before, err = store.ScanHash(ctx, client, limits); err != nil {
			return err
		}
		if after, err = store.ScanHash(ctx, client, next); err != nil {
			return err
		}
		if err := keepsOrder(partition.QueueOf(queue), before, after); err != nil {
			return err
		}
		epoch := before[store.EpochField]
		delete(before, store.EpochField)
		// Without an epoch, an earlier build has replaced them, and workers that knew them let nothing go.
		same := maps.Equal(before, after)
		if entry = (AuditEntry{}); same && epoch != "" {
			return tx.Del(ctx, next).Err()
		}
		changed, err := store.ScanHash(ctx, client, overrides)
		if err != nil {
			return err
		}
		now, err := tx.Time(ctx).Result()
		if err != nil {
			return err
		}
		if !same && queue == partition.QueueOf(queue) { // the partitions of a queue have the same
			entry = AuditEntry{At: now, Actor: by.Actor, Reason: by.Reason, Action: "publish", Queue: queue}
		}
		was, will, err := readBoth(before, after, changed, now)
		if err != nil {
			return err
		}
		resolved, err := will.ResolveAll()
		if err != nil {
			return err
		}
		entry.Before, entry.After = bounded(differences(was.Texts(), will.Texts()))
		nextOverrides := store.Key(queue, "overrides:"+rand.Text())
		if maps.Equal(changed, resolved) {
			nextOverrides = ""
		} else if err := writeBeside(ctx, client, nextOverrides, resolved); err != nil {
			return err
		}
		// Renamed keys must exist, or only half of the transaction would be made.
		if there, err := tx.Expire(ctx, next, besideFor).Result(); err != nil {
			return err
		} else if !there {
			return errors.New("writing them took more than a minute; publish them again")
		}
		sent = true
		err = store.Transaction(ctx, tx, func(p redis.Pipeliner) error {
			if epoch == "" {
				epoch = newEpoch(now)
			}
			p.HSet(ctx, next, store.EpochField, epoch)
			p.Persist(ctx, next)
			p.Rename(ctx, next, limits)
			// Lanes may have other names now, and the sweep must not count jobs before it has looked at all.
			p.Del(ctx, store.Key(queue, "kinds"))
			switch {
			case nextOverrides == "":
			case len(resolved) == 0:
				p.Del(ctx, overrides)
			default:
				p.Persist(ctx, nextOverrides)
				p.Rename(ctx, nextOverrides, overrides)
			}
			noteLimits(ctx, p, queue)
			if entry.Action != "" {
				pushAudit(ctx, p, queue, entry)
			}
			return nil
		})
		return err
	}
	for {
		err := store.Patient(ctx, func() error { return client.Watch(ctx, change, limits, overrides) })
		if errors.Is(err, redis.TxFailedErr) {
			continue
		}
		if err != nil {
			if sent && entry.Action != "" {
				by.unsure(err, entry)
			}
			return err
		}
		if entry.Action != "" {
			by.log(entry)
		}
		return replanChanged(ctx, client, queue, before, after)
	}
}

// replanChanged computes again when lanes may go whose limits were changed: a lane that
// waits for tomorrow's quota must not do so after the quota was raised.
func replanChanged(ctx context.Context, client redis.UniversalClient, queue string, before, after map[string]string) error {
	changed, will := differences(before, after)
	maps.Copy(changed, will)
	const few = 10 // for more tenants, one pass over all lanes is faster
	if _, all := changed["*"]; all || len(changed) > few {
		return effective.Replan(ctx, client, queue, "")
	}
	for _, field := range slices.Sorted(maps.Keys(changed)) {
		if err := effective.Replan(ctx, client, queue, store.Unescape(strings.TrimPrefix(field, "t:"))); err != nil {
			return err
		}
	}
	return nil
}

// besideFor is how long new limits are kept if the process that writes them ends before
// it puts them in force.
const besideFor = time.Minute

// writeBeside writes a hash that will be renamed, in pieces, so that a large one does not
// block Redis.
func writeBeside(ctx context.Context, client redis.UniversalClient, name string, fields map[string]string) error {
	for names := range slices.Chunk(slices.Sorted(maps.Keys(fields)), 1000) {
		values := make([]any, 0, 2*len(names))
		for _, field := range names {
			values = append(values, field, fields[field])
		}
		err := store.Patient(ctx, func() error {
			return store.Transaction(ctx, client, func(p redis.Pipeliner) error {
				p.HSet(ctx, name, values...)
				p.Expire(ctx, name, besideFor)
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// noteLimits counts a change of the limits in force, so that readers see that what they
// read is out of date.
func noteLimits(ctx context.Context, p redis.Pipeliner, queue string) {
	p.HIncrBy(ctx, store.Key(queue, "totals"), "limits", 1)
}

// readBoth decodes limits before and after a change.
func readBoth(before, after, overrides map[string]string, now time.Time) (was, will effective.Limits, err error) {
	if was, err = effective.Read(before, overrides, now); err != nil { // written by another version of Headgate: replace them
		was = effective.Limits{}
	}
	will, err = effective.Read(after, overrides, now)
	return was, will, err
}

// differences returns the texts that are not in both.
func differences(before, after map[string]string) (was, will map[string]string) {
	was, will = map[string]string{}, map[string]string{}
	for name, text := range before {
		if other, ok := after[name]; !ok || other != text {
			was[name] = text
		}
	}
	for name, text := range after {
		if other, ok := before[name]; !ok || other != text {
			will[name] = text
		}
	}
	return was, will
}

// maxDifferences is the maximum number of limits in an entry of the audit; the number of
// further ones is added.
const maxDifferences = 100

// bounded leaves out the differences that do not fit into an entry of the audit.
func bounded(was, will map[string]string) (map[string]string, map[string]string) {
	names := maps.Clone(was)
	maps.Copy(names, will)
	if len(names) <= maxDifferences {
		return was, will
	}
	for _, name := range slices.Sorted(maps.Keys(names))[maxDifferences:] {
		delete(was, name)
		delete(will, name)
	}
	will["…"] = fmt.Sprintf("and %d more", len(names)-maxDifferences)
	return was, will
}
