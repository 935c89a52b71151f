package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/conformance"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
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

	// Missed has the hours in which calls were not counted: their workers told of them later than 15 minutes after
	// others, or all workers were gone for so long that the record of calls was cut.
	Missed []time.Time
}

// ConformanceBucket says how calls kept to a limit that they share.
type ConformanceBucket struct {
	Limit  string
	Values map[string]string // of the limit's Per; empty for a limit that all share. Under "" if the limit is gone or has another Per
	Window time.Duration     // how long the limit's windows are; those of a calendar may differ by hours or days. 0: the queue has no such limit any more
	Hours  []ConformanceHour // in the order of time, without those in which no call left

	name string
	part float64 // how near the calls came to the limit
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
	Before, After string // the limit before and after it was changed; "": the tenant or group had none of its own
}

// CauseKind is a kind of [Cause].
type CauseKind string

const (
	// CausedByRun: an operator ran jobs at once, beyond their limits.
	CausedByRun CauseKind = "run"

	// CausedByChange: the limit was changed, so calls that left before it were allowed by another one.
	CausedByChange CauseKind = "changed"

	// CausedByEnd: the same, because an override ended.
	CausedByEnd CauseKind = "ended"

	// CausedByLoss: what was used of the limits was lost from Redis.
	CausedByLoss CauseKind = "lost"
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
	buckets := map[string]*ConformanceBucket{}
	first, last := query.From.Truncate(time.Hour), query.To
	match := cmp.Or(query.Limit, "*") + ":*"
	if query.Tenant != "" {
		match += rediskey.Escape(query.Tenant) + "*"
	}
	for day := first.UnixMicro() / conformance.Day; day <= last.UnixMicro()/conformance.Day; day++ {
		hours, err := readHours(ctx, client, conformance.HoursKey(queue, day), match)
		if err != nil {
			return fail(err)
		}
		for name, text := range hours {
			b := buckets[name]
			if b == nil {
				b = &ConformanceBucket{}
				buckets[name] = b
			}
			of := conformance.ParseHours(text)
			for _, i := range slices.Sorted(maps.Keys(of)) {
				at := time.UnixMicro(day * conformance.Day).UTC().Add(time.Duration(i) * time.Hour)
				if at.Before(first) || !at.Before(last) {
					continue
				}
				hour := ConformanceHour{At: at, Most: of[i].Most, Allowed: of[i].Allowed}
				if over := of[i].Over; over != nil {
					hour.Over = &Violation{At: time.UnixMicro(over.At).UTC(), Took: over.N, Allowed: over.Allowed}
				}
				b.Hours = append(b.Hours, hour)
			}
		}
	}
	if missed := buckets[conformance.Missed]; missed != nil {
		for _, hour := range missed.Hours {
			c.Missed = append(c.Missed, hour.At)
		}
		delete(buckets, conformance.Missed)
	}
	now := last.UnixMicro()
	for name, b := range buckets {
		var values string
		b.Limit, values, _ = strings.Cut(name, ":")
		b.Values = map[string]string{}
		if values != "" {
			b.Values[formerly] = store.Unescape(values)
		}
		for _, rule := range rules.Limits {
			all := strings.Split(values, ";")
			if rule.Name != b.Limit || len(all) != max(len(rule.Per), 1) {
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
		b.name, b.part = name, b.nearest()
		if len(b.Hours) > 0 && (query.Limit == "" || query.Limit == b.Limit) && (query.Tenant == "" || query.Tenant == b.Values["tenant"]) {
			c.Buckets = append(c.Buckets, *b)
		}
	}
	c.Total = len(c.Buckets)
	slices.SortFunc(c.Buckets, func(a, b ConformanceBucket) int {
		return cmp.Or(cmp.Compare(b.part, a.part), strings.Compare(a.name, b.name))
	})
	c.Buckets = c.Buckets[:min(query.N, c.Total)]
	return c, nil
}

// nearest returns how near the calls came to the limit, as a part of it; more than 1 if they exceeded it.
func (b *ConformanceBucket) nearest() (part float64) {
	for _, hour := range b.Hours {
		if hour.Over != nil {
			part = max(part, float64(hour.Over.Took)/float64(max(hour.Over.Allowed, 1)))
		}
		part = max(part, float64(hour.Most)/float64(max(hour.Allowed, 1)))
	}
	return part
}

// readHours reads the hours of a day in pieces, so that Redis has time for other commands: of buckets whose names match
// a pattern, and those with missed calls.
func readHours(ctx context.Context, client redis.UniversalClient, key, match string) (map[string]string, error) {
	all := map[string]string{}
	missed, err := client.HGet(ctx, key, conformance.Missed).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	if missed != "" {
		all[conformance.Missed] = missed
	}
	for cursor := uint64(0); ; {
		fields, next, err := client.HScan(ctx, key, cursor, match, 500).Result()
		if err != nil {
			return nil, err
		}
		for i := 0; i+1 < len(fields); i += 2 {
			all[fields[i]] = fields[i+1]
		}
		if cursor = next; cursor == 0 {
			return all, nil
		}
	}
}
