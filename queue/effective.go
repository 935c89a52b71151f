package queue

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/throttle"
)

// effective is the limits in force for a queue, with what differs by tenant, as
// the scripts see them.
type effective struct {
	queue     storedQueue
	tenants   map[string]storedTenant              // by escaped tenant
	overrides map[string]map[string]storedOverride // by escaped tenant and limit
	now       time.Time
}

// effectiveOf reads the hashes of limits and of overrides.
func effectiveOf(limits, overrides map[string]string, now time.Time) (effective, error) {
	e := effective{now: now}
	var tenants []string
	var texts []any
	for field, text := range limits {
		if field == "*" {
			if err := json.Unmarshal([]byte(text), &e.queue); err != nil {
				return effective{}, err
			}
			continue
		}
		tenants, texts = append(tenants, field[len("t:"):]), append(texts, text)
	}
	if err := e.tenantsOf(tenants, texts); err != nil {
		return effective{}, err
	}
	return e, e.overridesOf(overrides)
}

// tenantsOf adds what differs for tenants. Those of one plan have the same text,
// which is decoded once.
func (e *effective) tenantsOf(tenants []string, texts []any) error {
	if e.tenants == nil {
		e.tenants = make(map[string]storedTenant, len(tenants))
	}
	known := map[string]storedTenant{}
	for i, text := range texts {
		text, ok := text.(string)
		if !ok {
			continue
		}
		own, seen := known[text]
		if !seen {
			if err := json.Unmarshal([]byte(text), &own); err != nil {
				return fmt.Errorf("limits of tenant %s: %w", check.Quote(tenants[i]), err)
			}
			known[text] = own
		}
		e.tenants[tenants[i]] = own
	}
	return nil
}

func (e *effective) overridesOf(texts map[string]string) error {
	e.overrides = make(map[string]map[string]storedOverride, len(texts))
	for tenant, text := range texts {
		var all map[string]storedOverride
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return fmt.Errorf("overrides of tenant %s: %w", check.Quote(tenant), err)
		}
		e.overrides[tenant] = all
	}
	return nil
}

// override is what an operator changed of a limit for a tenant, while it is in force.
func (e *effective) override(limit, tenant string) (storedOverride, bool) {
	o, ok := e.overrides[tenant][limit]
	return o, ok && o.Limit != nil && o.holds(e.now)
}

// spec is the i-th limit as it holds for one tenant.
func (e *effective) spec(i int, tenant string) throttle.Spec {
	limit := &e.queue.Limits[i]
	if o, ok := e.override(limit.Name, tenant); ok {
		return *o.Limit
	}
	if own, ok := e.tenants[tenant].Limits[limit.Name]; ok {
		return own
	}
	return limit.Spec
}

func (e *effective) weight(tenant string) float64 { return cmp.Or(e.tenants[tenant].Weight, 1) }
