package queue

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// Limits is everything that shapes the queues, usually read from a file and
// put in force with [Publish].
type Limits struct {
	Queues  map[string]QueueLimits
	Tenants map[string]TenantLimits // what differs for one tenant, plans resolved
}

// QueueLimits shapes one queue, which stands for one provider account.
type QueueLimits struct {
	// Kinds of jobs that go to this queue by default. A kind has one queue.
	Kinds []string

	// Limits hold together: a job goes at a moment at which all admit it.
	Limits []Limit

	// MaxBacklog is how many jobs of one tenant may wait in lanes; more are refused
	// with [ErrBacklogFull], whenever they are for. Jobs for later count once they
	// are due. 0: no bound.
	MaxBacklog int64

	// MaxQueue is how many jobs of all tenants together may wait; more are
	// refused with [ErrBacklogFull]. 0: no bound.
	MaxQueue int64

	// SendWindows say when jobs of a kind may go, and under [AllKinds] when any
	// job of the queue may. They hold together, as limits do: a kind with a
	// window of its own keeps to both.
	SendWindows map[string]sendwindow.Window
}

// AllKinds stands for every kind of a queue in [QueueLimits.SendWindows].
const AllKinds = "*"

// Limit is a rule of a queue. Shards and leases are not for queues: their limits
// are taken together, and a job's permit comes back when the job ends.
type Limit struct {
	throttle.Limit

	// Per names what has a bucket of its own: "tenant", or an attribute of the
	// job. Empty: one bucket for the whole queue. Jobs without the attribute
	// share the bucket of the empty value.
	Per []string

	// Unit names what the limit counts, such as tokens: a job takes as many
	// permits as its costs name of it. Empty: the job's cost. A concurrency has
	// none, for it counts jobs.
	Unit string

	// Adaptive lets the rate fall when the provider asks for fewer calls, and
	// rise again while it does not; the limit's own rate is the most. Only a
	// limit with a rate has it.
	Adaptive bool
}

// TenantLimits is what differs for one tenant.
type TenantLimits struct {
	// Weight is the tenant's part of shared limits, beside others' weights,
	// 0.001 to 1,000; 0 means 1.
	Weight float64

	// Limits holds changes by queue and by the limit's name.
	Limits map[string]map[string]Change

	// SendWindow says when the tenant's jobs may go, in all queues, besides the
	// queues' own windows.
	SendWindow sendwindow.Window
}

// Change replaces the parts of a limit that are not nil.
type Change struct {
	Rate        *throttle.Rate `json:"rate,omitempty"`
	Burst       *int64         `json:"burst,omitempty"`
	Capacity    *int64         `json:"capacity,omitempty"`
	Concurrency *int64         `json:"concurrency,omitempty"`
}

func (l Limit) changed(c Change) Limit {
	if c.Rate != nil {
		l.Rate = *c.Rate
	}
	if c.Burst != nil {
		l.Burst = *c.Burst
	}
	if c.Capacity != nil {
		l.Capacity = *c.Capacity
	}
	if c.Concurrency != nil {
		l.Concurrency = *c.Concurrency
	}
	return l
}

const mostLimits = 16

// Validate reports everything that makes the limit unusable, or nil. Each error
// begins with the field's name, as in the file.
func (l Limit) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !check.AttributePattern.MatchString(strings.ReplaceAll(l.Name, "-", "_")) {
		wrong("name: %s is not 1 to 64 of a-z, 0-9, '_' and '-'", check.Quote(l.Name))
	}
	seen := map[string]bool{}
	for _, attr := range l.Per {
		if !check.AttributePattern.MatchString(attr) {
			wrong("per: %s is not 1 to 64 of a-z, 0-9 and '_'", check.Quote(attr))
		}
		if seen[attr] {
			wrong("per: %s stands twice", check.Quote(attr))
		}
		seen[attr] = true
	}
	if l.Unit != "" {
		if !check.AttributePattern.MatchString(l.Unit) {
			wrong("unit: %s is not 1 to 64 of a-z, 0-9 and '_'", check.Quote(l.Unit))
		}
		if l.Algorithm == throttle.Concurrency {
			wrong("unit: a concurrency counts jobs, whatever they cost")
		}
	}
	if l.Adaptive && l.Algorithm == throttle.Concurrency {
		wrong("adaptive: only a limit with a rate adapts")
	}
	if l.Shards != 0 {
		wrong("shards: a queue's limits are taken together, so none of them can be split")
	}
	if l.Lease != 0 {
		wrong("lease: a job holds its permit until it ends")
	}
	for _, err := range validation.Unjoin(l.Limit.Validate()) {
		// The name was checked above, more strictly.
		if !strings.HasPrefix(err.Error(), "name: ") {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// checkChange reports why a change cannot be made to a limit, or nil.
func (l Limit) checkChange(c Change) error {
	if !slices.Contains(l.Per, "tenant") {
		return errors.New("tenants share this limit: it cannot differ for one of them")
	}
	if c.Concurrency != nil && l.Algorithm != throttle.Concurrency {
		return errors.New("concurrency: this limit has a rate")
	}
	after := l.changed(c)
	if l.Location != nil && (after.Rate.Period != l.Rate.Period || after.Rate.Months != l.Rate.Months) {
		return fmt.Errorf("rate: the windows of this limit are those of %v for every tenant", l.Rate)
	}
	return after.Validate()
}

// Validate reports every mistake as a [validation.Error], joined, or nil.
func (l Limits) Validate() error {
	var errs []error
	wrong := func(path, format string, args ...any) {
		errs = append(errs, validation.Field(path, fmt.Sprintf(format, args...)))
	}
	// at puts a limit's own "field: reason" errors under its path.
	at := func(path string, err error) {
		if err == nil {
			return
		}
		for _, err := range validation.Unjoin(err) {
			if field, reason, ok := strings.Cut(err.Error(), ": "); ok && check.AttributePattern.MatchString(field) {
				wrong(path+"."+field, "%s", reason)
			} else {
				wrong(path, "%v", err)
			}
		}
	}
	kinds := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(l.Queues)) {
		q, path := l.Queues[name], "queues."+name
		if !check.QueuePattern.MatchString(name) {
			wrong(path, "the name is not 1 to 64 letters, digits, '.', '_' or '-'")
		}
		for i, kind := range q.Kinds {
			if !check.KindPattern.MatchString(kind) {
				wrong(fmt.Sprintf("%s.kinds[%d]", path, i), "%s is not 1 to 64 letters, digits, '.', '_', '-' or ':'", check.Quote(kind))
			}
			if other, taken := kinds[kind]; taken {
				wrong(fmt.Sprintf("%s.kinds[%d]", path, i), "%s goes to queue %s already", check.Quote(kind), other)
			}
			kinds[kind] = name
		}
		if q.MaxBacklog < 0 {
			wrong(path+".max_backlog", "%d is negative", q.MaxBacklog)
		}
		if q.MaxQueue < 0 {
			wrong(path+".max_queue", "%d is negative", q.MaxQueue)
		}
		for _, kind := range slices.Sorted(maps.Keys(q.SendWindows)) {
			if kind != AllKinds && !slices.Contains(q.Kinds, kind) {
				wrong(path+".send_windows."+kind, "it is no kind of this queue, nor %q for all of them%s", AllKinds, check.Suggest(kind, q.Kinds))
			} else if !q.SendWindows[kind].Meet(q.SendWindows[AllKinds]) {
				wrong(path+".send_windows."+kind, "it is never open together with that of %q, and jobs keep to both", AllKinds)
			}
		}
		if len(q.Limits) > mostLimits {
			wrong(path+".limits", "%d are more than %d", len(q.Limits), mostLimits)
		}
		names := map[string]bool{}
		for i, limit := range q.Limits {
			where := fmt.Sprintf("%s.limits[%d]", path, i)
			at(where, limit.Validate())
			if names[limit.Name] && limit.Name != "" {
				wrong(where+".name", "%s is taken", check.Quote(limit.Name))
			}
			names[limit.Name] = true
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(l.Tenants)) {
		t, path := l.Tenants[tenant], "tenants."+tenant
		if reason := check.Text(tenant, check.MaxTenant); reason != "" {
			wrong("tenants", "a tenant's name: %s", reason)
		}
		if t.Weight != 0 && !(t.Weight >= 0.001 && t.Weight <= 1000) || math.IsNaN(t.Weight) {
			wrong(path+".weight", "%v is not within 0.001 to 1000", t.Weight)
		}
		for _, queue := range slices.Sorted(maps.Keys(t.Limits)) {
			q, known := l.Queues[queue]
			if !known {
				wrong(path+".limits."+queue, "there is no such queue%s", check.Suggest(queue, slices.Sorted(maps.Keys(l.Queues))))
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(t.Limits[queue])) {
				where := path + ".limits." + queue + "." + name
				i := slices.IndexFunc(q.Limits, func(limit Limit) bool { return limit.Name == name })
				if i < 0 {
					wrong(where, "queue %s has no such limit%s", queue, check.Suggest(name, limitNames(q.Limits)))
					continue
				}
				at(where, q.Limits[i].checkChange(t.Limits[queue][name]))
			}
		}
	}
	return errors.Join(errs...)
}

func limitNames(limits []Limit) []string {
	names := make([]string, len(limits))
	for i, limit := range limits {
		names[i] = limit.Name
	}
	return names
}

// attributes are the names, other than tenant, that limits are per: what splits
// lanes. Several kinds do, too: one can be paused or have hours of its own.
func (q QueueLimits) attributes() []string {
	// Pauses, send windows and workers tell kinds apart, and holds tell endpoints.
	names := map[string]bool{"kind": true, store.EndpointAttribute: true}
	for _, limit := range q.Limits {
		for _, attr := range limit.Per {
			if attr != "tenant" {
				names[attr] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// The stored form, which the scripts read: see lanes.lua.
type (
	storedQueue struct {
		// In this order, for plain_attributes.
		Attributes []string      `json:"attributes"`
		MaxBacklog int64         `json:"max_backlog,omitempty"`
		MaxQueue   int64         `json:"max_queue,omitempty"`
		Limits     []storedLimit `json:"limits"`
		Kinds      []string      `json:"kinds"`

		SendWindows map[string]string `json:"send_windows,omitempty"` // by kind
		Windows     []string          `json:"windows,omitempty"`      // all of them, tenants' too
	}
	storedLimit struct {
		Name     string        `json:"name"`
		Per      []string      `json:"per"`
		Spec     throttle.Spec `json:"spec"`
		Unit     string        `json:"unit,omitempty"`
		Adaptive bool          `json:"adaptive,omitempty"`
		Calendar string        `json:"calendar,omitempty"` // key of set_calendars
		Text     storedText    `json:"text"`
	}
	// storedText is what the spec was made from, for people and for calendars.
	storedText struct {
		Algorithm   throttle.Algorithm `json:"algorithm,omitempty"`
		Rate        string             `json:"rate,omitempty"`
		Burst       int64              `json:"burst,omitempty"`
		Capacity    int64              `json:"capacity,omitempty"`
		Concurrency int64              `json:"concurrency,omitempty"`
		Timezone    string             `json:"timezone,omitempty"`
	}
	storedTenant struct {
		Weight float64                  `json:"w,omitempty"`
		Limits map[string]throttle.Spec `json:"l,omitempty"`
		Window string                   `json:"window,omitempty"`
	}
)

// aheadOfNow is how far beyond now slots are ever granted, with room to spare.
const aheadOfNow = 3 * horizon

func (l Limit) spec() throttle.Spec {
	return l.Limit.Spec(true, aheadOfNow)
}

func (l Limit) stored() storedLimit {
	s := storedLimit{Name: l.Name, Per: l.Per, Spec: l.spec(), Unit: l.Unit, Adaptive: l.Adaptive, Text: storedText{
		Algorithm: l.Algorithm, Burst: l.Burst, Capacity: l.Capacity, Concurrency: l.Concurrency,
	}}
	if s.Per == nil {
		s.Per = []string{} // an empty list, not null, for the script
	}
	if l.Algorithm != throttle.Concurrency {
		s.Text.Rate = l.Rate.String()
	}
	if l.Location != nil {
		s.Calendar = l.Name
		s.Text.Timezone = l.Location.String()
	}
	return s
}

// limit is the way back from the stored form.
func (s storedLimit) limit() (Limit, error) {
	l := Limit{Per: s.Per, Unit: s.Unit, Adaptive: s.Adaptive, Limit: throttle.Limit{
		Name: s.Name, Algorithm: s.Text.Algorithm, Burst: s.Text.Burst, Capacity: s.Text.Capacity, Concurrency: s.Text.Concurrency,
	}}
	if s.Text.Rate != "" {
		if err := l.Rate.UnmarshalText([]byte(s.Text.Rate)); err != nil {
			return Limit{}, err
		}
	}
	if s.Text.Timezone != "" {
		loc, err := time.LoadLocation(s.Text.Timezone)
		if err != nil {
			return Limit{}, fmt.Errorf("limit %q: %w", s.Name, err)
		}
		l.Location = loc
	}
	return l, nil
}

// storedTenants are the tenants that differ in a queue.
func (l Limits) storedTenants(queue string) map[string]storedTenant {
	out := map[string]storedTenant{}
	for tenant, t := range l.Tenants {
		s := storedTenant{Weight: cmp.Or(t.Weight, 1), Window: t.SendWindow.String()}
		for name, change := range t.Limits[queue] {
			for _, limit := range l.Queues[queue].Limits {
				if limit.Name == name {
					if s.Limits == nil {
						s.Limits = map[string]throttle.Spec{}
					}
					s.Limits[name] = limit.changed(change).spec()
				}
			}
		}
		if s.Weight != 1 || s.Limits != nil || s.Window != "" {
			out[tenant] = s
		}
	}
	return out
}
