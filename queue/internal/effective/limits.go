// Package effective reads the effective limits of a queue from Redis: the published
// limits with the overrides of operators applied.
package effective

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// Limits is the effective limits of a queue, with the differences of tenants, as the
// scripts see them.
type Limits struct {
	Queue     Queue
	Tenants   map[string]Tenant              // by escaped tenant
	Overrides map[string]map[string]Override // by escaped tenant and limit
	Pins      map[string]int                 // partitions of pinned tenants
	Now       time.Time
}

// Read decodes the hashes of limits and of overrides.
func Read(limits, overrides map[string]string, now time.Time) (Limits, error) {
	e := Limits{Now: now}
	var tenants []string
	var texts []any
	for field, text := range limits {
		if field == "*" {
			if err := json.Unmarshal([]byte(text), &e.Queue); err != nil {
				return Limits{}, err
			}
			continue
		}
		if field == store.PinsField {
			if err := json.Unmarshal([]byte(text), &e.Pins); err != nil {
				return Limits{}, err
			}
			continue
		}
		if tenant, ok := strings.CutPrefix(field, "t:"); ok {
			tenants, texts = append(tenants, tenant), append(texts, text)
		}
	}
	if err := e.ReadTenants(tenants, texts); err != nil {
		return Limits{}, err
	}
	return e, e.ReadOverrides(overrides)
}

// ReadTenants adds the differences of tenants. Tenants of one plan have the same text,
// which is decoded once.
func (e *Limits) ReadTenants(tenants []string, texts []any) error {
	if e.Tenants == nil {
		e.Tenants = make(map[string]Tenant, len(tenants))
	}
	known := map[string]Tenant{}
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
		e.Tenants[tenants[i]] = own
	}
	return nil
}

func (e *Limits) ReadOverrides(texts map[string]string) error {
	e.Overrides = make(map[string]map[string]Override, len(texts))
	for tenant, text := range texts {
		var all map[string]Override
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return fmt.Errorf("overrides of tenant %s: %w", check.Quote(tenant), err)
		}
		e.Overrides[tenant] = all
	}
	return nil
}

// Override returns an operator's override of a limit for a tenant, if it is in force.
func (e *Limits) Override(limit, tenant string) (Override, bool) {
	o, ok := e.Overrides[tenant][limit]
	return o, ok && o.Limit != nil && o.Holds(e.Now)
}

// Spec returns the i-th limit of the queue for one tenant.
func (e *Limits) Spec(i int, tenant string) limitlua.Spec {
	limit := &e.Queue.Limits[i]
	if o, ok := e.Override(limit.Name, tenant); ok {
		return *o.Limit
	}
	if own, ok := e.Tenants[tenant].Limits[limit.Name]; ok {
		return own
	}
	return limit.Spec
}

func (e *Limits) Weight(tenant string) float64 { return cmp.Or(e.Tenants[tenant].Weight, 1) }

// Guarantee returns the part of shared limits that is guaranteed to a tenant, 0 to 1.
func (e *Limits) Guarantee(tenant string) float64 { return e.Tenants[tenant].guarantee() }

func (t Tenant) guarantee() float64 { return float64(t.Part) / limits.GuaranteeParts }
