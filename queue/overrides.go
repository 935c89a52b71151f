package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// Override is a change that an operator made for one tenant. What it does not name
// stays as it is published for the tenant, also when other limits are published.
type Override struct {
	Change
	Until  time.Time // when it ends by itself; zero: not
	Reason string    // for those who wonder later; required
	Actor  string    // who made it; required
}

// storedOverride is an override in the form of lanes.lua. The scripts read Limit and
// Until alone.
type storedOverride struct {
	Change  Change         `json:"change"`
	Limit   *throttle.Spec `json:"limit,omitempty"`   // what the change makes of the limit; nil: it is not in force
	Problem string         `json:"problem,omitempty"` // why it is not in force
	Until   int64          `json:"until"`             // µs; 0: no end
	Reason  string         `json:"reason"`
	Actor   string         `json:"actor"`
}

func (o storedOverride) holds(now time.Time) bool { return o.Until == 0 || o.Until > now.UnixMicro() }

// SetOverride changes a limit for one tenant, for all workers, until it ends or
// [ClearOverride] takes it back. It replaces the tenant's override of the limit, if
// there is one. It needs the limits of the queue published.
func SetOverride(ctx context.Context, client redis.UniversalClient, queue, tenant, limit string, o Override) error {
	if err := (Operator{o.Actor, o.Reason}).check(); err != nil {
		return err
	}
	if !o.Until.IsZero() && !o.Until.After(time.Now()) {
		return validation.Field("until", o.Until.UTC().Format(time.RFC3339)+" has passed")
	}
	stored := storedOverride{Change: o.Change, Reason: o.Reason, Actor: o.Actor}
	if !o.Until.IsZero() {
		stored.Until = o.Until.UnixMicro()
	}
	entry := AuditEntry{Actor: o.Actor, Action: "override", Queue: queue, Tenant: tenant, Limit: limit, Reason: o.Reason, Until: o.Until}
	_, err := editOverrides(ctx, client, entry, func(published *Limit, all map[string]storedOverride) (bool, error) {
		if published == nil {
			return false, nil
		}
		all[limit] = stored
		return true, checkOverride(*published, o.Change)
	})
	return err
}

// ClearOverride takes an override back, also one that is not in force. It answers
// false when there was none.
func ClearOverride(ctx context.Context, client redis.UniversalClient, queue, tenant, limit string, by Operator) (bool, error) {
	if err := by.check(); err != nil {
		return false, err
	}
	entry := AuditEntry{Actor: by.Actor, Action: "clear", Queue: queue, Tenant: tenant, Limit: limit, Reason: by.Reason}
	return editOverrides(ctx, client, entry, func(_ *Limit, all map[string]storedOverride) (bool, error) {
		_, there := all[limit]
		delete(all, limit)
		return there, nil
	})
}

// checkOverride says why a limit cannot be changed so for one tenant, or nil.
func checkOverride(limit Limit, change Change) error {
	if change == (Change{}) {
		return validation.Field("limit", "nothing of it changes: name a rate, a burst, a capacity or a concurrency")
	}
	if err := limit.checkChange(change); err != nil {
		return fmt.Errorf("override of limit %q: %w", limit.Name, err)
	}
	return nil
}

func checkTenant(ctx context.Context, client redis.UniversalClient, queue, tenant string) error {
	if reason := check.Text(tenant, check.MaxTenant); reason != "" {
		return validation.Field("tenant", reason)
	}
	return checkQueue(ctx, client, queue)
}

func noSuchLimit(queue, limit string, limits []Limit) error {
	return validation.Field("limit", fmt.Sprintf("queue %s has no limit %s%s", check.Quote(queue), check.Quote(limit), check.Suggest(limit, limitNames(limits))))
}

// tenantLimits is the limits of a queue, and what differs for one escaped tenant.
func tenantLimits(ctx context.Context, client redis.Cmdable, queue, tenant string) (e effective, rules []Limit, err error) {
	pipe := client.Pipeline()
	limits := pipe.HMGet(ctx, store.Key(queue, "limits"), "*", "t:"+tenant)
	overrides := pipe.HMGet(ctx, store.Key(queue, "overrides"), tenant)
	now := pipe.Time(ctx)
	if err := store.Execute(ctx, pipe); err != nil {
		return e, nil, err
	}
	stored, changed := map[string]string{}, map[string]string{}
	for i, name := range []string{"*", "t:" + tenant} {
		if text, ok := limits.Val()[i].(string); ok {
			stored[name] = text
		}
	}
	if text, ok := overrides.Val()[0].(string); ok {
		changed[tenant] = text
	}
	if e, err = effectiveOf(stored, changed, now.Val()); err != nil {
		return e, nil, err
	}
	q, err := e.queue.limits()
	return e, q.Limits, err
}

// editOverrides changes a tenant's overrides so that neither two operators at once nor
// a publication undo each other, with its entry in the audit. edit gets the limit as it
// is published for the tenant, or nil where the queue has none of that name, and
// refuses with an error.
func editOverrides(
	ctx context.Context, client redis.UniversalClient, entry AuditEntry, edit func(published *Limit, all map[string]storedOverride) (changed bool, err error),
) (bool, error) {
	if err := checkTenant(ctx, client, entry.Queue, entry.Tenant); err != nil {
		return false, err
	}
	overrides, field := store.Key(entry.Queue, "overrides"), throttle.Escape(entry.Tenant)
	changed := false
	var refused error
	change := func(tx *redis.Tx) error {
		e, rules, err := tenantLimits(ctx, tx, entry.Queue, field)
		if err != nil {
			return err
		}
		all := e.overrides[field]
		if all == nil {
			all = map[string]storedOverride{}
			e.overrides[field] = all
		}
		e.resolve(rules, field)
		var published *Limit
		i := slices.IndexFunc(rules, func(l Limit) bool { return l.Name == entry.Limit })
		if i >= 0 {
			limit := e.published(rules[i], field)
			published = &limit
		}
		entry.At, entry.Before = e.now, e.inWords(i, entry.Limit, field)
		if changed, refused = edit(published, all); refused != nil {
			return nil
		}
		if !changed {
			if published == nil {
				refused = noSuchLimit(entry.Queue, entry.Limit, rules)
			}
			return nil
		}
		e.resolve(rules, field)
		entry.After = e.inWords(i, entry.Limit, field)
		next, err := json.Marshal(all)
		if err != nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			if len(all) == 0 {
				p.HDel(ctx, overrides, field)
			} else {
				p.HSet(ctx, overrides, field, next)
			}
			noteLimits(ctx, p, entry.Queue)
			pushAudit(ctx, p, entry)
			return nil
		})
		return err
	}
	for {
		err := client.Watch(ctx, change, overrides, store.Key(entry.Queue, "limits"))
		switch {
		case refused != nil:
			return false, refused
		case err == nil:
			return changed, replan(ctx, client, entry.Queue, entry.Tenant)
		case !errors.Is(err, redis.TxFailedErr):
			return false, fmt.Errorf("overrides of queue %q: %w", entry.Queue, err)
		}
	}
}

// inWords is a limit of a tenant for the audit: the i-th of the queue, or with i < 0
// one that is not there any more.
func (e *effective) inWords(i int, limit, tenant string) map[string]string {
	text := e.notInForce(limit, tenant)
	if i >= 0 {
		in := e.inForce(i, tenant).String()
		if text != "" {
			in += "; " + text
		}
		text = in
	}
	if text == "" {
		return nil
	}
	return map[string]string{limit: text}
}
