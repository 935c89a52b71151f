package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

const (
	maxCauses = 3 // of a violation

	// runTakes is for how long after an operator ran jobs their calls leave: workers take them when they have room.
	runTakes = 10 * time.Minute
)

// NameCauses sets the causes of all violations in the conformance of a queue, as far as its audit still has them.
func NameCauses(ctx context.Context, client redis.UniversalClient, queue string, c *inspect.Conformance) error {
	var entries []AuditEntry
	var lost time.Time
	known := false
	for i := range c.Buckets {
		b := &c.Buckets[i]
		for _, hour := range b.Hours {
			if hour.Over == nil {
				continue
			}
			if !known { // most queues have no violation
				var err error
				if entries, err = Audit(ctx, client, queue, MaxAudit); err != nil {
					return err
				}
				epoch, err := client.HGet(ctx, store.Key(queue, "limits"), store.EpochField).Result()
				if err != nil && !errors.Is(err, redis.Nil) {
					return fmt.Errorf("read since when queue %q has limits: %w", queue, err)
				}
				if at := store.LostAt(epoch); at > 0 {
					lost = time.UnixMicro(at).UTC()
				}
				known = true
			}
			hour.Over.Causes = causes(entries, lost, b, hour.Over)
		}
	}
	return nil
}

// causes returns what explains that calls exceeded a limit, the latest first.
func causes(entries []AuditEntry, lost time.Time, b *inspect.ConformanceBucket, over *inspect.Violation) (all []inspect.Cause) {
	began := over.At.Add(-b.Window)
	within := func(at time.Time) bool { return at.After(began) && !at.After(over.At) }
	if !lost.IsZero() && within(lost) {
		all = append(all, inspect.Cause{What: inspect.CausedByLoss, At: lost})
	}
	tenant, own := b.Values["tenant"]
	of := tenant
	if group, grouped := b.Values[limits.GroupAttribute]; grouped && !own {
		of = "group " + group
	}
	for _, e := range entries { // the newest first
		if own && e.Tenant != "" && e.Tenant != tenant {
			continue
		}
		cause := inspect.Cause{What: inspect.CausedByChange, At: e.At, Actor: e.Actor, Reason: e.Reason}
		switch changed := changedLimit(e, b.Limit, of); {
		case e.Action == string(RunNow):
			if e.At.After(over.At) || e.At.Before(began.Add(-runTakes)) {
				continue
			}
			cause.What = inspect.CausedByRun
		case changed == "":
			continue
		case within(e.At):
			if name := nameIn(e, b.Limit); e.Before[name] == "" && e.After[name] != "" { // it is new
				continue
			}
			cause.Before, cause.After = e.Before[changed], e.After[changed]
		case !e.Until.IsZero() && within(e.Until):
			cause.What, cause.At, cause.Before, cause.After = inspect.CausedByEnd, e.Until, e.After[changed], e.Before[changed]
		default:
			continue
		}
		all = append(all, cause)
	}
	slices.SortStableFunc(all, func(a, b inspect.Cause) int { return b.At.Compare(a.At) })
	return all[:min(len(all), maxCauses)]
}

// changedLimit returns under which name an entry of the audit has a limit before or after; "" if the change was not
// about it. Those of a single tenant or group are "TENANT: LIMIT" or "group GROUP: LIMIT" in what was published.
func changedLimit(e AuditEntry, limit, of string) string {
	limit = nameIn(e, limit)
	for _, name := range []string{of + ": " + limit, limit} {
		_, before := e.Before[name]
		_, after := e.After[name]
		if (before || after) && (e.Tenant == "" || e.Tenant == of || !strings.Contains(name, ": ")) {
			return name
		}
	}
	return ""
}

// nameIn returns the name that an entry of the audit has for a limit. An entry of an override is about one limit; one of
// a publication also names settings.
func nameIn(e AuditEntry, limit string) string {
	if e.Limit != "" {
		return limit
	}
	return effective.TextName(limit)
}
