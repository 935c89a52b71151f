package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

// Override is a change of a limit that an operator makes for one tenant. Fields that it
// does not set keep their published values, also when other limits are published.
type Override struct {
	limits.Change
	Until  time.Time        // when it ends, at most 10 years ahead; zero: never
	Reason string           // why it was made; required
	Actor  string           // who made it; required
	Log    func(AuditEntry) // see [Operator]

	// Lower refuses a change that raises the limit above its published values, or replaces
	// the override of another actor, with [ErrRaises] or [ErrNotOwn].
	Lower bool
}

// Errors of changes by actors who may only lower limits.
var (
	ErrRaises = errors.New("it would raise the limit")
	ErrNotOwn = errors.New("the override of this limit was made by somebody else")
)

// SetOverride changes a limit for one tenant, for all workers, until it ends or
// [ClearOverride] removes it. It replaces the tenant's override of the limit, if there is
// one. The limits of the queue must have been published.
func SetOverride(ctx context.Context, client redis.UniversalClient, queue, tenant, limit string, o Override) error {
	by := Operator{o.Actor, o.Reason, o.Log}
	if err := by.Check(); err != nil {
		return err
	}
	switch now := time.Now(); {
	case o.Until.IsZero():
	case !o.Until.After(now):
		return validation.Field("until", o.Until.UTC().Format(time.RFC3339)+" has passed")
	case o.Until.Sub(now) > check.MaxAhead:
		return validation.Field("until", o.Until.UTC().Format(time.RFC3339)+" is more than 10 years ahead; leave it out for an override that lasts until cleared")
	}
	stored := effective.Override{Change: o.Change, Reason: by.Reason, Actor: by.Actor}
	if !o.Until.IsZero() {
		stored.Until = o.Until.UnixMicro()
	}
	entry := AuditEntry{Actor: by.Actor, Action: "override", Queue: queue, Tenant: tenant, Limit: limit, Reason: by.Reason, Until: o.Until}
	_, err := editOverrides(ctx, client, entry, by, func(published *limits.Limit, all map[string]effective.Override) (bool, error) {
		if published == nil {
			return false, nil
		}
		if known, there := all[limit]; o.Lower && there && known.Actor != by.Actor && known.Holds(time.Now()) {
			return false, ErrNotOwn
		}
		if o.Lower && published.Raises(o.Change) {
			return false, ErrRaises
		}
		all[limit] = stored
		return true, effective.CheckOverride(*published, o.Change)
	})
	return err
}

// ClearOverride removes an override, also one that is not in force. It returns false if
// there was none.
func ClearOverride(ctx context.Context, client redis.UniversalClient, queue, tenant, limit string, by Operator) (bool, error) {
	return clearOverride(ctx, client, queue, tenant, limit, by, false)
}

// ClearOwnOverride is [ClearOverride] for overrides that the same actor made. Its error for
// another's is [ErrNotOwn].
func ClearOwnOverride(ctx context.Context, client redis.UniversalClient, queue, tenant, limit string, by Operator) (bool, error) {
	return clearOverride(ctx, client, queue, tenant, limit, by, true)
}

func clearOverride(ctx context.Context, client redis.UniversalClient, queue, tenant, limit string, by Operator, own bool) (bool, error) {
	if err := by.Check(); err != nil {
		return false, err
	}
	entry := AuditEntry{Actor: by.Actor, Action: "clear", Queue: queue, Tenant: tenant, Limit: limit, Reason: by.Reason}
	return editOverrides(ctx, client, entry, by, func(_ *limits.Limit, all map[string]effective.Override) (bool, error) {
		known, there := all[limit]
		if own && there && known.Actor != by.Actor {
			return false, ErrNotOwn
		}
		delete(all, limit)
		return there, nil
	})
}

// editOverrides changes a tenant's overrides in a transaction, so that concurrent
// operators and publications do not undo each other's changes, and adds the entry to the
// audit. edit gets the limit as it is published for the tenant, or nil if the queue has
// no limit of that name. If it returns an error, nothing is changed.
func editOverrides(
	ctx context.Context, client redis.UniversalClient, entry AuditEntry, by Operator, edit func(published *limits.Limit, all map[string]effective.Override) (changed bool, err error),
) (bool, error) {
	if err := store.CheckTenant(ctx, client, entry.Queue, entry.Tenant); err != nil {
		return false, err
	}
	l, err := store.ReadLayout(ctx, client, entry.Queue)
	if err != nil {
		return false, err
	}
	home, field := "", rediskey.Escape(entry.Tenant)
	changed, sent := false, false
	var refused error
	change := func(tx *redis.Tx) error {
		sent = false
		if l.From != nil { // the tenant may have moved meanwhile
			state, err := tx.HGet(ctx, store.MovesKey(home), field).Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			sum, err := tx.HGet(ctx, store.Key(home, "limits"), store.SumField).Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			if sum != l.Sum() || !store.IsAt(l, home, entry.Tenant, state) {
				return redis.TxFailedErr
			}
		}
		overrides := store.Key(home, "overrides")
		e, rules, err := effective.ReadTenants(ctx, tx, home, field)
		if err != nil {
			return err
		}
		all := e.Overrides[field]
		if all == nil {
			all = map[string]effective.Override{}
			e.Overrides[field] = all
		}
		e.Resolve(rules, field)
		var published *limits.Limit
		i := slices.IndexFunc(rules, func(l limits.Limit) bool { return l.Name == entry.Limit })
		if i >= 0 {
			limit := e.Published(rules[i], field)
			published = &limit
		}
		entry.At, entry.Before = e.Now, e.InWords(i, entry.Limit, field)
		if changed, refused = edit(published, all); refused != nil {
			return nil
		}
		if !changed {
			if published == nil {
				refused = effective.NoSuchLimit(entry.Queue, entry.Limit, rules)
			}
			return nil
		}
		e.Resolve(rules, field)
		entry.After = e.InWords(i, entry.Limit, field)
		next, err := json.Marshal(all)
		if err != nil {
			return err
		}
		sent = true
		err = store.Transaction(ctx, tx, func(p redis.Pipeliner) error {
			if len(all) == 0 {
				p.HDel(ctx, overrides, field)
			} else {
				p.HSet(ctx, overrides, field, next)
			}
			noteLimits(ctx, p, home)
			pushAudit(ctx, p, home, entry)
			return nil
		})
		return err
	}
	for {
		if home, l, err = store.HomeOf(ctx, client, l, entry.Tenant); err != nil {
			return false, err
		}
		err := store.Patient(ctx, func() error {
			return client.Watch(ctx, change, store.Key(home, "overrides"), store.Key(home, "limits"), store.MovesKey(home))
		})
		switch {
		case refused != nil:
			return false, refused
		case err == nil:
			if changed {
				by.log(entry)
			}
			return changed, effective.Replan(ctx, client, home, entry.Tenant)
		case !errors.Is(err, redis.TxFailedErr) || ctx.Err() != nil:
			if sent {
				by.unsure(err, entry)
			}
			return false, fmt.Errorf("overrides of queue %q: %w", entry.Queue, err)
		}
		if l, err = store.ReadLayout(ctx, client, entry.Queue); err != nil {
			return false, err
		}
	}
}
