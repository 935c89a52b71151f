package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/throttle"
)

// resolve computes what each override of a tenant makes of the limits. It is done
// whenever an override or the limits change, because the scripts read the result
// alone. An override that does not fit its limit is kept, and is not in force until
// other limits are published that it fits. Overrides that have ended are dropped.
func (e *effective) resolve(rules []Limit, tenant string) {
	all := e.overrides[tenant]
	maps.DeleteFunc(all, func(_ string, o storedOverride) bool { return !o.holds(e.now) })
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

// resolveAll does so for all tenants, and returns the hash of overrides.
func (e *effective) resolveAll() (map[string]string, error) {
	q, err := e.queue.limits()
	if err != nil {
		return nil, err
	}
	hash := map[string]string{}
	for tenant, all := range e.overrides {
		e.resolve(q.Limits, tenant)
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

func (e *effective) overridden(rules []Limit, tenant, name string, change Change) (throttle.Spec, error) {
	i := slices.IndexFunc(rules, func(l Limit) bool { return l.Name == name })
	if i < 0 {
		return throttle.Spec{}, errors.New("the queue has no such limit any more")
	}
	limit := e.published(rules[i], tenant)
	if err := limit.checkChange(change); err != nil {
		return throttle.Spec{}, err
	}
	return limit.changed(change).spec(), nil
}

// published is a limit as it was published for a tenant: what it is without an
// override.
func (e *effective) published(limit Limit, tenant string) Limit {
	if own, ok := e.tenants[tenant].Limits[limit.Name]; ok {
		return limit.withSpec(own)
	}
	return limit
}

// withSpec is the limit that a spec was made of, which differs from l by a [Change].
func (l Limit) withSpec(spec throttle.Spec) Limit {
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

// notInForce is an override of a tenant that its limit does not bear, in words; "" if
// there is none.
func (e *effective) notInForce(limit, tenant string) string {
	o, ok := e.overrides[tenant][limit]
	if !ok || !o.holds(e.now) || o.Limit != nil {
		return ""
	}
	return fmt.Sprintf("override (%s, by %s) is not in force: %s", o.Change, o.Actor, o.Problem)
}

// String is the change in words: "rate 5/s, burst 10".
func (c Change) String() string {
	var parts []string
	if c.Rate != nil {
		parts = append(parts, "rate "+c.Rate.String())
	}
	for _, part := range []struct {
		name  string
		value *int64
	}{{"burst", c.Burst}, {"capacity", c.Capacity}, {"concurrency", c.Concurrency}} {
		if part.value != nil {
			parts = append(parts, part.name+" "+strconv.FormatInt(*part.value, 10))
		}
	}
	return strings.Join(parts, ", ")
}
