package operate

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediskey"
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
	var known *changes
	for i := range c.Buckets {
		b := &c.Buckets[i]
		for _, hour := range b.Hours {
			if hour.Over == nil {
				continue
			}
			if known == nil { // most queues have no violation
				var err error
				if known, err = readChanges(ctx, client, queue); err != nil {
					return err
				}
			}
			hour.Over.Causes = known.causes(b, hour.Over)
		}
	}
	return nil
}

// changes are what can explain violations of a queue's limits.
type changes struct {
	entries []AuditEntry      // the newest first
	from    time.Time         // from when on entries has all changes; zero: it has all that there were
	lost    time.Time         // when what was used of limits was lost; zero: never
	groups  map[string]string // the groups of the tenants whose jobs were run, now
}

func readChanges(ctx context.Context, client redis.UniversalClient, queue string) (*changes, error) {
	entries, err := Audit(ctx, client, queue, MaxAudit)
	if err != nil {
		return nil, err
	}
	all := &changes{entries: entries, from: reaches(entries), groups: map[string]string{}}
	epoch, err := client.HGet(ctx, store.Key(queue, "limits"), store.EpochField).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read since when queue %q has limits: %w", queue, err)
	}
	if at := store.LostAt(epoch); at > 0 {
		all.lost = time.UnixMicro(at).UTC()
	}
	var tenants []string
	for _, e := range entries {
		if e.Action == string(RunNow) && e.Tenant != "" {
			tenants = append(tenants, rediskey.Escape(e.Tenant))
		}
	}
	slices.Sort(tenants)
	for some := range slices.Chunk(slices.Compact(tenants), store.MaxKeys) {
		e, _, err := effective.ReadTenants(ctx, client, queue, some...)
		if err != nil {
			return nil, fmt.Errorf("read the groups of tenants of queue %q: %w", queue, err)
		}
		for tenant, own := range e.Tenants {
			all.groups[store.Unescape(tenant)] = store.Unescape(own.Group)
		}
	}
	return all, nil
}

// reaches returns from when on the audit has all changes: the newest of each share are kept. Zero: it has dropped none.
func reaches(entries []AuditEntry) (from time.Time) {
	kept := map[string]int{}
	for i, e := range entries {
		of := share(e.Actor)
		kept[of]++
		if (kept[of] == maxShare || i == MaxAudit-1) && e.At.After(from) {
			from = e.At
		}
	}
	return from
}

// causes returns what explains that calls exceeded a limit, the latest first.
func (c *changes) causes(b *inspect.ConformanceBucket, over *inspect.Violation) (all []inspect.Cause) {
	began := over.At.Add(-b.Window)
	within := func(at time.Time) bool { return at.After(began) && !at.After(over.At) }
	if !c.lost.IsZero() && within(c.lost) {
		all = append(all, inspect.Cause{What: inspect.CausedByLoss, At: c.lost})
	}
	tenant, own := b.Values["tenant"]
	group, grouped := b.Values[limits.GroupAttribute]
	of := tenant
	if grouped && !own {
		of = "group " + group
	}
	for i, e := range c.entries {
		if own && e.Tenant != "" && e.Tenant != tenant {
			continue
		}
		cause := inspect.Cause{What: inspect.CausedByChange, At: e.At, Actor: e.Actor, Reason: e.Reason}
		changed, name := changedLimit(e, b.Limit, of), nameIn(e, b.Limit)
		isNew := e.Before[name] == "" && e.After[name] != ""
		switch {
		case e.Action == string(RunNow):
			if e.At.After(over.At) || e.At.Before(began.Add(-runTakes)) || grouped && e.Tenant != "" && !c.wasIn(group, e.Tenant, i) {
				continue
			}
			cause.What = inspect.CausedByRun
		case changed == "":
			continue
		case within(e.At) && !isNew && !raised(e.Before[changed], e.After[changed]):
			cause.Before, cause.After = e.Before[changed], e.After[changed]
		case within(e.Until) && !c.replaced(i) && c.replaces(i): // what was before it did not come back
			cause.What, cause.At, cause.Before = inspect.CausedByEnd, e.Until, e.After[changed]
		case within(e.Until) && !c.replaced(i) && !raised(e.After[changed], e.Before[changed]):
			cause.What, cause.At, cause.Before, cause.After = inspect.CausedByEnd, e.Until, e.After[changed], e.Before[changed]
		default:
			continue
		}
		all = append(all, cause)
	}
	if len(all) == 0 && began.Add(-runTakes).Before(c.from) {
		return []inspect.Cause{{What: inspect.CauseUnknown, At: c.from}}
	}
	slices.SortStableFunc(all, func(a, b inspect.Cause) int { return b.At.Compare(a.At) })
	return all[:min(len(all), maxCauses)]
}

// sameOverride reports whether an entry of the audit is about an override of the same limit and tenant as another.
func sameOverride(e, of *AuditEntry) bool {
	return (e.Action == "override" || e.Action == "clear") && e.Tenant == of.Tenant && e.Limit == of.Limit
}

// replaced reports whether the override of the i-th entry was replaced or cleared before its end.
func (c *changes) replaced(i int) bool {
	o := &c.entries[i]
	return slices.ContainsFunc(c.entries[:i], func(e AuditEntry) bool { return sameOverride(&e, o) && e.At.Before(o.Until) })
}

// replaces reports whether the override of the i-th entry replaced another one.
func (c *changes) replaces(i int) bool {
	o, older := &c.entries[i], c.entries[i+1:]
	last := slices.IndexFunc(older, func(e AuditEntry) bool { return sameOverride(&e, o) })
	return last >= 0 && older[last].Action == "override" && (older[last].Until.IsZero() || older[last].Until.After(o.At))
}

// wasIn reports whether a tenant is in a group, or has left it since the i-th entry.
func (c *changes) wasIn(group, tenant string, i int) bool {
	return c.groups[tenant] == group || slices.ContainsFunc(c.entries[:i], func(e AuditEntry) bool { return e.Before[tenant+": in group"] == group })
}

// quantity is a word of a limit's text that says how much is allowed: a rate, a burst or a capacity.
var quantity = regexp.MustCompile(`^([0-9]+)(/\S+|,)?$`)

// raised reports whether a limit was only raised, which explains no excess: no quantity in its text is smaller than before,
// and everything else is the same. Rates of different periods are not compared.
func raised(before, after string) bool {
	return slices.EqualFunc(strings.Fields(before), strings.Fields(after), func(was, is string) bool {
		if was == is {
			return true
		}
		n, m := quantity.FindStringSubmatch(was), quantity.FindStringSubmatch(is)
		if n == nil || m == nil || n[2] != m[2] {
			return false
		}
		less, err := strconv.ParseInt(n[1], 10, 64)
		more, failed := strconv.ParseInt(m[1], 10, 64)
		return err == nil && failed == nil && less <= more
	})
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
