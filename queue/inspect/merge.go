package inspect

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/lifecycle"
)

// What the partitions of a queue say, taken together. Of one partition, all of these return what it says.

func mergeOverviews(all []Overview) Overview {
	o := all[0]
	for _, other := range all[1:] {
		if other.Now.After(o.Now) {
			o.Now = other.Now
		}
		for into, n := range map[*int64]int64{
			&o.Waiting: other.Waiting, &o.Scheduled: other.Scheduled, &o.Retry: other.Retry, &o.Pending: other.Pending,
			&o.Active: other.Active, &o.Archived: other.Archived, &o.Enqueued: other.Enqueued, &o.Tenants: other.Tenants,
			&o.Stored: other.Stored, &o.StoredBytes: other.StoredBytes, &o.Calls: other.Calls, &o.UnservedJobs: other.UnservedJobs,
		} {
			*into += n
		}
		o.Answers = sumAnswers(o.Answers, other.Answers)
		o.Allowed += other.Allowed
		o.Confidence = lower(o.Confidence, other.Confidence)
		if o.DrainsAt.Before(other.DrainsAt) {
			o.DrainsAt = other.DrainsAt
		}
		if o.Top == nil || other.Top != nil && slower(*other.Top, *o.Top) {
			o.Top = other.Top
		}
		o.Unserved = append(o.Unserved, other.Unserved...)
		o.Pauses = mergePauses(o.Pauses, other.Pauses)
		o.Faults = append(o.Faults, other.Faults...)
	}
	if len(all) == 1 {
		return o
	}
	if o.Confidence == NoForecast {
		o.DrainsAt = time.Time{}
	}
	slices.SortFunc(o.Unserved, func(a, b Unserved) int { return strings.Compare(a.Kind, b.Kind) })
	o.Unserved = slices.Compact(o.Unserved)
	o.Pauses = o.Pauses[:min(len(o.Pauses), maxPauses)]
	o.Faults = mergeFaults(o.Faults)
	return o
}

func sumAnswers(a, b map[lifecycle.Answer]int64) map[lifecycle.Answer]int64 {
	sum := map[lifecycle.Answer]int64{}
	for _, all := range []map[lifecycle.Answer]int64{a, b} {
		for answer, n := range all {
			sum[answer] += n
		}
	}
	return sum
}

// lower returns the lower of two confidences.
func lower(a, b Confidence) Confidence {
	order := []Confidence{NoForecast, Rough, Steady}
	return order[min(slices.Index(order, a), slices.Index(order, b))]
}

// slower reports whether the first of two waiting tenants has finished after the second one. One whose end
// is not known finishes last.
func slower(a, b Outlook) bool {
	if a.DrainsAt.IsZero() != b.DrainsAt.IsZero() {
		return a.DrainsAt.IsZero()
	}
	return cmp.Or(a.DrainsAt.Compare(b.DrainsAt), cmp.Compare(a.Waiting, b.Waiting), strings.Compare(b.Tenant, a.Tenant)) > 0
}

const maxFaults = 100

func mergeFaults(faults []Fault) []Fault {
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.What, b.What)) })
	return faults[:min(len(faults), maxFaults)]
}

// mergePauses returns each scope once, with the pause that ends last, in the order of [Pauses].
func mergePauses(lists ...[]Pause) []Pause {
	if len(lists) == 1 {
		return lists[0]
	}
	last := map[Scope]Pause{}
	for _, p := range slices.Concat(lists...) {
		known, there := last[p.Scope]
		if !there || !known.Until.IsZero() && (p.Until.IsZero() || p.Until.After(known.Until)) {
			last[p.Scope] = p
		}
	}
	var all []Pause
	for _, p := range last {
		all = append(all, p)
	}
	sortPauses(all)
	return all
}

func mergeTotals(all []Totals) Totals {
	t := all[0]
	for _, other := range all[1:] {
		if other.At.After(t.At) {
			t.At = other.At
		}
		t.Enqueued, t.Waiting, t.Calls = t.Enqueued+other.Enqueued, t.Waiting+other.Waiting, t.Calls+other.Calls
		t.Answers = sumAnswers(t.Answers, other.Answers)
	}
	return t
}

func mergeGauges(queue string, all []Gauges) Gauges {
	g := all[0]
	g.Queue = partition.QueueOf(queue)
	for _, other := range all[1:] {
		for into, n := range map[*int64]int64{
			&g.Waiting: other.Waiting, &g.Scheduled: other.Scheduled, &g.Retry: other.Retry, &g.Pending: other.Pending, &g.Active: other.Active,
			&g.Archived: other.Archived, &g.Completed: other.Completed, &g.Enqueued: other.Enqueued, &g.Direct: other.Direct, &g.Tenants: other.Tenants, &g.Faults: other.Faults,
			&g.Stored: other.Stored, &g.StoredBytes: other.StoredBytes, &g.Asynq.Archived: other.Asynq.Archived, &g.Asynq.Processed: other.Asynq.Processed,
			&g.Asynq.Failed: other.Asynq.Failed, &g.Asynq.Bytes: other.Asynq.Bytes,
		} {
			*into += n
		}
		g.Asynq.Paused = g.Asynq.Paused || other.Asynq.Paused
		g.Asynq.Latency = max(g.Asynq.Latency, other.Asynq.Latency)
		g.Limits = mergeLimits(g.Limits, other.Limits)
		g.Pauses = mergePauses(g.Pauses, other.Pauses)
	}
	return g
}

// mergeLimits adds up what two partitions have seen of limits. While new limits are published, they can have
// different ones for a moment.
func mergeLimits(a, b []LimitGauge) []LimitGauge {
	merged := slices.Clone(a)
	for _, other := range b {
		i := slices.IndexFunc(merged, func(l LimitGauge) bool { return l.Name == other.Name })
		if i < 0 {
			merged = append(merged, other)
			continue
		}
		l := &merged[i]
		if n := l.Buckets + other.Buckets; n > 0 {
			l.Used = (l.Used*float64(l.Buckets) + other.Used*float64(other.Buckets)) / float64(n)
			l.Buckets = n
		}
		l.Capacity, l.Adapted = max(l.Capacity, other.Capacity), min(l.Adapted, other.Adapted)
	}
	return merged
}
