package effective

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// ReadTenants reads the limits of a queue, and the differences and overrides of escaped tenants.
func ReadTenants(ctx context.Context, client redis.Cmdable, queue string, tenants ...string) (e Limits, rules []limits.Limit, err error) {
	fields := []string{"*"}
	for _, tenant := range tenants {
		fields = append(fields, "t:"+tenant)
	}
	pipe := client.Pipeline()
	limits := pipe.HMGet(ctx, store.Key(queue, "limits"), fields...)
	overrides := pipe.HMGet(ctx, store.Key(queue, "overrides"), tenants...)
	now := store.AddTime(ctx, pipe, client, store.Key(queue, "limits"))
	if err := store.Execute(ctx, pipe); err != nil {
		return e, nil, err
	}
	stored, changed := map[string]string{}, map[string]string{}
	for i, name := range fields {
		if text, ok := limits.Val()[i].(string); ok {
			stored[name] = text
		}
	}
	for i, tenant := range tenants {
		if text, ok := overrides.Val()[i].(string); ok {
			changed[tenant] = text
		}
	}
	if e, err = Read(stored, changed, now.Val()); err != nil {
		return e, nil, err
	}
	q, err := e.Queue.Decode()
	return e, q.Limits, err
}

// InWords returns a limit of a tenant as text, for the audit: the i-th of the queue, or
// with i < 0 a limit that the queue no longer has. nil if there is nothing to say.
func (e *Limits) InWords(i int, limit, tenant string) map[string]string {
	text := e.Problem(limit, tenant)
	if i >= 0 {
		in := e.Of(i, tenant).String()
		if text != "" {
			in += "; " + text
		}
		text = in
	}
	if text == "" {
		return nil
	}
	return map[string]string{limit: text}
}

// Of returns the i-th limit of the queue for an escaped tenant.
func (e *Limits) Of(i int, tenant string) limits.Effective {
	limit := e.Queue.Limits[i]
	f := limits.Effective{Name: limit.Name, Per: limit.Per, Unit: limit.Unit, Queues: limit.Queues, For: limit.For, Algorithm: limit.Text.Algorithm, From: "queue"}
	if _, ok := e.Tenants[tenant].Limits[limit.Name]; ok {
		f.From = "tenant"
	}
	f.NotInEffect = e.Problem(limit.Name, tenant)
	if rate, err := throttle.ParseRate(limit.Text.Rate); err == nil {
		f.Ramp = limit.Ramp.decode(rate)
	}
	if o, ok := e.Override(limit.Name, tenant); ok {
		f.From, f.Ramp = "override", nil
		By(&f, o)
	}
	spec := e.Spec(i, tenant)
	if spec.Algorithm == "cc" {
		f.Concurrency = spec.Burst
		return f
	}
	f.Rate = RateOf(spec, limit.Text.Rate)
	switch spec.Algorithm {
	case "tb":
		f.Burst = spec.Burst
	case "lb", "lm":
		f.Capacity = spec.Burst
	}
	return f
}

// By sets who made an override, why, and until when.
func By(f *limits.Effective, o Override) {
	f.Actor, f.Reason = o.Actor, o.Reason
	if o.Until != 0 {
		f.Until = time.UnixMicro(o.Until)
	}
}

// RateOf returns a spec's rate as people would write it: in the period of the limit's own rate,
// so that the rates of all tenants can be compared, if it is whole in that.
func RateOf(spec limitlua.Spec, own string) string {
	switch spec.Algorithm {
	case "fw", "sl", "sc":
		if spec.Window == 0 {
			_, period, _ := strings.Cut(own, "/")
			return strconv.FormatInt(spec.Burst, 10) + "/" + period
		}
		return throttle.Rate{Count: spec.Burst, Period: time.Duration(spec.Window) * time.Microsecond}.String()
	}
	periods := []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}
	if rate, err := throttle.ParseRate(own); err == nil && rate.Period > 0 {
		periods = slices.Insert(periods, 0, rate.Period)
	}
	for _, period := range periods {
		if units := period.Microseconds() * spec.Flow; units%spec.Permit == 0 {
			return throttle.Rate{Count: units / spec.Permit, Period: period}.String()
		}
	}
	return throttle.Rate{Count: spec.Flow, Period: time.Duration(spec.Permit) * time.Microsecond}.String()
}

// details returns what a limit has besides its algorithm and its numbers.
func (l Limit) details() (text string) {
	if len(l.Per) > 0 {
		text += ", per " + strings.Join(l.Per, " and ")
	}
	if l.Unit != "" {
		text += ", unit " + l.Unit
	}
	if l.Text.Timezone != "" {
		text += ", " + l.Text.Timezone
	}
	if l.Adaptive {
		text += ", adaptive"
	}
	if l.For != limits.Both {
		text += ", for " + string(l.For)
	}
	if len(l.Queues) > 0 {
		text += ", one budget of " + strings.Join(l.Queues, ", ")
	}
	return text
}

// Texts returns the limits as texts by name: those of the queue under their names,
// differences under "TENANT: NAME" or "group GROUP: NAME", overrides under "TENANT: override of NAME".
func (e Limits) Texts() map[string]string {
	all := map[string]string{}
	for tenant, overrides := range e.Overrides {
		for limit, o := range overrides {
			if o.Holds(e.Now) {
				i := slices.IndexFunc(e.Queue.Limits, func(l Limit) bool { return l.Name == limit })
				all[store.Unescape(tenant)+": override of "+limit] = e.InWords(i, limit, tenant)[limit]
			}
		}
	}
	e.Overrides = nil // the rest is what was published
	number := func(name string, n int64) {
		if n != 0 {
			all[name] = strconv.FormatInt(n, 10)
		}
	}
	number("max_backlog", e.Queue.MaxBacklog)
	number("max_backlog_bytes", e.Queue.MaxBacklogBytes)
	number("max_queue", e.Queue.MaxQueue)
	number("max_queue_bytes", e.Queue.MaxQueueBytes)
	number("partitions", int64(e.Queue.Partitions))
	for tenant, i := range e.Pins {
		number(tenant+": partition", int64(i))
	}
	if e.Queue.MaxRetention != 0 {
		all["max_retention"] = (time.Duration(e.Queue.MaxRetention) * time.Second).String()
	}
	if e.Queue.Durability != "" {
		all["durability"] = string(e.Queue.Durability)
	}
	for kind, window := range e.Queue.SendWindows {
		all["send_windows: "+kind] = window
	}
	if e.Queue.Conformance {
		all["conformance"] = "true"
	}
	if len(e.Queue.Kinds) > 0 {
		all["kinds"] = strings.Join(e.Queue.Kinds, ", ")
	}
	perGroup := map[string]bool{} // by limit
	for i, limit := range e.Queue.Limits {
		name := TextName(limit.Name)
		perGroup[name] = ofGroup(limit.Per)
		all[name] = string(limit.Text.Algorithm) + " " + e.Of(i, "").String() + limit.details()
	}
	for escaped, own := range e.Tenants {
		for name, text := range e.Own(escaped) {
			of := store.Unescape(escaped)
			if perGroup[name] { // all tenants of the group have the same difference
				of = "group " + store.Unescape(own.Group)
			}
			all[of+": "+name] = text
		}
	}
	return all
}

// settings are the names that [Limits.Texts] and [Limits.Own] have for what is not a limit, of queues and of tenants.
var settings = []string{
	"kinds", "max_backlog", "max_backlog_bytes", "max_queue", "max_queue_bytes", "max_retention", "durability", "partitions", "conformance",
	"weight", "in group", "guarantee", "send_window", "partition",
}

// TextName returns the name of a limit in [Limits.Texts] and [Limits.Own]: with "limit " in front if a setting has its name, too.
func TextName(limit string) string {
	if slices.Contains(settings, limit) {
		return "limit " + limit
	}
	return limit
}

// Own returns what was published for a tenant alone, as texts by name; overrides are left out.
func (e Limits) Own(escaped string) map[string]string {
	e.Overrides = nil
	own, all := e.Tenants[escaped], map[string]string{}
	if own.Weight != 0 && own.Weight != 1 {
		all["weight"] = strconv.FormatFloat(own.Weight, 'g', -1, 64)
	}
	if own.Group != "" {
		all["in group"] = store.Unescape(own.Group)
	}
	if own.Part > 0 {
		all["guarantee"] = limits.Percent(own.guarantee())
	}
	if own.Window != "" {
		all["send_window"] = own.Window
	}
	for i, limit := range e.Queue.Limits {
		if _, differs := own.Limits[limit.Name]; differs {
			all[TextName(limit.Name)] = e.Of(i, escaped).String()
		}
	}
	return all
}
