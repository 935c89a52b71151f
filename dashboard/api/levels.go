package api

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/fanout"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

// levelJSON is a limit of a queue beside a quota of its provider: what is assumed of it now.
type levelJSON struct {
	Queue   string   `json:"queue"`
	Name    string   `json:"name"`
	Rule    string   `json:"rule"`
	Follows bool     `json:"follows"` // whether the limit follows the quota
	Adapted float64  `json:"adapted"`
	Rate    float64  `json:"rate_per_second"` // now
	Level   *float64 `json:"level,omitempty"` // nil: not known
	Full    *float64 `json:"full,omitempty"`  // the same
	Next    *moment  `json:"next,omitempty"`
}

// addLevels adds to each quota the limits that stand for it: of the queue of the kind, those of the whole queue for the
// account of all tenants, and those per tenant for a tenant's own. Quotas whose limits cannot be read get none.
func (a *API) addLevels(ctx context.Context, providers []providerJSON) {
	known := map[string]bool{}
	for _, p := range providers {
		if len(p.Quotas) > 0 {
			maps.Copy(known, p.queues)
		}
	}
	names := slices.Sorted(maps.Keys(known))
	published, unread := fanout.Ask(ctx, queuePatience, names, func(ctx context.Context, name string) (limits.Queue, error) {
		return inspect.Published(ctx, a.config.Redis, name)
	})
	// A bucket is one of a queue and, with a tenant, of that.
	const separator = "\n" // is in no name
	wanted := map[string]bool{}
	places := make([][]string, len(providers)) // the queues of each provider's kind
	for i, p := range providers {
		var open []string // queues that take jobs of any kind
		for at, name := range names {
			switch {
			case !p.queues[name] || unread[at] != nil:
			case slices.Contains(published[at].Kinds, p.Kind):
				places[i] = append(places[i], name)
			case len(published[at].Kinds) == 0:
				open = append(open, name)
			}
		}
		if len(places[i]) == 0 { // a kind of no queue goes to those of any kind
			places[i] = open
		}
		for _, quota := range p.Quotas {
			for _, name := range places[i] {
				wanted[name+separator+quota.Account] = true
			}
		}
	}
	buckets := slices.Sorted(maps.Keys(wanted))
	levels, failed := fanout.Ask(ctx, queuePatience, buckets, func(ctx context.Context, bucket string) ([]inspect.Level, error) {
		name, tenant, _ := strings.Cut(bucket, separator)
		return a.inspector.Levels(ctx, name, tenant)
	})
	gone := func(err error) bool { return err == nil || errors.Is(err, validation.ErrNotFound) }
	for i, p := range providers {
		unread := slices.ContainsFunc(names, func(name string) bool {
			return p.queues[name] && !gone(unread[slices.Index(names, name)])
		})
		for j := range p.Quotas {
			quota, all := &p.Quotas[j], []levelJSON{}
			for _, name := range places[i] {
				at, _ := slices.BinarySearch(buckets, name+separator+quota.Account)
				unread = unread || !gone(failed[at])
				for _, l := range levels[at] {
					if quota.standsFor(l) {
						all = append(all, levelOf(name, l, quota.limitName != ""))
					}
				}
			}
			if !unread {
				quota.Limits = all
			}
		}
	}
}

// standsFor reports whether a limit counts what the quota counts, or is the one that the worker sets to it.
func (q *quotaJSON) standsFor(l inspect.Level) bool {
	if q.limitName != "" {
		return l.Name == q.limitName
	}
	unit := strings.ReplaceAll(q.Name, "-", "_") // as clients.Quota.Unit
	if unit == "requests" {
		unit = ""
	}
	return l.Unit == unit
}

// levelOf returns a limit for JSON. set: the worker sets the limit to the quota.
func levelOf(queue string, l inspect.Level, set bool) levelJSON {
	out := levelJSON{Queue: queue, Name: l.Name, Rule: ruleText(l.Effective), Follows: l.Adaptive || set, Adapted: l.Adapted, Rate: l.PerSecond, Next: at(l.Next)}
	if l.Capacity > 0 {
		out.Level, out.Full = &l.Left, &l.Capacity
	}
	return out
}
