package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/fluid"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

// TenantDetail is a tenant in one queue, and everything that holds it.
type TenantDetail struct {
	TenantRow

	// Limits are those that its jobs have to pass, in the order of the limits file: all
	// of them have to admit a job at the same moment. Limits per attribute are those of
	// the lane in which most of its jobs wait.
	Limits []LimitState

	// Slots are when its next calls are expected, 20 at most; fewer if fewer jobs wait,
	// or if it is not known.
	Slots []time.Time

	WindowOpens time.Time // its send window is closed until then; zero: it is open

	// Recent are its last runs, newest first, 20 at most, from the last 500 runs of the
	// queue.
	Recent []Event
}

// LimitState is a limit with the state of its bucket.
type LimitState struct {
	limits.Effective

	Scope    string  // whose bucket it is: "tenant acme", "the whole queue"
	Level    float64 // permits in the bucket; negative if permits were given ahead
	Capacity float64 // permits in a full bucket

	Next        time.Time // when it next admits a job; zero: not known
	Binding     bool      // it is the limit that holds the tenant
	PausedUntil time.Time // until then, because a provider asked for fewer calls; zero: not paused
	Adapted     float64   // the part to which an adaptive limit is lowered; 1: it is not
	Lowered     Lowered   // why it is

	Ramp *RampState // how far it has grown; nil: it has no ramp
}

const (
	MaxSlots       = 20  // maximum number of forecast slots
	maxRecent      = 20  // maximum number of runs of a tenant, from
	eventsSearched = 500 // runs of its queue
)

// Tenant returns the state of a tenant in a queue. An unknown tenant has no waiting jobs,
// but has limits. Errors: [validation.Error].
func (in *Inspector) Tenant(ctx context.Context, queue, tenant string) (TenantDetail, error) {
	if reason := check.Text(tenant, check.MaxTenant); reason != "" {
		return TenantDetail{}, validation.Field("tenant", reason)
	}
	if err := store.CheckQueue(ctx, in.redis, queue); err != nil {
		return TenantDetail{}, err
	}
	var d TenantDetail
	home, err := in.home(ctx, queue, tenant)
	if err == nil {
		err = in.ask(ctx, home, func(f *forecast) error {
			known, err := in.lanesKnown(ctx, f)
			if err == nil {
				d, err = f.tenant(ctx, in.redis, known, rediskey.Escape(tenant))
			}
			return err
		})
	}
	if err == nil {
		d.Recent, err = recentOf(ctx, in.redis, home, tenant)
	}
	if err != nil {
		return TenantDetail{}, fmt.Errorf("tenant %s of queue %q: %w", check.Quote(tenant), queue, err)
	}
	return d, nil
}

func recentOf(ctx context.Context, client redis.UniversalClient, queue, tenant string) ([]Event, error) {
	events, err := readEvents(ctx, client, queue, eventPlace{}, eventsSearched)
	if err != nil {
		return nil, err
	}
	events = slices.DeleteFunc(events, func(e Event) bool { return e.Tenant != tenant })
	slices.Reverse(events)
	return events[:min(len(events), maxRecent)], nil
}

// lanesKnown returns the list in which the lanes of a tenant are found that were not
// drawn; nil if it is not needed.
func (in *Inspector) lanesKnown(ctx context.Context, f *forecast) (*tenantList, error) {
	if f.part == 1 || len(f.limits.Queue.Attributes) == 0 {
		return nil, nil
	}
	return in.tenantList(ctx, f.queue)
}

func (f *forecast) tenant(ctx context.Context, client redis.UniversalClient, known *tenantList, tenant string) (TenantDetail, error) {
	rows, err := f.tenantRows(ctx, client, known, []string{tenant})
	if err != nil {
		return TenantDetail{}, err
	}
	d := TenantDetail{TenantRow: rows[0]}
	var widest *lane
	for i := range f.lanes {
		if l := &f.lanes[i]; l.Tenant == tenant && (widest == nil || l.jobs > widest.jobs) {
			widest = l
		}
	}
	if err := f.look(ctx, client, widest.Name, ""); err != nil {
		return TenantDetail{}, err
	}
	d.Now = f.asked // when the limits were read, later than a shared reading
	if d.Limits, err = f.limitStates(ctx, client, widest, d.HeldBy); err != nil {
		return TenantDetail{}, err
	}
	if d.Slots, err = f.slots(tenant, widest); err != nil {
		return TenantDetail{}, err
	}
	hours, _, err := f.openings(widest)
	if err == nil && len(hours) > 0 && hours[0] > 0 {
		d.WindowOpens = f.at(hours[0])
	}
	return d, err
}

// limitStates returns the limits of the lane that was looked at.
func (f *forecast) limitStates(ctx context.Context, client redis.UniversalClient, l *lane, held *Hold) ([]LimitState, error) {
	pipe := client.Pipeline()
	under := map[string]*redis.IntCmd{}
	seen := map[string]limitSeen{}
	for _, limit := range f.seen.limits {
		seen[limit.name] = limit
		if limit.algorithm == "cc" {
			under[limit.name] = pipe.ZCard(ctx, limit.key)
		}
	}
	if len(under) > 0 {
		if err := store.Execute(ctx, pipe); err != nil {
			return nil, err
		}
	}
	var all []LimitState
	for i, limit := range f.rules.Limits {
		if !store.Holds(limit, &l.Lane) {
			continue
		}
		s := LimitState{Effective: f.limits.Of(i, l.Tenant), Scope: scopeText(limit, l), Adapted: 1, Ramp: f.rampState(i, l)}
		s.Binding = held != nil && held.Limit == limit.Name
		if next, known := seen[limit.Name]; known && next.next.UnixMicro() < store.Endless {
			s.Next = next.next
		}
		spec := f.spec(i, l)
		if calls := under[limit.Name]; calls != nil {
			s.Capacity, s.Level = float64(spec.Burst), float64(spec.Burst-calls.Val())
			if s.Level <= 0 {
				s.Next = time.Time{} // when a call ends, which is not known
			}
		} else if spec.Algorithm != "cc" {
			b, paused, err := f.bucket(i, l, spec)
			if err != nil {
				return nil, err
			}
			s.Level, s.Capacity = b.Level, b.Max
			s.Adapted, s.Lowered = f.lowered(i, l)
			if until := f.at(paused); paused > 0 && until.After(f.asked) {
				s.PausedUntil = until
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// slots returns when the next jobs of a tenant go. looked is the lane that was looked at.
func (f *forecast) slots(tenant string, looked *lane) ([]time.Time, error) {
	var lanes []subject
	var watched []*fluid.Member
	for i := range f.lanes {
		l := f.lanes[i]
		s := subject{l.Name, float64(l.jobs), f.costOf(&l), nil}
		went := int64(0)
		if l.Name == looked.Name {
			went = f.went(&l)
			s.jobs, s.costs = float64(f.seen.place.length+went), f.seen.cost
		}
		if l.Tenant != tenant || s.jobs <= 0 || len(lanes) == maxLanesOfOne {
			continue
		}
		for turn := went + 1; turn <= went+MaxSlots && float64(turn) <= s.jobs; turn++ {
			s.watched = append(s.watched, &fluid.Member{Jobs: float64(turn)})
		}
		watched = append(watched, s.watched...)
		lanes = append(lanes, s)
	}
	if len(watched) == 0 {
		return nil, nil
	}
	m, _, err := f.model(lanes...)
	if err != nil {
		return nil, err
	}
	m.Run(nil)
	var slots []time.Time
	for _, one := range watched {
		if at := f.notBefore(one.At); !at.IsZero() {
			slots = append(slots, at)
		}
	}
	slices.SortFunc(slots, time.Time.Compare)
	return slots[:min(len(slots), MaxSlots)], nil
}

// Preview is a tenant's outlook with and without a change of a limit.
type Preview struct{ Before, After Outlook }

// Preview returns what a change of a limit for one tenant would do to its backlog,
// without making it. Its errors for a change that cannot be made are those of
// [operate.SetOverride].
func (in *Inspector) Preview(ctx context.Context, queue, tenant, limit string, change limits.Change) (Preview, error) {
	if err := store.CheckTenant(ctx, in.redis, queue, tenant); err != nil {
		return Preview{}, err
	}
	escaped := rediskey.Escape(tenant)
	home, err := in.home(ctx, queue, tenant)
	if err != nil {
		return Preview{}, err
	}
	e, rules, err := effective.ReadTenants(ctx, in.redis, home, escaped)
	if err != nil {
		return Preview{}, fmt.Errorf("limits of queue %q: %w", queue, err)
	}
	i := slices.IndexFunc(rules, func(l limits.Limit) bool { return l.Name == limit })
	if i < 0 {
		return Preview{}, effective.NoSuchLimit(queue, limit, rules)
	}
	published := e.Published(rules[i], escaped)
	if err := effective.CheckOverride(published, change); err != nil {
		return Preview{}, err
	}
	var p Preview
	err = in.ask(ctx, home, func(f *forecast) error {
		known, err := in.lanesKnown(ctx, f)
		if err != nil {
			return err
		}
		if err := f.focus(ctx, in.redis, known, escaped); err != nil {
			return err
		}
		after := f.changed(escaped, limit, effective.Spec(published.With(change)))
		for of, o := range map[*forecast]*Outlook{f: &p.Before, after: &p.After} {
			run, err := of.all()
			if err != nil {
				return err
			}
			*o = of.outlooks(run.members, escaped)[escaped]
		}
		return nil
	})
	if err != nil && !validation.Is(err) {
		err = fmt.Errorf("preview of limit %q for tenant %s in queue %q: %w", limit, check.Quote(tenant), queue, err)
	}
	return p, err
}

// changed returns the forecast with another limit for one tenant.
func (f *forecast) changed(tenant, limit string, spec limitlua.Spec) *forecast {
	after := f.copy()
	after.run = &modelRun{}
	after.limits.Overrides = maps.Clone(f.limits.Overrides)
	own := maps.Clone(f.limits.Overrides[tenant])
	if own == nil {
		own = map[string]effective.Override{}
	}
	own[limit] = effective.Override{Limit: &spec}
	after.limits.Overrides[tenant] = own
	return after
}
