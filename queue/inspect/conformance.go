package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/conformance"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

// Conformance says how the calls of a queue kept to its limits.
type Conformance struct {
	// Counts is false if the queue does not count its calls now: see [limits.Queue].
	Counts bool

	// Buckets has the buckets of limits under which calls left, first those that exceeded their limit and then those
	// that came nearest to it.
	Buckets []ConformanceBucket
	Total   int // how many buckets there are

	// Missed has the hours in which calls were not counted: their workers reported them later than 15 minutes or 50,000
	// calls after others, or all workers were gone for so long that the record of calls was cut.
	Missed []time.Time
}

// ConformanceBucket says how calls kept to a limit that they share.
type ConformanceBucket struct {
	Limit  string
	Values map[string]string // of the limit's Per; empty for a limit that all share. Under "" if the limit is gone or has another Per
	Window time.Duration     // how long the limit's windows are; those of a calendar may differ by hours or days. 0: the queue has no such limit any more
	Hours  []ConformanceHour // in the order of time, without those in which no call left

	name string
}

// ConformanceHour says what a limit saw in an hour.
type ConformanceHour struct {
	At      time.Time // when the hour began
	Most    int64     // the most permits that calls of any window took, of the windows that ended in this hour
	Allowed int64     // how many were allowed in that window
	Over    *Violation
}

// Violation is a window in which calls took more than their limit allowed: of those of an hour, the one with the
// largest excess.
type Violation struct {
	At      time.Time // when its last call left
	Took    int64
	Allowed int64

	// Causes are set by [operate.NameCauses]. None: no change explains it.
	Causes []Cause
}

// Cause is what explains a [Violation].
type Cause struct {
	What          CauseKind
	At            time.Time
	Actor, Reason string // of a change by an operator
	Before, After string // the limit before and after it was changed; "": the tenant or group had none of its own, or it is not known
}

// CauseKind is a kind of [Cause].
type CauseKind string

const (
	// CausedByRun: an operator ran jobs at once, beyond their limits.
	CausedByRun CauseKind = "run"

	// CausedByChange: the limit was changed, and not only raised, so calls that left before it were allowed by another one.
	CausedByChange CauseKind = "changed"

	// CausedByEnd: the same, because an override ended.
	CausedByEnd CauseKind = "ended"

	// CausedByLoss: what was used of the limits was lost from Redis.
	CausedByLoss CauseKind = "lost"

	// CauseUnknown: the audit may have had a cause, but has all changes only from At on.
	CauseUnknown CauseKind = "unknown"
)

// ConformanceQuery says what [ReadConformance] returns.
type ConformanceQuery struct {
	From, To time.Time // hours that begin in this time; the last 30 days are kept
	Tenant   string    // only limits per tenant, of this one; "": all limits
	Limit    string    // "": all limits
	N        int       // the maximum number of buckets, 1 to [MaxConformance]
}

// MaxConformance is the maximum number of buckets that one call of [ReadConformance] returns.
const MaxConformance = 1000

// formerly is the name of the values of a limit that is gone.
const formerly = ""

// maxConformance is how long hours are kept, with the one that is under way.
const maxConformance = 31 * 24 * time.Hour

func (q *ConformanceQuery) check() error {
	switch {
	case q.N < 1 || q.N > MaxConformance:
		return validation.Field("n", fmt.Sprintf("%d must be 1 to %d", q.N, MaxConformance))
	case !q.To.After(q.From):
		return validation.Field("to", "must be after from")
	case q.To.Sub(q.From) > maxConformance:
		return validation.Field("from", "must be at most 31 days before to")
	}
	return nil
}

// ReadConformance returns how the calls of a queue kept to its limits, hour by hour, from the moments at which they
// left. Calls count about 3 s after they have ended. Errors: [validation.Error].
func ReadConformance(ctx context.Context, client redis.UniversalClient, queue string, query ConformanceQuery) (Conformance, error) {
	if err := query.check(); err != nil {
		return Conformance{}, err
	}
	fail := func(err error) (Conformance, error) {
		return Conformance{}, fmt.Errorf("read the conformance of queue %q: %w", queue, err)
	}
	stored, err := effective.ReadQueue(ctx, client, queue)
	if err != nil {
		return fail(err)
	}
	rules, err := stored.Decode()
	if err != nil {
		return fail(err)
	}
	c := Conformance{Counts: stored.Conformance}
	kept := keptHours{client: client, queue: queue, first: query.From.Truncate(time.Hour), last: query.To}
	parts, err := kept.nearest(ctx, query)
	if err != nil {
		return fail(err)
	}
	now := query.To.UnixMicro()
	for name := range parts {
		// The pattern may have matched others, too.
		b := newBucket(name, rules.Limits, now)
		if query.Limit != "" && query.Limit != b.Limit || query.Tenant != "" && query.Tenant != b.Values["tenant"] {
			delete(parts, name)
		}
	}
	c.Total = len(parts)
	chosen := slices.SortedFunc(maps.Keys(parts), func(a, b string) int {
		return cmp.Or(cmp.Compare(parts[b], parts[a]), strings.Compare(a, b))
	})
	for _, name := range chosen[:min(query.N, c.Total)] {
		c.Buckets = append(c.Buckets, newBucket(name, rules.Limits, now))
	}
	if err := kept.read(ctx, c.Buckets); err != nil {
		return fail(err)
	}
	if c.Missed, err = kept.missed(ctx); err != nil {
		return fail(err)
	}
	// What was kept of a day may have expired since it was looked for.
	c.Buckets = slices.DeleteFunc(c.Buckets, func(b ConformanceBucket) bool { return len(b.Hours) == 0 })
	return c, nil
}

// newBucket returns a bucket without its hours.
func newBucket(name string, rules []limits.Limit, now int64) ConformanceBucket {
	limit, values, _ := strings.Cut(name, ":")
	b := ConformanceBucket{Limit: limit, Values: map[string]string{}, name: name}
	if values != "" {
		b.Values[formerly] = store.Unescape(values)
	}
	for _, rule := range rules {
		all := strings.Split(values, ";")
		if rule.Name != b.Limit || len(all) != max(len(rule.Per), 1) || len(rule.Per) == 0 && values != "" {
			continue
		}
		clear(b.Values)
		for i, name := range rule.Per {
			b.Values[name] = store.Unescape(all[i])
		}
		if of, ok := conformance.RuleOf(rule, effective.Spec(rule), now, now); ok {
			b.Window = of.Window()
		}
	}
	return b
}

// keptHours are the hours of a queue that begin from first on and before last.
type keptHours struct {
	client      redis.UniversalClient
	queue       string
	first, last time.Time
}

// days returns the days of the hours, and their keys.
func (k *keptHours) days() iter.Seq2[int64, string] {
	return func(yield func(int64, string) bool) {
		for day := k.first.UnixMicro() / conformance.Day; day <= k.last.UnixMicro()/conformance.Day; day++ {
			if !yield(day, conformance.HoursKey(k.queue, day)) {
				return
			}
		}
	}
}

// parse returns the hours of a day as they are kept.
func (k *keptHours) parse(day int64, text string) (hours []ConformanceHour) {
	of := conformance.ParseHours(text)
	for _, i := range slices.Sorted(maps.Keys(of)) {
		at := time.UnixMicro(day * conformance.Day).UTC().Add(time.Duration(i) * time.Hour)
		if at.Before(k.first) || !at.Before(k.last) {
			continue
		}
		hour := ConformanceHour{At: at, Most: of[i].Most, Allowed: of[i].Allowed}
		if over := of[i].Over; over != nil {
			hour.Over = &Violation{At: time.UnixMicro(over.At).UTC(), Took: over.N, Allowed: over.Allowed}
		}
		hours = append(hours, hour)
	}
	return hours
}

// nearest returns how near calls came to their limits, as parts of these and by bucket; more than 1 if they exceeded them.
// It keeps no hours in memory: a queue may have those of very many buckets. It reads them in pieces, so that Redis has time
// for other commands.
func (k *keptHours) nearest(ctx context.Context, query ConformanceQuery) (map[string]float64, error) {
	match := cmp.Or(query.Limit, "*") + ":*"
	if query.Tenant != "" {
		match += rediskey.Escape(query.Tenant) + "*"
	}
	parts := map[string]float64{}
	for day, key := range k.days() {
		for cursor, begun := uint64(0), false; cursor != 0 || !begun; begun = true {
			fields, next, err := k.client.HScan(ctx, key, cursor, match, 500).Result()
			if err != nil {
				return nil, err
			}
			for i := 0; i+1 < len(fields); i += 2 {
				if hours := k.parse(day, fields[i+1]); len(hours) > 0 {
					parts[fields[i]] = max(parts[fields[i]], nearest(hours))
				}
			}
			cursor = next
		}
	}
	return parts, nil
}

// nearest returns how near calls came to their limit, as a part of it.
func nearest(hours []ConformanceHour) (part float64) {
	for _, hour := range hours {
		if hour.Over != nil {
			part = max(part, float64(hour.Over.Took)/float64(max(hour.Over.Allowed, 1)))
		}
		part = max(part, float64(hour.Most)/float64(max(hour.Allowed, 1)))
	}
	return part
}

// read sets the hours of buckets.
func (k *keptHours) read(ctx context.Context, buckets []ConformanceBucket) error {
	for day, key := range k.days() {
		for some := range slices.Chunk(buckets, store.MaxKeys) {
			names := make([]string, len(some))
			for i := range some {
				names[i] = some[i].name
			}
			texts, err := k.client.HMGet(ctx, key, names...).Result()
			if err != nil {
				return err
			}
			for i := range some {
				text, _ := texts[i].(string) // "" if no call left on that day
				some[i].Hours = append(some[i].Hours, k.parse(day, text)...)
			}
		}
	}
	return nil
}

// missed returns the hours in which calls were not counted.
func (k *keptHours) missed(ctx context.Context) (all []time.Time, err error) {
	for day, key := range k.days() {
		text, err := k.client.HGet(ctx, key, conformance.Missed).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		for _, hour := range k.parse(day, text) {
			all = append(all, hour.At)
		}
	}
	return all, nil
}
