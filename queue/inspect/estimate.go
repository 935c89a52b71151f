package inspect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/fluid"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

// Confidence is how far an expected time can be trusted: the confidence of a forecast.
type Confidence string

// The grades of confidence.
const (
	// Steady means within 5 %, if no other jobs come in and workers keep up. A limit
	// without a burst beside a busy shared limit may be off by more, because its calls
	// wait for slots of the other.
	Steady Confidence = "steady"

	// Rough means the right order of magnitude. The forecast depends on something that is
	// not fully known, such as how long calls take.
	Rough Confidence = "rough"

	// NoForecast means that it depends on an operator, or on calls that hold all permits.
	NoForecast Confidence = "none"
)

// Hold is a limit that makes jobs wait.
type Hold struct {
	Limit string // its name
	Scope string // whose bucket it is: "tenant acme", "domain example.com", "the whole queue"
	Rule  string // "10/s", "3 at a time"

	// Next is when it next admits a job; zero: not known.
	Next time.Time
}

// String returns the limit as text: limit "tenant" (10/s).
func (h Hold) String() string { return fmt.Sprintf("limit %q (%s)", h.Limit, h.Rule) }

// Outlook is a forecast of when the waiting jobs of a tenant will have gone.
type Outlook struct {
	Queue, Tenant string

	Now        time.Time // on the clock of Redis, to which all times refer
	Waiting    int64
	Rate       float64   // jobs per second that it gets after a burst; 0: no job waits, or not known
	HeldBy     *Hold     // the limit that holds it longest; nil: none, or Pause or Unserved is the reason
	Pause      *Pause    // the pause that holds it, and ends last; nil: none
	Unserved   *Unserved // why no worker takes its jobs; nil: a worker does
	DrainsAt   time.Time // when its last waiting job will have gone; zero: no job waits, or not known
	Confidence Confidence
}

// String returns it as one sentence.
func (o Outlook) String() string {
	stopped := stopText(o.Unserved, o.Pause, o.Now)
	switch {
	case o.Waiting == 0 && stopped == "":
		return fmt.Sprintf("no job of %s waits in queue %s.", o.Tenant, o.Queue)
	case o.Waiting == 0:
		return fmt.Sprintf("no job of %s waits in queue %s; %s.", o.Tenant, o.Queue, stopped)
	case stopped != "":
		return fmt.Sprintf("%s waits: %s; %s waiting, %s.", o.Tenant, stopped, thousands(o.Waiting), doneText(o.DrainsAt, o.Now))
	}
	return fmt.Sprintf("%s is %s%s waiting, %s.", o.Tenant, heldText(o.HeldBy, o.Now), thousands(o.Waiting), doneText(o.DrainsAt, o.Now))
}

// Outlook forecasts when the jobs of a tenant that wait in a queue will have gone. It
// does not foresee jobs that are enqueued later.
func (in *Inspector) Outlook(ctx context.Context, queue, tenant string) (Outlook, error) {
	var o Outlook
	err := in.askHome(ctx, queue, tenant, func(f *forecast) error {
		escaped := rediskey.Escape(tenant)
		known, err := in.lanesKnown(ctx, f)
		if err != nil {
			return err
		}
		if err := f.focus(ctx, in.redis, known, escaped); err != nil {
			return err
		}
		run, err := f.all()
		if err != nil {
			return err
		}
		o = f.outlooks(run.members, escaped)[escaped]
		return nil
	})
	if err != nil {
		return Outlook{}, fmt.Errorf("outlook of tenant %s in queue %q: %w", check.Quote(tenant), queue, err)
	}
	return o, nil
}

// tenantLanes sums up the lanes of a tenant in which jobs wait, after the model ran.
type tenantLanes struct {
	n, last int // number of lanes, and index of the one that finishes last
	jobs    int64
	rate    float64
}

// byTenant returns the sums of lanes by escaped tenant, for these tenants or for all.
func (f *forecast) byTenant(members []*fluid.Member, of ...string) map[string]tenantLanes {
	all := map[string]tenantLanes{}
	for i, one := range members {
		l := &f.lanes[i]
		if l.jobs <= 0 || len(of) > 0 && !slices.Contains(of, l.Tenant) {
			continue
		}
		sum, seen := all[l.Tenant]
		if !seen || one.At > members[sum.last].At {
			sum.last = i
		}
		sum.n++
		sum.jobs += l.jobs
		sum.rate += one.Rate
		all[l.Tenant] = sum
	}
	return all
}

// outlooks returns the outlooks of tenants whose backlog was read, after the model ran.
func (f *forecast) outlooks(members []*fluid.Member, of ...string) map[string]Outlook {
	outlooks := make(map[string]Outlook, len(of))
	all := f.byTenant(members, of...)
	for _, tenant := range of {
		o := Outlook{Queue: partition.QueueOf(f.queue), Tenant: store.Unescape(tenant), Now: f.asked, Waiting: f.backlog[tenant], Confidence: NoForecast}
		sum, drawn := all[tenant]
		switch {
		case o.Waiting <= 0:
			o.Confidence = Steady
			none := lane{Lane: store.Lane{Tenant: tenant}}
			o.Pause, o.Unserved = f.pause(&none), f.unserved(&none)
		case drawn: // for other lanes only their number of jobs is known
			f.foresee(&o, sum, members)
		}
		outlooks[tenant] = o
	}
	return outlooks
}

// foresee sets when the waiting jobs of a tenant go.
func (f *forecast) foresee(o *Outlook, sum tenantLanes, members []*fluid.Member) {
	l, one := &f.lanes[sum.last], members[sum.last]
	o.Rate, o.DrainsAt, o.Confidence = sum.rate, f.notBefore(one.At), f.confidence(l, one.At, sum.n)
	if o.Pause, o.Unserved = f.pause(l), f.unserved(l); o.Pause == nil && o.Unserved == nil {
		o.HeldBy = f.hold(l, one.Limit)
	}
	if h := o.HeldBy; h != nil && !h.Next.IsZero() && o.Rate > 0 {
		// Since everything was read, more slots have passed than this one.
		if behind := f.asked.Sub(h.Next).Seconds(); behind > 0 {
			h.Next = h.Next.Add(time.Duration(math.Ceil(behind*o.Rate) / o.Rate * 1e9))
		}
	}
}

// Batch describes jobs that are not enqueued.
type Batch struct {
	Tenant     string            // required
	Jobs       int64             // required
	Kind       string            // "": the only kind of the queue
	Cost       int64             // of each job, in permits; 0 means 1
	Costs      map[string]int64  // of each job by unit, as in [queue.Job]
	Attributes map[string]string // as in [queue.Job]

	// Payload is that of one of the jobs, as JSON; nil or null: not known. Each receiver of
	// webhooks has jobs waiting of its own. Without a payload they are taken to go where most
	// jobs of the tenant wait.
	Payload json.RawMessage
}

// BatchEstimate is a forecast of when the calls of a batch would be made.
type BatchEstimate struct {
	Now         time.Time // on the clock of Redis
	First, Last time.Time // zero: not known
	HeldBy      *Hold     // the limit that holds it longest; nil: none, or Pause or Unserved is the reason
	Pause       *Pause    // the pause that holds it, and ends last; nil: none
	Unserved    *Unserved // why no worker would take it; nil: a worker would
	Waiting     int64     // jobs ahead of it in its lane
	Confidence  Confidence
}

// String returns it as one sentence.
func (e BatchEstimate) String() string {
	stopped := stopText(e.Unserved, e.Pause, e.Now)
	switch {
	case e.Confidence == NoForecast && stopped == "":
		return fmt.Sprintf("it is not known when they would go: %s waiting before them.", thousands(e.Waiting))
	case e.Confidence == NoForecast:
		return fmt.Sprintf("it is not known when they would go: %s; %s waiting before them.", stopped, thousands(e.Waiting))
	case stopped != "":
		return fmt.Sprintf("first call %s, last call %s: %s; %s waiting before them (%s).", atText(e.First, e.Now), atText(e.Last, e.Now),
			stopped, thousands(e.Waiting), e.Confidence)
	}
	return fmt.Sprintf("first call %s, last call %s, %s%s waiting before them (%s).", atText(e.First, e.Now), atText(e.Last, e.Now),
		heldText(e.HeldBy, e.Now), thousands(e.Waiting), e.Confidence)
}

// Estimate returns when a batch would go if it were enqueued now, after the waiting jobs.
// It returns a [validation.Error] for a batch that could not be enqueued.
func (in *Inspector) Estimate(ctx context.Context, queue string, batch Batch) (BatchEstimate, error) {
	fail := func(err error) (BatchEstimate, error) {
		return BatchEstimate{}, fmt.Errorf("estimate in queue %q: %w", queue, err)
	}
	attributes, reason := store.EncodeAttributes(batch.Attributes)
	switch {
	case check.Text(batch.Tenant, check.MaxTenant) != "":
		return fail(validation.Field("tenant", check.Text(batch.Tenant, check.MaxTenant)))
	case batch.Jobs < 1 || batch.Jobs > 1e12:
		return fail(validation.Field("jobs", fmt.Sprintf("%d must be 1 to 1e12", batch.Jobs)))
	case batch.Cost < 0:
		return fail(validation.Field("cost", fmt.Sprintf("%d: a call costs at least 1", batch.Cost)))
	case reason != "":
		return fail(validation.Field("attributes", reason))
	}
	if string(bytes.TrimSpace(batch.Payload)) == "null" {
		batch.Payload = nil // as of a caller that writes out the fields it has no values for
	}
	if batch.Payload != nil && !json.Valid(batch.Payload) {
		return fail(validation.Field("payload", "it is not JSON"))
	}
	if _, reason := store.EncodeCosts(batch.Costs); reason != "" {
		return fail(validation.Field("costs", reason))
	}
	var e BatchEstimate
	err := in.askHome(ctx, queue, batch.Tenant, func(f *forecast) (err error) {
		e, err = f.estimate(ctx, in.redis, batch, attributes)
		return err
	})
	if err != nil {
		return fail(err)
	}
	return e, nil
}

func (f *forecast) estimate(ctx context.Context, client redis.UniversalClient, batch Batch, attributes string) (BatchEstimate, error) {
	fail := func(err error) (BatchEstimate, error) { return BatchEstimate{}, err }
	if kinds := f.rules.Kinds; len(kinds) > 0 && batch.Kind != "" && !slices.Contains(kinds, batch.Kind) {
		return fail(validation.Field("kind", fmt.Sprintf("queue %s does not serve %s%s", check.Quote(partition.QueueOf(f.queue)), check.Quote(batch.Kind), check.Suggest(batch.Kind, kinds))))
	} else if len(kinds) > 1 && batch.Kind == "" {
		return fail(validation.Field("kind", fmt.Sprintf("queue %s has several kinds; set one of %s", check.Quote(partition.QueueOf(f.queue)), strings.Join(kinds, ", "))))
	}
	if batch.Kind == "" {
		batch.Kind = f.soleKind()
	}
	attributes = store.WithDerived(attributes, store.Derived(batch.Kind, batch.Payload))
	lane := f.laneName(rediskey.Escape(batch.Tenant), batch.Kind, attributes)
	if batch.Payload == nil && slices.Contains(store.DerivedNames(batch.Kind), limits.EndpointAttribute) {
		longest, err := f.longestLane(ctx, client, rediskey.Escape(batch.Tenant), rediskey.Escape(batch.Kind))
		if err != nil {
			return fail(err)
		}
		lane = cmp.Or(longest, lane)
	}
	if err := f.look(ctx, client, lane, ""); err != nil {
		return fail(err)
	}
	at := f.indexOf(lane)
	l := f.lanes[at]
	costs := map[string]float64{"": float64(max(batch.Cost, 1))}
	for unit, n := range batch.Costs {
		costs[unit] = float64(n)
	}
	for i, limit := range f.rules.Limits {
		most := f.limits.Spec(i, l.Tenant).Burst
		if n := costs[limit.Unit]; most > 0 && n > float64(most) && f.limits.Queue.Limits[i].Spec.Algorithm != "cc" {
			return fail(validation.Field("cost", fmt.Sprintf("%.0f is more than limit %s ever admits at once (%d)", n, check.Quote(limit.Name), most)))
		}
	}
	waiting := f.seen.place.length
	before, n := float64(waiting+f.went(&l)), float64(batch.Jobs)
	// In the model all jobs of a lane have the same cost, the mean.
	mean := map[string]float64{}
	for unit, one := range f.seen.cost {
		mean[unit] = one * before / (before + n)
	}
	for unit, one := range costs {
		mean[unit] += one * n / (before + n)
	}
	first := &fluid.Member{Jobs: (before*f.seen.cost[""] + costs[""]) / mean[""]}
	m, members, err := f.model(subject{lane, before + n, mean, []*fluid.Member{first}})
	if err != nil {
		return fail(err)
	}
	m.Run(members[at])
	e := BatchEstimate{Now: f.asked, Waiting: waiting, First: f.notBefore(first.At), Last: f.notBefore(members[at].At)}
	if e.Pause, e.Unserved = f.pause(&l), f.unserved(&l); e.Pause == nil && e.Unserved == nil {
		e.HeldBy = f.hold(&l, members[at].Limit)
	}
	e.Confidence = f.confidence(&l, members[at].At, f.lanesOf(l.Tenant))
	return e, nil
}

func (f *forecast) indexOf(name string) int {
	if i, known := f.laneAt[name]; known {
		return i
	}
	return -1
}

// lanesOf returns how many lanes a tenant has.
func (f *forecast) lanesOf(tenant string) (n int) {
	for i := range f.lanes {
		if f.lanes[i].Tenant == tenant {
			n++
		}
	}
	return n
}

// soleKind returns the kind of the queue's jobs if there is only one, else "".
func (f *forecast) soleKind() string {
	if len(f.rules.Kinds) == 1 {
		return f.rules.Kinds[0]
	}
	sole := ""
	for i := range f.lanes {
		kind := store.Unescape(f.lanes[i].Kind)
		if sole != "" && kind != sole {
			return ""
		}
		sole = kind
	}
	return sole
}

// longestLane returns the lane of a tenant and kind in which most jobs wait, of at most 1,000
// lanes with an endpoint; "" if there is none.
func (f *forecast) longestLane(ctx context.Context, client redis.UniversalClient, tenant, kind string) (longest string, err error) {
	names, err := client.SRandMemberN(ctx, store.Key(f.queue, "endpoints:"+tenant), 1000).Result()
	if err != nil {
		return "", err
	}
	names = slices.DeleteFunc(names, func(name string) bool { l := store.ParseLane(name); return l.Kind != kind })
	slices.Sort(names)
	lengths := make([]*redis.IntCmd, len(names))
	pipe := client.Pipeline()
	for i, name := range names {
		lengths[i] = pipe.ZCard(ctx, asynqwire.Key(f.queue, "g:"+name))
	}
	if err := store.Execute(ctx, pipe); err != nil {
		return "", err
	}
	most := int64(0)
	for i, name := range names {
		if n := lengths[i].Val(); n > most {
			longest, most = name, n
		}
	}
	return longest, nil
}

// laneName returns the name of a job's lane, as lanes.lua computes it.
func (f *forecast) laneName(tenant, kind, attributes string) string {
	var name strings.Builder
	name.WriteString(tenant)
	if kind != "" {
		attributes += ";kind=" + rediskey.Escape(kind)
	}
	for _, wanted := range f.limits.Queue.Attributes {
		for part := range strings.SplitSeq(attributes, ";") {
			if attr, value, ok := strings.Cut(part, "="); ok && attr == wanted {
				name.WriteString(";" + attr + "=" + value)
			}
		}
	}
	return name.String()
}

// hold returns the limit that holds a lane, and when it next admits a job.
func (f *forecast) hold(l *lane, i int) *Hold {
	if i < 0 {
		return nil
	}
	limit, spec := f.rules.Limits[i], f.spec(i, l)
	h := &Hold{Limit: limit.Name, Scope: scopeText(limit, l), Rule: f.ruleText(i, l)}
	if spec.Algorithm == "cc" {
		return h
	}
	b, paused, err := f.bucket(i, l, spec)
	if err != nil {
		return h
	}
	h.Next = f.at(max(paused, b.Admits(max(permits(limit, spec, f.costOf(l)), 1))))
	return h
}

func scopeText(limit limits.Limit, l *lane) string {
	if len(limit.Per) == 0 {
		return "the whole queue"
	}
	var parts []string
	for _, attr := range limit.Per {
		parts = append(parts, strings.TrimSpace(attr+" "+store.Unescape(l.Value(attr))))
	}
	return strings.Join(parts, ", ")
}

// ruleText returns a limit's rate as text, as it applies to a tenant.
func (f *forecast) ruleText(i int, l *lane) string {
	limit, spec := f.rules.Limits[i], f.spec(i, l)
	if spec.Algorithm == "cc" {
		return thousands(spec.Burst) + " at a time"
	}
	return effective.RateOf(spec, limit.Rate.String())
}

// confidence returns the confidence in when the jobs of a lane go, whose tenant has this number
// of lanes.
func (f *forecast) confidence(l *lane, at float64, lanes int) Confidence {
	if f.at(at).IsZero() {
		return NoForecast
	}
	for _, seen := range f.seen.limits {
		if seen.algorithm == "cc" && seen.next.After(f.asked) {
			return NoForecast
		}
	}
	rough := f.part < 1 || lanes > 1
	for i, limit := range f.rules.Limits {
		if !store.Holds(limit, &l.Lane) {
			continue
		}
		spec := f.spec(i, l)
		a, grows := spec.Algorithm, spec != f.limits.Spec(i, l.Tenant)
		rough = rough || grows || a == "cc" || a == "sl" || spec.Leased || l.buckets[i] >= 0 && f.adapted(i, l) < 1
	}
	if rough {
		return Rough
	}
	return Steady
}
