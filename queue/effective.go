package queue

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/headgate/headgate/throttle"
)

// effective is the limits in force for a queue, with what differs by tenant, as
// the scripts see them.
type effective struct {
	queue     storedQueue
	tenants   map[string]storedTenant // by escaped tenant
	overrides map[string]map[string]storedOverride
	now       time.Time
}

func effectiveOf(limits, overrides map[string]string, now time.Time) (effective, error) {
	e := effective{tenants: map[string]storedTenant{}, overrides: map[string]map[string]storedOverride{}, now: now}
	for field, text := range limits {
		if field == "*" {
			if err := json.Unmarshal([]byte(text), &e.queue); err != nil {
				return effective{}, err
			}
			continue
		}
		var tenant storedTenant
		if err := json.Unmarshal([]byte(text), &tenant); err != nil {
			return effective{}, err
		}
		e.tenants[field[len("t:"):]] = tenant
	}
	for tenant, text := range overrides {
		var all map[string]storedOverride
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return effective{}, err
		}
		e.overrides[tenant] = all
	}
	return e, nil
}

// spec is a limit as it holds for one tenant.
func (e effective) spec(limit storedLimit, tenant string) throttle.Spec {
	if o, ok := e.overrides[tenant][limit.Name]; ok && o.holds(e.now) {
		return o.Limit
	}
	if own, ok := e.tenants[tenant].Limits[limit.Name]; ok {
		return own
	}
	return limit.Spec
}

// drain is how long a tenant's waiting jobs take, and the limit that makes them:
// its own, or a shared one with all that wait under it.
func (e effective) drain(tenant string, waiting int64, shared drained) (string, time.Duration) {
	slowest := shared
	for _, limit := range e.queue.Limits {
		if slices.Equal(limit.Per, []string{"tenant"}) {
			if d := timeFor(e.spec(limit, tenant), limit, waiting); d > slowest.time {
				slowest = drained{limit.Name, d}
			}
		}
	}
	return slowest.limit, slowest.time
}

type drained struct {
	limit string
	time  time.Duration
}

func (e effective) sharedDrain(waiting int64) drained {
	var slowest drained
	for _, limit := range e.queue.Limits {
		if len(limit.Per) == 0 {
			if d := timeFor(limit.Spec, limit, waiting); d > slowest.time {
				slowest = drained{limit.Name, d}
			}
		}
	}
	return slowest
}

// timeFor is how long n jobs of cost 1 take under one limit.
func timeFor(spec throttle.Spec, limit storedLimit, n int64) time.Duration {
	const most = float64(100 * 365 * 24 * time.Hour)
	var micros float64
	switch spec.Algorithm {
	case "cc":
		return 0 // it depends on how long calls take
	case "fw", "sl", "sc":
		window := float64(spec.Window)
		if window == 0 {
			var rate throttle.Rate
			if rate.UnmarshalText([]byte(limit.Text.Rate)) == nil {
				window = float64(rate.Period.Microseconds()) + float64(rate.Months)*30*24*3600e6
			}
		}
		micros = float64((n-1)/max(spec.Burst, 1)) * window
	default:
		micros = float64(n) * float64(spec.Permit) / float64(spec.Flow)
	}
	return time.Duration(min(micros*1e3, most))
}
