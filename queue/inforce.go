package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// InForce is a limit as it holds for one tenant, or for all.
type InForce struct {
	Name      string
	Per       []string
	Unit      string
	Algorithm throttle.Algorithm

	Rate        string // as in the limits file; "" for a concurrency
	Burst       int64  // 0: the algorithm has none
	Capacity    int64  // of a leaky bucket; 0: any
	Concurrency int64

	From   string    // "queue", "tenant" (or its plan), or "override"
	Until  time.Time // of an override; zero: until it is cleared
	Actor  string    // of an override
	Reason string    // of an override

	// NotInForce says which override of the tenant does not fit the limit, and why:
	// limits were published since that it cannot be made of. "": there is none.
	NotInForce string
}

// LimitsInForce lists the limits of a queue as they hold for a tenant, or with
// "" those that hold where nothing differs.
func LimitsInForce(ctx context.Context, client redis.UniversalClient, queue, tenant string) ([]InForce, error) {
	if reason := check.Text(tenant, check.MaxTenant); tenant != "" && reason != "" {
		return nil, validation.Field("tenant", reason)
	}
	if err := checkQueue(ctx, client, queue); err != nil {
		return nil, err
	}
	field := throttle.Escape(tenant)
	e, _, err := tenantLimits(ctx, client, queue, field)
	if err != nil {
		return nil, fmt.Errorf("limits of queue %q: %w", queue, err)
	}
	all := make([]InForce, len(e.queue.Limits))
	for i := range e.queue.Limits {
		all[i] = e.inForce(i, field)
	}
	return all, nil
}

// inForce is the i-th limit for an escaped tenant.
func (e *effective) inForce(i int, tenant string) InForce {
	limit := e.queue.Limits[i]
	f := InForce{Name: limit.Name, Per: limit.Per, Unit: limit.Unit, Algorithm: limit.Text.Algorithm, From: "queue"}
	if _, ok := e.tenants[tenant].Limits[limit.Name]; ok {
		f.From = "tenant"
	}
	f.NotInForce = e.notInForce(limit.Name, tenant)
	if o, ok := e.override(limit.Name, tenant); ok {
		f.From = "override"
		f.by(o)
	}
	spec := e.spec(i, tenant)
	if spec.Algorithm == "cc" {
		f.Concurrency = spec.Burst
		return f
	}
	f.Rate = rateOf(spec, limit.Text.Rate)
	switch spec.Algorithm {
	case "tb":
		f.Burst = spec.Burst
	case "lb", "lm":
		f.Capacity = spec.Burst
	}
	return f
}

// by notes who made an override, why, and until when.
func (f *InForce) by(o storedOverride) {
	f.Actor, f.Reason = o.Actor, o.Reason
	if o.Until != 0 {
		f.Until = time.UnixMicro(o.Until)
	}
}

// rateOf writes a spec's rate as people would. Windows of a calendar are those
// of the limit's own rate.
func rateOf(spec throttle.Spec, own string) string {
	switch spec.Algorithm {
	case "fw", "sl", "sc":
		if spec.Window == 0 {
			_, period, _ := strings.Cut(own, "/")
			return strconv.FormatInt(spec.Burst, 10) + "/" + period
		}
		return throttle.Rate{Count: spec.Burst, Period: time.Duration(spec.Window) * time.Microsecond}.String()
	}
	for _, period := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		if units := period.Microseconds() * spec.Flow; units%spec.Permit == 0 {
			return throttle.Rate{Count: units / spec.Permit, Period: period}.String()
		}
	}
	return throttle.Rate{Count: spec.Flow, Period: time.Duration(spec.Permit) * time.Microsecond}.String()
}

// String is the limit in a few words, for the audit and for people. Of a limit that is
// not there any more it is "none".
func (f InForce) String() string {
	if f.Rate == "" && f.Concurrency == 0 {
		return "none"
	}
	if f.Rate == "" {
		return fmt.Sprintf("%d at once", f.Concurrency)
	}
	text := f.Rate
	if f.Burst > 0 {
		text += fmt.Sprintf(", burst %d", f.Burst)
	}
	if f.Capacity > 0 {
		text += fmt.Sprintf(", capacity %d", f.Capacity)
	}
	return text
}
