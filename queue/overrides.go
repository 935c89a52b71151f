package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

// Override is a change that an operator made for one tenant, before which the
// file steps back.
type Override struct {
	Change
	Until  time.Time // when it ends by itself; zero: not
	Reason string    // for those who wonder later; required
	Actor  string    // who made it; required
}

// storedOverride is an override in the form of lanes.lua.
type storedOverride struct {
	Limit  throttle.Spec `json:"limit"`
	Until  int64         `json:"until"` // µs; 0: no end
	Reason string        `json:"reason"`
	Actor  string        `json:"actor"`
}

func (o storedOverride) holds(now time.Time) bool { return o.Until == 0 || o.Until > now.UnixMicro() }

// SetOverride changes a limit for one tenant, for all workers, until it ends or
// [ClearOverride] takes it back. It needs the limits of the queue published.
func SetOverride(ctx context.Context, client redis.UniversalClient, queue, tenant, limit string, o Override) error {
	if err := (Operator{o.Actor, o.Reason}).check(); err != nil {
		return err
	}
	i, limits, err := findLimit(ctx, client, queue, tenant, limit)
	if err != nil {
		return err
	}
	if err := checkOverride(limits[i], o.Change); err != nil {
		return err
	}
	if !o.Until.IsZero() && !o.Until.After(time.Now()) {
		return &InvalidError{"until", o.Until.UTC().Format(time.RFC3339) + " has passed"}
	}
	stored := storedOverride{Limit: limits[i].changed(o.Change).spec(), Reason: o.Reason, Actor: o.Actor}
	if !o.Until.IsZero() {
		stored.Until = o.Until.UnixMicro()
	}
	entry := AuditEntry{Actor: o.Actor, Action: "override", Queue: queue, Tenant: tenant, Limit: limit, Reason: o.Reason, Until: o.Until}
	_, err = editOverrides(ctx, client, entry, func(all map[string]storedOverride) bool {
		all[limit] = stored
		return true
	})
	return err
}

// ClearOverride takes an override back. It answers false when there was none.
func ClearOverride(ctx context.Context, client redis.UniversalClient, queue, tenant, limit string, by Operator) (bool, error) {
	if err := by.check(); err != nil {
		return false, err
	}
	if _, _, err := findLimit(ctx, client, queue, tenant, limit); err != nil {
		return false, err
	}
	entry := AuditEntry{Actor: by.Actor, Action: "clear", Queue: queue, Tenant: tenant, Limit: limit, Reason: by.Reason}
	return editOverrides(ctx, client, entry, func(all map[string]storedOverride) bool {
		_, there := all[limit]
		delete(all, limit)
		return there
	})
}

// checkOverride says why a limit cannot be changed so for one tenant, or nil.
func checkOverride(limit Limit, change Change) error {
	if change == (Change{}) {
		return &InvalidError{"limit", "nothing of it changes: name a rate, a burst, a capacity or a concurrency"}
	}
	if err := limit.checkChange(change); err != nil {
		return fmt.Errorf("override of limit %q: %w", limit.Name, err)
	}
	return nil
}

// findLimit finds a limit that may be changed for a tenant.
func findLimit(ctx context.Context, client redis.UniversalClient, queue, tenant, limit string) (int, []Limit, error) {
	if reason := textProblem(tenant, mostTenant); reason != "" {
		return 0, nil, &InvalidError{"tenant", reason}
	}
	if err := checkQueue(ctx, client, queue); err != nil {
		return 0, nil, err
	}
	limits, err := published(ctx, client, queue)
	if err != nil {
		return 0, nil, err
	}
	i := slices.IndexFunc(limits.Limits, func(l Limit) bool { return l.Name == limit })
	if i < 0 {
		return 0, nil, &InvalidError{"limit", fmt.Sprintf("queue %s has no limit %s%s", quote(queue), quote(limit), Suggest(limit, limitNames(limits.Limits)))}
	}
	return i, limits.Limits, nil
}

// editOverrides changes a tenant's overrides so that two operators at once do
// not undo each other, with its entry in the audit. Those that have ended go, too.
func editOverrides(ctx context.Context, client redis.UniversalClient, entry AuditEntry, edit func(map[string]storedOverride) (changed bool)) (bool, error) {
	overrides, field := key(entry.Queue, "overrides"), throttle.Escape(entry.Tenant)
	changed := false
	change := func(tx *redis.Tx) error {
		now, err := tx.Time(ctx).Result()
		if err != nil {
			return err
		}
		stored, err := tx.HMGet(ctx, key(entry.Queue, "limits"), "*", "t:"+field).Result()
		if err != nil {
			return err
		}
		text, err := tx.HGet(ctx, overrides, field).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		limits, mine := map[string]string{}, map[string]string{}
		for i, name := range []string{"*", "t:" + field} {
			if text, ok := stored[i].(string); ok {
				limits[name] = text
			}
		}
		if text != "" {
			mine[field] = text
		}
		e, err := effectiveOf(limits, mine, now)
		if err != nil {
			return err
		}
		all := e.overrides[field]
		if all == nil {
			all = map[string]storedOverride{}
			e.overrides[field] = all
		}
		maps.DeleteFunc(all, func(_ string, o storedOverride) bool { return !o.holds(now) })
		i := slices.IndexFunc(e.queue.Limits, func(l storedLimit) bool { return l.Name == entry.Limit })
		if i < 0 {
			return &InvalidError{"limit", quote(entry.Limit) + " was just taken out of the limits"}
		}
		entry.At = now
		entry.Before = map[string]string{entry.Limit: e.inForce(i, field).String()}
		if changed = edit(all); !changed {
			return nil
		}
		entry.After = map[string]string{entry.Limit: e.inForce(i, field).String()}
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
		err := client.Watch(ctx, change, overrides)
		if err == nil {
			return changed, replan(ctx, client, entry.Queue, entry.Tenant)
		}
		if _, invalid := errors.AsType[*InvalidError](err); invalid {
			return false, err
		}
		if !errors.Is(err, redis.TxFailedErr) {
			return false, fmt.Errorf("overrides of queue %q: %w", entry.Queue, err)
		}
	}
}
