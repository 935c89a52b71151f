package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

const (
	noEvent      = "0-0" // before all events
	mostEntries  = 100   // of the events that are read at a time, with up to eight calls each
	fewestOfThem = 5
	mostPieces   = 500 // that are counted in a row

	// bucketsAtATime is about how many buckets change at a time: Redis has other work.
	bucketsAtATime = 500

	// Missed is the field of a day's hours that says how often calls were missed: the most of an hour is how many
	// came too late to be counted, or 1 for calls whose events were gone before they were counted.
	Missed = "*"
)

// Auditor counts the calls of a queue. One goroutine uses it.
type Auditor struct {
	of      partition.Layout
	redis   redis.UniversalClient
	counted map[string]string  // by partition: up to which entry of its events; and "*", how often calls were counted
	buckets map[string]*bucket // by "LIMIT:VALUES"; and Missed, which has only hours
	now     time.Time          // of Redis, when calls are counted
	entries int                // of the events, how many are read at a time
	pages   *pages             // of arrivals; nil: not read
	limits  map[string]*inForce
}

// inForce are the limits of a partition, as they were read for the tenants that have called since Count began.
type inForce struct {
	effective.Limits
	rules   []limits.Limit
	tenants map[string]bool
}

// NewAuditor returns an auditor of a queue.
func NewAuditor(of partition.Layout, client redis.UniversalClient) *Auditor {
	a := &Auditor{of: of, redis: client, entries: mostEntries}
	a.Forget()
	return a
}

// Forget makes the auditor read again what is kept: another one may have counted calls.
func (a *Auditor) Forget() {
	a.counted, a.buckets, a.pages = map[string]string{}, map[string]*bucket{}, nil
}

// Count counts the calls of all partitions that became known since the last time.
func (a *Auditor) Count(ctx context.Context) (err error) {
	if a.now, err = store.Time(ctx, a.redis, store.Key(a.of.Queue, "limits")); err != nil {
		return fmt.Errorf("count the calls of %s: %w", a.of.Queue, err)
	}
	a.limits = map[string]*inForce{}
	var errs []error
	for _, home := range a.of.Names() {
		for range mostPieces { // the rest is counted the next time
			began := time.Now()
			more, err := a.countIn(ctx, home)
			if err != nil {
				a.Forget() // it may be kept or not
				errs = append(errs, fmt.Errorf("count the calls of %s: %w", home, err))
			}
			if err != nil || !more {
				break
			}
			if err := wait.For(ctx, time.Since(began)); err != nil { // others have as much time
				return err
			}
		}
	}
	a.tidy()
	return errors.Join(errs...)
}

// tidy drops from memory what can be read again.
func (a *Auditor) tidy() {
	today := a.now.UnixMicro() / Day
	maps.DeleteFunc(a.buckets, func(name string, b *bucket) bool {
		maps.DeleteFunc(b.days, func(day int64, _ Hours) bool { return day < today-1 })
		return name != Missed && b.window.newest()+b.rule.lasts() < a.now.UnixMicro()
	})
}

// countIn counts some calls of a partition, and reports whether there may be more.
func (a *Auditor) countIn(ctx context.Context, home string) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	from, err := a.countedOf(ctx, home, noEvent)
	if err != nil {
		return false, err
	}
	times, err := a.countedOf(ctx, "*", "0")
	if err != nil {
		return false, err
	}
	reply, err := store.CallsScript.Run(ctx, a.redis, store.ScriptKeys(home), home, from, a.entries)
	if err != nil {
		return false, err
	}
	read := store.Read(reply)
	to, missed, base, names, lines := read.Text(), read.Int(), read.Int(), read.Text(), read.Text()
	if err := read.End(); err != nil || to == from {
		return false, err
	}
	calls, unread := parseCalls(base, names, lines)
	missed += unread
	taken, err := a.take(ctx, home, calls)
	if err != nil {
		return false, err
	}
	if err := a.load(ctx, taken); err != nil {
		return false, err
	}
	args := []any{a.of.Queue, home, to, times}
	for _, name := range slices.Sorted(maps.Keys(taken)) {
		writes, late := a.buckets[name].add(name, taken[name].calls, a.now.UnixMicro())
		args, missed = append(args, writes...), missed+int64(late)
	}
	if len(calls) > 0 {
		if a.pages == nil {
			if a.pages, err = readPages(ctx, a.redis, a.of.Queue); err != nil {
				return false, err
			}
		}
		args = append(args, a.pages.add(calls, a.now.UnixMilli())...)
	}
	if missed > 0 {
		args = append(args, a.buckets[Missed].noteMissed(a.now, missed)...)
	}
	kept, err := store.ConformanceScript.Run(ctx, a.redis, store.ScriptKeys(a.of.Queue), args...)
	if err != nil {
		return false, err
	}
	if kept != int64(1) { // another auditor has counted calls
		a.Forget()
		return true, nil
	}
	switch buckets := len(taken); {
	case buckets > bucketsAtATime:
		a.entries = max(a.entries/2, fewestOfThem)
	case buckets < bucketsAtATime/4:
		a.entries = min(2*a.entries, mostEntries)
	}
	n, err := strconv.ParseInt(times, 10, 64)
	a.counted[home], a.counted["*"] = to, strconv.FormatInt(n+1, 10)
	return true, err
}

// countedOf returns a field of what was counted, and otherwise if there is none.
func (a *Auditor) countedOf(ctx context.Context, field, otherwise string) (string, error) {
	if text, known := a.counted[field]; known {
		return text, nil
	}
	text, err := a.redis.HGet(ctx, store.Key(a.of.Queue, "counted"), field).Result()
	if errors.Is(err, redis.Nil) {
		text, err = otherwise, nil
	}
	if err == nil {
		a.counted[field] = text
	}
	return text, err
}

// takings are the calls of a bucket, and their rule.
type takings struct {
	rule  Rule
	calls []Call
}

// take returns what calls took of each bucket.
func (a *Auditor) take(ctx context.Context, home string, calls []call) (map[string]*takings, error) {
	taken := map[string]*takings{}
	if len(calls) == 0 {
		return taken, nil
	}
	first, last := calls[0].at, calls[0].at
	for i := range calls {
		first, last = min(first, calls[i].at), max(last, calls[i].at)
	}
	e, err := a.limitsOf(ctx, home, calls)
	if err != nil {
		return nil, err
	}
	for j := range calls {
		calls[j].lane.Group = e.Tenants[calls[j].lane.Tenant].Group
	}
	for i, limit := range e.rules {
		if limit.Queues != nil { // several queues take from a budget
			continue
		}
		for j := range calls {
			n := calls[j].took(&limit)
			if n == 0 || !store.Holds(limit, &calls[j].lane) {
				continue
			}
			name := bucketName(&limit, &calls[j].lane)
			t := taken[name]
			if t == nil {
				rule, ok := RuleOf(limit, e.Spec(i, calls[j].lane.Tenant), first, last)
				if !ok {
					break
				}
				t = &takings{rule: rule}
				taken[name] = t
			}
			t.calls = append(t.calls, Call{calls[j].at, n})
		}
	}
	return taken, nil
}

// limitsOf returns the limits of a partition, with what differs for the tenants of calls.
func (a *Auditor) limitsOf(ctx context.Context, home string, calls []call) (*inForce, error) {
	known := a.limits[home]
	if known == nil {
		known = &inForce{tenants: map[string]bool{}}
		a.limits[home] = known
	}
	var tenants []string
	for i := range calls {
		if tenant := calls[i].lane.Tenant; !known.tenants[tenant] {
			known.tenants[tenant] = true
			tenants = append(tenants, tenant)
		}
	}
	if len(tenants) == 0 {
		return known, nil
	}
	e, rules, err := effective.ReadTenants(ctx, a.redis, home, tenants...)
	if err != nil {
		return nil, err
	}
	maps.Copy(e.Tenants, known.Tenants)
	maps.Copy(e.Overrides, known.Overrides)
	known.Limits, known.rules = e, rules
	return known, nil
}

// bucketName returns the name of a limit's bucket for a lane, "LIMIT:VALUES".
func bucketName(limit *limits.Limit, lane *store.Lane) string {
	_, name, _ := strings.Cut(store.BucketKey("", *limit, lane), "}:b:")
	return name
}

// load reads what is kept of buckets that the auditor does not know yet, and of the days on which calls left.
func (a *Auditor) load(ctx context.Context, taken map[string]*takings) error {
	type missing struct {
		bucket *bucket
		name   string
		day    int64 // -1: its calls
		reply  *redis.StringCmd
	}
	var all []missing
	pipe := a.redis.Pipeline()
	want := func(name string, days ...int64) {
		b := a.buckets[name]
		if b == nil {
			b = &bucket{days: map[int64]Hours{}}
			a.buckets[name] = b
			all = append(all, missing{b, name, -1, pipe.Get(ctx, sentKey(a.of.Queue, name))})
		}
		for _, day := range days {
			if b.days[day] == nil {
				b.days[day] = Hours{}
				all = append(all, missing{b, name, day, pipe.HGet(ctx, HoursKey(a.of.Queue, day), name)})
			}
		}
	}
	want(Missed, a.now.UnixMicro()/Day)
	for name, t := range taken {
		var days []int64
		for _, c := range t.calls {
			for _, at := range []int64{c.At, c.At + Late} { // and of later calls whose windows it is in
				if day := at / Day; !slices.Contains(days, day) {
					days = append(days, day)
				}
			}
		}
		want(name, days...)
		b := a.buckets[name]
		if b.rule.length() > 0 && b.rule.fixed != t.rule.fixed {
			b.before, b.since, b.until = b.rule, b.known, a.now.UnixMicro()
		}
		b.rule, b.known = t.rule, a.now.UnixMicro() // also if it is the same: its calendar goes on
	}
	if len(all) == 0 {
		return nil
	}
	if err := store.Execute(ctx, pipe); err != nil {
		return err
	}
	for _, m := range all {
		if m.day >= 0 {
			m.bucket.days[m.day] = ParseHours(m.reply.Val())
			continue
		}
		calls, _ := readCalls([]byte(m.reply.Val()))
		if len(calls) > 0 {
			m.bucket.last = calls[len(calls)-1].At
		}
		m.bucket.size = len(m.reply.Val())
		m.bucket.window.fill(calls)
	}
	return nil
}

// sentKey is the key of the calls that windows of a bucket still count.
func sentKey(queue, bucket string) string { return store.Key(queue, "sent:"+bucket) }

// HoursKey is the key of the hours of a day, by bucket.
func HoursKey(queue string, day int64) string {
	return store.Key(queue, "conformance:"+time.UnixMicro(day*Day).UTC().Format(time.DateOnly))
}
