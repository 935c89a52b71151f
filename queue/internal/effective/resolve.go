package effective

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/throttle"
)

// Resolve applies each override of a tenant to its limit. It is called whenever an
// override or the limits change, because scripts read only the result. An override that
// does not fit its limit is kept, but is not in force until limits are published that it
// fits. Overrides that have ended are removed.
func (e *Limits) Resolve(rules []limits.Limit, tenant string) {
	all := e.Overrides[tenant]
	maps.DeleteFunc(all, func(_ string, o Override) bool { return !o.Holds(e.Now) })
	for name, o := range all {
		o.Limit, o.Problem = nil, ""
		if spec, err := e.overridden(rules, tenant, name, o.Change); err != nil {
			o.Problem = strings.ReplaceAll(err.Error(), "\n", "; ")
		} else {
			o.Limit = &spec
		}
		all[name] = o
	}
}

// ResolveAll calls [Limits.Resolve] for all tenants, and returns the hash of overrides.
func (e *Limits) ResolveAll() (map[string]string, error) {
	q, err := e.Queue.Decode()
	if err != nil {
		return nil, err
	}
	hash := map[string]string{}
	for tenant, all := range e.Overrides {
		e.Resolve(q.Limits, tenant)
		if len(all) == 0 {
			continue
		}
		text, err := json.Marshal(all)
		if err != nil {
			return nil, err
		}
		hash[tenant] = string(text)
	}
	return hash, nil
}

func (e *Limits) overridden(rules []limits.Limit, tenant, name string, change limits.Change) (limitlua.Spec, error) {
	i := slices.IndexFunc(rules, func(l limits.Limit) bool { return l.Name == name })
	if i < 0 {
		return limitlua.Spec{}, errors.New("the queue no longer has this limit")
	}
	limit := e.Published(rules[i], tenant)
	if err := limit.CheckChange(change); err != nil {
		return limitlua.Spec{}, err
	}
	return Spec(limit.With(change)), nil
}

// Published returns a limit as it was published for a tenant: without an override.
func (e *Limits) Published(limit limits.Limit, tenant string) limits.Limit {
	if own, ok := e.Tenants[tenant].Limits[limit.Name]; ok {
		return withSpec(limit, own)
	}
	return limit
}

// Tenant returns what was published for an escaped tenant of a queue with these limits.
func (e *Limits) Tenant(queue, tenant string, rules []limits.Limit) (limits.Tenant, error) {
	own := e.Tenants[tenant]
	window, err := sendwindow.Parse(own.Window)
	if own.Window != "" && err != nil {
		return limits.Tenant{}, err
	}
	t := limits.Tenant{Weight: own.Weight, Guarantee: own.guarantee(), Group: store.Unescape(own.Group), SendWindow: window, Limits: map[string]map[string]limits.Change{}}
	for _, rule := range rules {
		if _, differs := own.Limits[rule.Name]; differs && !ofGroup(rule.Per) {
			if t.Limits[queue] == nil {
				t.Limits[queue] = map[string]limits.Change{}
			}
			t.Limits[queue][rule.Name] = changeBetween(rule, e.Published(rule, tenant))
		}
	}
	return t, nil
}

// ofGroup reports whether a limit with this `per` can differ for a group, and not for a tenant.
func ofGroup(per []string) bool {
	return slices.Contains(per, limits.GroupAttribute) && !slices.Contains(per, "tenant")
}

// GroupChanges returns what was published for the group of an escaped tenant, of a queue with these limits.
func (e *Limits) GroupChanges(tenant string, rules []limits.Limit) map[string]limits.Change {
	changes := map[string]limits.Change{}
	for _, rule := range rules {
		if _, differs := e.Tenants[tenant].Limits[rule.Name]; differs && ofGroup(rule.Per) {
			changes[rule.Name] = changeBetween(rule, e.Published(rule, tenant))
		}
	}
	return changes
}

// changeBetween returns the change that makes one limit from the other.
func changeBetween(from, to limits.Limit) (c limits.Change) {
	if from.Rate != to.Rate {
		c.Rate = &to.Rate
	}
	if from.Burst != to.Burst {
		c.Burst = &to.Burst
	}
	if from.Capacity != to.Capacity {
		c.Capacity = &to.Capacity
	}
	if from.Concurrency != to.Concurrency {
		c.Concurrency = &to.Concurrency
	}
	return c
}

// withSpec returns the limit from which a spec was made; it differs from l by a
// [limits.Change].
func withSpec(l limits.Limit, spec limitlua.Spec) limits.Limit {
	switch spec.Algorithm {
	case "cc":
		l.Concurrency = spec.Burst
	case "tb", "lb", "lm":
		l.Rate = throttle.Rate{Count: spec.Flow, Period: time.Duration(spec.Permit) * time.Microsecond}
		if spec.Algorithm == "tb" {
			l.Burst = spec.Burst
		} else {
			l.Capacity = spec.Burst
		}
	default:
		l.Rate.Count = spec.Burst
		if l.Location == nil {
			l.Rate.Period = time.Duration(spec.Window) * time.Microsecond
		}
	}
	return l
}

// Problem returns why an override of a tenant does not fit its limit; "" if there is no
// such override.
func (e *Limits) Problem(limit, tenant string) string {
	o, ok := e.Overrides[tenant][limit]
	if !ok || !o.Holds(e.Now) || o.Limit != nil {
		return ""
	}
	return fmt.Sprintf("override (%s, by %s) is not in force: %s", o.Change, o.Actor, o.Problem)
}
