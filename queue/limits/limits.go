// Package limits says what shapes the queues: the limits of each queue, what differs for a tenant,
// and when jobs may go. Limits are plain values, checked by [Set.Validate]; publishing them puts
// them in force.
package limits

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// Set is everything that shapes the queues, usually read from a file and
// put in force with [operate.Publish].
type Set struct {
	Queues  map[string]Queue
	Tenants map[string]Tenant // what differs for one tenant, plans resolved
	Groups  map[string]Group  // groups of tenants, by name
}

// GroupAttribute is the name in [Limit.Per] of a limit that each group of tenants has for itself.
const GroupAttribute = "group"

// EndpointAttribute is the name in [Limit.Per] of a limit that each receiver of webhooks, host:port, has for itself. What
// one receiver answers concerns only its own jobs.
const EndpointAttribute = "endpoint"

// Group is a group of tenants, such as the customers of a reseller, that have the limits per group in common.
type Group struct {
	// Limits holds what differs for the group, by queue and by the name of a limit per group.
	Limits map[string]map[string]Change
}

// Queue shapes one queue, which stands for one provider account.
type Queue struct {
	// Kinds of jobs that go to this queue; others are refused, and not called if they are there
	// already. Empty: any kind, for jobs that name the queue. A kind has one queue.
	Kinds []string

	// Limits hold together: a job goes at a moment at which all admit it.
	Limits []Limit

	// MaxBacklog is how many jobs of one tenant the queue keeps, in all states: waiting, scheduled,
	// to be retried, archived, and completed but not yet forgotten. More are refused with
	// [queue.ErrBacklogFull]. MaxBacklogBytes is the same for their size: of messages with payload
	// and headers, follow-ups and results, and 512 bytes for each job. 0: no bound.
	MaxBacklog, MaxBacklogBytes int64

	// MaxQueue and MaxQueueBytes are the same for all tenants together. 0: no bound.
	MaxQueue, MaxQueueBytes int64

	// MaxRetention is the longest Retention of a job, at least 24 h, which is that of jobs with a
	// key; a longer one is refused. 0: no bound.
	MaxRetention time.Duration

	// Durability says when a job of this queue is accepted. "" means [Primary].
	Durability Durability

	// Conformance says that the workers count what leaves under each limit, so that
	// [inspect.Conformance] can tell whether the limits were kept to.
	Conformance bool

	// Partitions is over how many partitions the tenants are spread, at most [MaxPartitions]. Each
	// is in a slot of a Redis Cluster of its own, and so on one of its nodes. All limits must be per
	// tenant then but those that are [Limit.Leased], of which one may be a token bucket or a leaky
	// bucket that counts calls. 0 means 1. When another number is published, the tenants that belong
	// elsewhere move with all their jobs while the queue runs. [operate.Publish] refuses it until an earlier change
	// has ended. On the way to 1, limits must be such as partitions can have until the change has ended.
	Partitions int

	// SendWindows say when jobs of a kind may go, and under [AllKinds] when any
	// job of the queue may. They hold together, as limits do: a kind with a
	// window of its own keeps to both.
	SendWindows map[string]sendwindow.Window
}

// MaxPartitions is the largest number of partitions of a queue.
const MaxPartitions = partition.MaxPartitions

// AllKinds stands for every kind of a queue in [Queue.SendWindows].
const AllKinds = "*"

// Limit is a rule of a queue. What a field means for its algorithm, [throttle.Limit] says:
// a rule of a queue is the same rule, without Shards, as the limits of a queue are taken
// together, and without Lease, as a job has its permit until it ends.
type Limit struct {
	// Name tells the limits of a queue apart: 1 to 64 of a-z, 0-9, '_' and '-'.
	// Changing it starts anew.
	Name string

	Algorithm   throttle.Algorithm
	Rate        throttle.Rate  // required, but for a concurrency, which has none
	Burst       int64          // of a token bucket; 0 means 1
	Capacity    int64          // of a leaky bucket; 0: bounded by time alone
	Location    *time.Location // of the calendar windows of a fixed window; nil: none
	Concurrency int64          // how many calls may be in flight

	// Per names what has a bucket of its own: "tenant", [GroupAttribute], or an attribute of the
	// job. Empty: one bucket for the whole queue. Jobs without the attribute
	// share the bucket of the empty value. Tenants without a group are not held by limits per group.
	Per []string

	// Unit names what the limit counts, such as tokens: a job takes as many
	// permits as its costs name of it. Empty: the job's cost. A concurrency has
	// none, for it counts jobs.
	Unit string

	// Adaptive lets the rate follow what the provider says in its answers
	// ([queue.SetQuota]), and fall when it asks for fewer calls and rise again
	// while it does not; the limit's own rate is the most. Only a limit with a
	// rate can be adaptive, and only one of the whole queue, per tenant or per endpoint.
	// A limit with For whose name is that of an adaptive limit and the side, as
	// account-jobs is of account, is a part of that: both are lowered to the same
	// part of their rates.
	Adaptive bool

	// Ramp lets the rate grow from a smaller one, for each bucket from its first call on. nil: it is the
	// same from the beginning.
	Ramp *Ramp

	// For is the side that the limit holds: jobs, or calls that programs make themselves
	// ([queue.Client.Take]). "" means both together. What a limit of 100/s for both and one of 80/s for
	// jobs leave is kept for direct calls.
	For Side

	// Queues makes the limit a budget of several queues: what the jobs of one have used, those of the
	// others do not have. It names them all, each of which has the same limit. A budget is a fixed
	// window, for all tenants or per tenant, and its name is unique in a Redis. nil: the limit is of this
	// queue alone.
	Queues []string
}

// Side is a part of the calls that a limit can hold.
type Side string

// The sides of a [Limit].
const (
	Both   Side = ""
	Jobs   Side = "jobs"   // the jobs of the queue
	Direct Side = "direct" // calls that programs make themselves, without a job
)

// Durability says which servers have a job when its producer learns that it is accepted.
type Durability string

const (
	// Primary accepts a job when the primary has it. A failover loses the jobs that the new
	// primary had not received.
	Primary Durability = "primary"

	// Replicated accepts a job when a replica has it too, so that it survives the loss of the
	// primary. Without a replica that answers, no job is accepted ([queue.ErrNotReplicated]).
	Replicated Durability = "replicated"
)

// Tenant is what differs for one tenant.
type Tenant struct {
	// Weight is the tenant's part of shared limits, beside others' weights,
	// 0.001 to 1,000; 0 means 1.
	Weight float64

	// Guarantee is the part of each rate and window that the tenants of a queue share, 0.0001 to 1, of which the
	// tenant is sure whatever the others do: its jobs go first until they have got it. What they do not use goes to
	// the others. Where the tenant's weight gives it more, it has that. 0: nothing is guaranteed. The guarantees of all
	// tenants are at most 1 together. Partitions of a queue that share a limit cannot guarantee parts of it.
	Guarantee float64

	// Group is one of [Set.Groups]. "": none.
	Group string

	// Limits holds changes by queue and by the limit's name. All queues of a budget must have the same.
	Limits map[string]map[string]Change

	// Partition is the partition of the tenant's jobs in each queue that has more than one: 1 is the
	// first. 0: the tenant's name decides. When it changes, the tenant moves, as with
	// [Queue.Partitions].
	Partition int

	// SendWindow says when the tenant's jobs may go, in all queues, besides the
	// queues' own windows.
	SendWindow sendwindow.Window
}

// GuaranteeParts is how many parts of a limit a [Tenant.Guarantee] can differ by.
const GuaranteeParts = 10_000

// GuaranteeParts returns the guarantee in [GuaranteeParts].
func (t Tenant) GuaranteeParts() int64 { return int64(math.Round(t.Guarantee * GuaranteeParts)) }

// Change replaces the parts of a limit that are not nil. With a Capacity of 0 a leaky bucket is bounded by time alone.
type Change struct {
	Rate        *throttle.Rate `json:"rate,omitempty" yaml:"rate,omitempty"`
	Burst       *int64         `json:"burst,omitempty" yaml:"burst,omitempty"`
	Capacity    *int64         `json:"capacity,omitempty" yaml:"capacity,omitempty"`
	Concurrency *int64         `json:"concurrency,omitempty" yaml:"concurrency,omitempty"`
}

// Leased reports whether partitions of a queue can share the limit, because parts of it can be leased to
// them: a budget, and of limits for the whole queue that are not adaptive and have no ramp a concurrency limit, a fixed
// window, a token bucket, and a leaky bucket that counts calls.
func (l Limit) Leased() bool {
	return l.Queues != nil || len(l.Per) == 0 && !l.Adaptive && l.Ramp == nil && (l.Algorithm == throttle.Concurrency || l.Algorithm == throttle.FixedWindow || l.leasedRate() || l.Pooled())
}

// Pooled reports whether permits of the limit are leased, and not moments at which calls may go: a token bucket with a
// unit, of whose calls each may take many and give some back.
func (l Limit) Pooled() bool { return l.Unit != "" && l.Algorithm == throttle.TokenBucket }

// leastBurst returns what a pooled limit must hold so that partitions, which get something twenty times a second, can
// use all of it.
func (l Limit) leastBurst() int64 {
	if l.Rate.Period <= 0 {
		return 1 // which is another mistake
	}
	return int64(math.Ceil(float64(l.Rate.Count) / l.Rate.Period.Seconds() / 4))
}

// leasedRate reports whether a leased limit would be a rate, of which a queue can have one.
func (l Limit) leasedRate() bool {
	return l.Unit == "" && (l.Algorithm == throttle.TokenBucket || l.Algorithm == throttle.LeakyBucket)
}

func (l Limit) With(c Change) Limit {
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

// Raises reports whether a change lets more go than the limit does, at once or over any time. A limit with a ramp is
// taken as it begins: once changed, it has no ramp.
func (l Limit) Raises(c Change) bool {
	after := l.With(c)
	l = l.atFirst()
	was, will := l.Rate, after.Rate
	faster := will.Count > was.Count
	if was.Months == 0 && will.Months == 0 {
		faster = float64(will.Count)*float64(was.Period) > float64(was.Count)*float64(will.Period)
		if l.Algorithm != throttle.TokenBucket && l.Algorithm != throttle.LeakyBucket {
			// A whole window can go at once, and so many begin within one of those before.
			windows := math.Ceil(float64(was.Period) / float64(max(will.Period, 1)))
			faster = float64(will.Count)*windows > float64(was.Count)
		}
	} else if was.Months != will.Months || was.Period != will.Period {
		return true
	}
	roomier := l.Capacity > 0 && (after.Capacity == 0 || after.Capacity > l.Capacity)
	return faster || roomier || cmp.Or(after.Burst, 1) > cmp.Or(l.Burst, 1) || after.Concurrency > l.Concurrency
}

const maxLimits = 16

const minRetention = 24 * time.Hour // jobs with keys and follow-ups are kept for that long

// Validate returns a [validation.Error] for everything that is wrong with the limit, joined, or
// nil. Fields have their names in a limits file.
func (l Limit) Validate() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, validation.Field(field, fmt.Sprintf(format, args...)))
	}
	if l.Name == "" {
		wrong("name", "required: 1 to 64 of a-z, 0-9, '_' and '-'")
	} else if !check.AttributePattern.MatchString(strings.ReplaceAll(l.Name, "-", "_")) {
		wrong("name", "%s must be 1 to 64 of a-z, 0-9, '_' and '-'", check.Quote(l.Name))
	}
	seen := map[string]bool{}
	for _, attr := range l.Per {
		if !check.AttributePattern.MatchString(attr) {
			wrong("per", "%s must be 1 to 64 of a-z, 0-9 and '_'", check.Quote(attr))
		}
		if seen[attr] {
			wrong("per", "%s must not be listed twice", check.Quote(attr))
		}
		seen[attr] = true
	}
	if l.Unit != "" {
		if !check.AttributePattern.MatchString(l.Unit) {
			wrong("unit", "%s must be 1 to 64 of a-z, 0-9 and '_'", check.Quote(l.Unit))
		}
		if l.Algorithm == throttle.Concurrency {
			wrong("unit", "a concurrency counts jobs, whatever they cost")
		}
	}
	if l.Adaptive && l.Algorithm == throttle.Concurrency {
		wrong("adaptive", "only a limit with a rate adapts")
	}
	if l.Adaptive && len(l.Per) > 0 && !slices.Equal(l.Per, []string{"tenant"}) && !slices.Contains(l.Per, EndpointAttribute) {
		wrong("adaptive", "only a limit of the whole queue, per tenant or per endpoint adapts, because answers concern nothing else: leave it out, or change per")
	}
	if l.Ramp != nil {
		l.validateRamp(wrong)
	}
	if l.For != Both && l.For != Jobs && l.For != Direct {
		wrong("for", "%s must be %s or %s, or left out for both%s", check.Quote(string(l.For)), Jobs, Direct, check.Suggest(string(l.For), []string{string(Jobs), string(Direct)}))
	}
	if l.Queues != nil {
		l.validateBudget(wrong)
	}
	if l.Location != nil && !hasName(l.Location) {
		wrong("timezone", "%s is another zone to other programs, or none: use one of time.LoadLocation, such as Europe/Berlin, or UTC", check.Quote(l.Location.String()))
	}
	rule := throttle.Limit{
		Name: l.Name, Algorithm: l.Algorithm, Rate: l.Rate, Burst: l.Burst, Capacity: l.Capacity,
		Location: l.Location, Concurrency: l.Concurrency,
	}
	for _, err := range validation.Unjoin(rule.Validate()) {
		field, _ := errors.AsType[*throttle.FieldError](err)
		if field.Field != "name" { // checked above, more strictly
			wrong(field.Field, "%s", field.Reason)
		}
	}
	return errors.Join(errs...)
}

// hasName reports whether a zone is the one that its name says. In Redis and in limits files it is only a name: time.Local
// would be another zone on each machine, and one of time.FixedZone may have the name of a zone whose clocks change.
func hasName(loc *time.Location) bool {
	name := loc.String()
	named, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return false
	}
	for _, month := range []time.Month{time.January, time.July} {
		at := time.Date(2026, month, 1, 0, 0, 0, 0, time.UTC)
		_, ours := at.In(loc).Zone()
		if _, theirs := at.In(named).Zone(); ours != theirs {
			return false
		}
	}
	return true
}

// validateBudget reports what several queues cannot share.
func (l Limit) validateBudget(wrong func(field, format string, args ...any)) {
	if l.Algorithm != throttle.FixedWindow {
		wrong("algorithm", "%s must be %s, or left out: of a budget, each queue takes a part of a window's count", check.Quote(string(l.Algorithm)), throttle.FixedWindow)
	}
	if len(l.Per) > 0 && !slices.Equal(l.Per, []string{"tenant"}) {
		wrong("per", "a budget is per tenant, or for all tenants together")
	}
	if l.Adaptive {
		wrong("adaptive", "a budget does not adapt: providers do not answer for several queues")
	}
	if l.For != Both {
		wrong("for", "a budget is for jobs: leave it out")
	}
	if len(l.Queues) < 2 {
		wrong("queues", "name two queues or more; of one queue, a limit is enough")
	}
}

// ChangeError reports a change that cannot be made to a limit. Nothing was changed.
type ChangeError struct {
	Limit  string
	Reason error // see [Limit.CheckChange]
}

func (e *ChangeError) Error() string {
	return fmt.Sprintf("override of limit %q: %v", e.Limit, e.Reason)
}
func (e *ChangeError) Unwrap() error { return e.Reason }

// CheckChange reports why a change cannot be made to a limit, or nil.
func (l Limit) CheckChange(c Change) error {
	if !slices.Contains(l.Per, "tenant") {
		if l.PerGroup() {
			return errors.New("the tenants of a group share this limit: change it for the group, in the limits file")
		}
		return errors.New("all tenants share this limit, so it cannot differ for one of them")
	}
	return l.checkChange(c)
}

// PerGroup reports whether each group of tenants has the limit for itself.
func (l Limit) PerGroup() bool { return slices.Contains(l.Per, GroupAttribute) }

func (l Limit) checkChange(c Change) error {
	if c.Concurrency != nil && l.Algorithm != throttle.Concurrency {
		return validation.Field("concurrency", "this limit has a rate")
	}
	if c.Burst != nil && *c.Burst == 0 { // which is a default of limits, and not a number
		return validation.Field("burst", "0 must be at least 1")
	}
	after := l.With(c)
	after.Ramp = nil // of a tenant's own rate and the ramp's, the lower one holds
	if l.Location != nil && (after.Rate.Period != l.Rate.Period || after.Rate.Months != l.Rate.Months) {
		return validation.Field("rate", fmt.Sprintf("the windows of this limit are those of %v for every tenant", l.Rate))
	}
	if after.Location != nil {
		after.Location = time.UTC // its own was validated with the limit, and to load it for each of many tenants takes long
	}
	return after.Validate()
}

// maxMistakes bounds the memory for mistakes: each tenant can have one in each queue.
const maxMistakes = 1000

// Validate reports every mistake as a [validation.Error], joined, or nil; if there are more than 1,000, the first ones.
func (l Set) Validate() error {
	var errs []error
	wrong := func(path, format string, args ...any) {
		if len(errs) < maxMistakes {
			errs = append(errs, validation.Field(path, fmt.Sprintf(format, args...)))
		}
	}
	// at puts a limit's own errors under its path.
	at := func(path string, err error) {
		for _, err := range validation.Unjoin(err) {
			if field, ok := errors.AsType[*validation.Error](err); ok {
				wrong(path+"."+field.Field, "%s", field.Reason)
			} else {
				wrong(path, "%v", err)
			}
		}
	}
	// like suggests a name for the first mistakes only: each suggestion takes a while.
	like := func(word string, names iter.Seq[string]) string {
		if len(errs) >= check.MaxErrors {
			return ""
		}
		return check.SuggestAmong(word, names)
	}
	kinds := map[string]string{}
	budgets := map[string]budget{}
	queues := slices.Sorted(maps.Keys(l.Queues))
	for _, name := range queues {
		q, path := l.Queues[name], "queues."+name
		if !check.QueuePattern.MatchString(name) {
			wrong(path, "the name must be 1 to 64 letters, digits, '.', '_' or '-'")
		}
		for i, kind := range q.Kinds {
			if !check.KindPattern.MatchString(kind) {
				wrong(fmt.Sprintf("%s.kinds[%d]", path, i), "%s must be 1 to 64 letters, digits, '.', '_', '-' or ':'", check.Quote(kind))
			}
			if other, taken := kinds[kind]; taken {
				wrong(fmt.Sprintf("%s.kinds[%d]", path, i), "%s already belongs to queue %s", check.Quote(kind), other)
			}
			kinds[kind] = name
		}
		for _, most := range []struct {
			name string
			n    int64
		}{{"max_backlog", q.MaxBacklog}, {"max_backlog_bytes", q.MaxBacklogBytes}, {"max_queue", q.MaxQueue}, {"max_queue_bytes", q.MaxQueueBytes}} {
			if most.n < 0 {
				wrong(path+"."+most.name, "%d must not be negative", most.n)
			}
		}
		if q.MaxRetention != 0 && (q.MaxRetention < minRetention || q.MaxRetention > check.MaxAhead || q.MaxRetention%time.Second != 0) {
			wrong(path+".max_retention", "%v must be 24h to 10 years, in whole seconds: jobs with keys and follow-ups are kept for 24h", q.MaxRetention)
		}
		if q.Durability != "" && q.Durability != Primary && q.Durability != Replicated {
			wrong(path+".durability", "%s must be %s or %s%s", check.Quote(string(q.Durability)), Primary, Replicated,
				check.Suggest(string(q.Durability), []string{string(Primary), string(Replicated)}))
		}
		if q.Partitions < 0 || q.Partitions > MaxPartitions {
			wrong(path+".partitions", "%d must be 1 to %d", q.Partitions, MaxPartitions)
		}
		if q.Partitions > 1 && q.MaxQueue+q.MaxQueueBytes > 0 {
			wrong(path+".partitions", "leave it out, or max_queue and max_queue_bytes: partitions do not count together")
		}
		for _, kind := range slices.Sorted(maps.Keys(q.SendWindows)) {
			if owner, known := kinds[kind]; kind != AllKinds && !(known && owner == name) {
				wrong(path+".send_windows."+kind, "must be a kind of this queue, or %q for all of them%s", AllKinds, like(kind, slices.Values(q.Kinds)))
			} else if q.SendWindows[kind].IsZero() {
				wrong(path+".send_windows."+kind, "the window is always open: leave it out")
			} else if !q.SendWindows[kind].Meet(q.SendWindows[AllKinds]) {
				wrong(path+".send_windows."+kind, "never open at the same time as the window of %q, and jobs need both", AllKinds)
			}
		}
		if len(q.Limits) > maxLimits {
			wrong(path+".limits", "%d limits; a queue has at most %d", len(q.Limits), maxLimits)
			continue
		}
		names, shared := map[string]bool{}, ""
		for i, limit := range q.Limits {
			where := fmt.Sprintf("%s.limits[%d]", path, i)
			at(where, limit.Validate())
			if limit.Queues != nil {
				first, checked := budgets[limit.Name]
				if !checked {
					first = budget{limit, l.validateShared(where, limit, wrong, like)}
					budgets[limit.Name] = first
				}
				if !first.queues[name] && first.same(limit) {
					wrong(where+".queues", "%s is missing, whose limit this is", name)
				} else if !first.queues[name] {
					wrong(where+".name", "%s is the name of another budget", check.Quote(limit.Name))
				}
			}
			if q.Partitions > 1 && limit.Leased() && limit.For != Both {
				wrong(where+".for", "partitions share the limit for their jobs alone: make it per tenant, or leave it out")
			}
			if q.Partitions > 1 && limit.Leased() {
				if limit.leasedRate() && shared != "" {
					wrong(where+".per", "partitions share one token_bucket or leaky_bucket without unit at most, and %s is one: add tenant, or leave out partitions", check.Quote(shared))
				}
				if limit.leasedRate() {
					shared = limit.Name
				}
				if least := limit.leastBurst(); limit.Pooled() && max(limit.Burst, 1) < least {
					wrong(where+".burst", "partitions share what is in the bucket, so it must hold what a quarter of a second brings: %d", least)
				}
			} else if q.Partitions > 1 && !slices.Contains(limit.Per, "tenant") {
				wrong(where+".per", "partitions share only limits without per, adaptive and ramp: concurrency, fixed_window, token_bucket, and leaky_bucket without unit; any other limit must be per tenant: add tenant, or leave out partitions")
			}
			if names[limit.Name] && limit.Name != "" {
				wrong(where+".name", "%s is the name of another limit of this queue", check.Quote(limit.Name))
			}
			names[limit.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.Groups)) {
		path := "groups." + name
		if reason := check.Text(name, check.MaxTenant); reason != "" {
			wrong("groups", "name of a group: %s", reason)
		}
		l.eachChange(path, l.Groups[name].Limits, wrong, like, func(where, _ string, limit Limit, change Change) {
			if !limit.PerGroup() {
				wrong(where, "this limit is not per group, so it cannot differ for a group")
				return
			}
			at(where, limit.checkChange(change))
		})
	}
	var guaranteed int64
	divided := slices.DeleteFunc(queues, func(name string) bool { return l.Queues[name].Partitions <= 1 })
	// Only a tenant with a mistake is compared with each of these queues.
	fewest, sharing := MaxPartitions, false
	ofAll := func(l Limit) bool { return l.Leased() && l.Queues == nil }
	for _, queue := range divided {
		fewest = min(fewest, l.Queues[queue].Partitions)
		sharing = sharing || slices.ContainsFunc(l.Queues[queue].Limits, ofAll)
	}
	for _, tenant := range slices.Sorted(maps.Keys(l.Tenants)) {
		if len(errs) == maxMistakes {
			break
		}
		t, path := l.Tenants[tenant], "tenants."+tenant
		if reason := check.Text(tenant, check.MaxTenant); reason != "" {
			wrong("tenants", "name of a tenant: %s", reason)
		}
		if t.Weight != 0 && !(t.Weight >= 0.001 && t.Weight <= 1000) || math.IsNaN(t.Weight) {
			wrong(path+".weight", "%v must be 0.001 to 1000", t.Weight)
		}
		if t.Guarantee != 0 && !(t.Guarantee >= 1.0/GuaranteeParts && t.Guarantee <= 1) || math.IsNaN(t.Guarantee) {
			wrong(path+".guarantee", "%.12g%% must be 0.01%% to 100%%", 100*t.Guarantee)
		} else if math.Abs(t.Guarantee*GuaranteeParts-float64(t.GuaranteeParts())) > 1e-6 {
			wrong(path+".guarantee", "%.12g%% must be in steps of 0.01%%", 100*t.Guarantee)
		} else if guaranteed += t.GuaranteeParts(); guaranteed > GuaranteeParts && t.Guarantee > 0 {
			wrong(path+".guarantee", "the guarantees up to this tenant add up to %.12g%%; at most 100%% is possible", 100*float64(guaranteed)/GuaranteeParts)
		}
		if t.Partition < 0 || t.Partition > MaxPartitions {
			wrong(path+".partition", "%d must be 1 to %d", t.Partition, MaxPartitions)
		}
		if _, known := l.Groups[t.Group]; t.Group != "" && !known {
			wrong(path+".group", "unknown group %s%s", check.Quote(t.Group), like(t.Group, maps.Keys(l.Groups)))
		}
		for _, queue := range divided {
			if t.Partition <= fewest && !(t.Guarantee > 0 && sharing) {
				break
			}
			n := l.Queues[queue].Partitions
			if i := slices.IndexFunc(l.Queues[queue].Limits, ofAll); t.Guarantee > 0 && i >= 0 {
				wrong(path+".guarantee", "partitions of queue %s share %s and cannot guarantee parts of it: leave it out, or give the tenant a weight", queue, l.Queues[queue].Limits[i].Name)
			}
			if n <= MaxPartitions && t.Partition > n && t.Partition <= MaxPartitions {
				wrong(path+".partition", "%d: queue %s has %d partitions", t.Partition, queue, n)
			}
		}
		if t.Partition > 1 && t.Partition <= MaxPartitions && len(divided) == 0 {
			wrong(path+".partition", "%d: no queue has partitions", t.Partition)
		}
		compared := map[string]bool{}
		l.eachChange(path, t.Limits, wrong, like, func(where, queue string, limit Limit, change Change) {
			at(where, limit.With(l.Groups[t.Group].Limits[queue][limit.Name]).CheckChange(change))
			if limit.Queues == nil || compared[limit.Name] {
				return // all queues of a budget are compared with the first that has a change
			}
			compared[limit.Name] = true
			ours := change.String()
			for _, other := range limit.Queues {
				if theirs, same := t.Limits[other][limit.Name]; !same || theirs.String() != ours {
					wrong(where, "queue %s must have the same change, because they share the budget", other)
				}
			}
		})
	}
	return errors.Join(errs...)
}

// eachChange calls do for changes of limits that there are, in order, and reports the others.
func (l Set) eachChange(path string, changes map[string]map[string]Change, wrong func(path, format string, args ...any), like func(string, iter.Seq[string]) string, do func(where, queue string, limit Limit, change Change)) {
	for _, queue := range slices.Sorted(maps.Keys(changes)) {
		q, known := l.Queues[queue]
		if !known {
			wrong(path+".limits."+queue, "unknown queue%s", like(queue, maps.Keys(l.Queues)))
			continue
		}
		if len(q.Limits) > maxLimits {
			continue // reported; to find each name among any number of limits takes long
		}
		for _, name := range slices.Sorted(maps.Keys(changes[queue])) {
			where := path + ".limits." + queue + "." + name
			i := slices.IndexFunc(q.Limits, func(limit Limit) bool { return limit.Name == name })
			if i < 0 {
				wrong(where, "queue %s has no limit of this name%s", queue, like(name, slices.Values(Names(q.Limits))))
				continue
			}
			do(where, queue, q.Limits[i], changes[queue][name])
		}
	}
}

// same reports whether two limits have the same fields.
func (l Limit) same(other Limit) bool {
	zone := l.Location == other.Location || l.Location != nil && other.Location != nil && l.Location.String() == other.Location.String()
	l.Location, other.Location = nil, nil
	return zone && reflect.DeepEqual(l, other)
}

// budget is the limit of the first queue of a budget, with the names of all its queues.
type budget struct {
	Limit
	queues map[string]bool
}

// validateShared reports where the queues of a budget do not have the same limit as the first, and returns the names of
// the queues. It is called once for a budget: for each of many queues, it would take very long.
func (l Set) validateShared(where string, first Limit, wrong func(path, format string, args ...any), like func(string, iter.Seq[string]) string) map[string]bool {
	queues := map[string]bool{}
	for i, name := range first.Queues {
		q, known := l.Queues[name]
		at := fmt.Sprintf("%s.queues[%d]", where, i)
		if !known {
			wrong(at, "unknown queue %s%s", check.Quote(name), like(name, maps.Keys(l.Queues)))
		} else if queues[name] {
			wrong(at, "%s must not be listed twice", name)
		} else if len(q.Limits) <= maxLimits && !slices.ContainsFunc(q.Limits, first.same) {
			wrong(where, "queue %s must have the same limit, because they share it", name)
		}
		queues[name] = true
	}
	return queues
}

// Names are the names of some limits.
func Names(limits []Limit) []string {
	names := make([]string, len(limits))
	for i, limit := range limits {
		names[i] = limit.Name
	}
	return names
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
