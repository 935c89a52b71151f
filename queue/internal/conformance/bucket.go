package conformance

import (
	"maps"
	"slices"
	"time"
)

// bucket is what is counted of a bucket.
type bucket struct {
	window Window
	rule   Rule
	known  int64           // when the rule was last read
	before Rule            // the rule until it changed,
	since  int64           // which was after since, when it was last known not to have changed
	until  int64           // and before until, when the change was first known; 0: it did not change
	last   int64           // moment of the latest call that is kept
	size   int             // bytes that were kept when all calls were written
	grown  int             // bytes that were kept since
	lasts  int64           // to when they are kept
	days   map[int64]Hours // by number of the day since the epoch
}

// add counts calls, and returns the writes of conformance.lua that keep what changed, and how many calls were late.
func (b *bucket) add(name string, calls []Call, now int64) (writes []any, late int) {
	changed := map[int64]bool{}
	kept, late := b.window.Add(b.rule.Span, calls, func(at, n, last int64) {
		if b.days[at/Day].note(at, n, b.allowed(at, last)) {
			changed[at/Day] = true
		}
	})
	if len(kept) == 0 {
		return nil, late
	}
	text, last := writeCalls(b.last, kept)
	b.last, b.grown = last, b.grown+len(text)
	what, ms := "sent", int64(0)
	if lasts := b.rule.lasts(); b.grown > 2*b.size+256 || now+lasts > b.lasts {
		// For longer than needed, so that this is rare.
		what, ms, b.lasts = "all", 2*lasts/1000, now+2*lasts
		text, b.last = writeCalls(0, b.window.kept())
		b.size, b.grown = len(text), 0
	}
	writes = append(writes, what, name, text, ms)
	for _, day := range slices.Sorted(maps.Keys(changed)) {
		writes = append(writes, "hours", name, time.UnixMicro(day*Day).UTC().Format(time.DateOnly), b.days[day].String())
	}
	return writes, late
}

// allowed returns what the limit allowed in a window that ended at a moment. A call may become known after the limit has
// changed. When it changed is known only to the time between two reads, in which the larger one counts.
func (b *bucket) allowed(at, last int64) int64 {
	switch now := b.rule.allowed(last); {
	case at >= b.until:
		return now
	case at < b.since:
		return b.before.allowed(last)
	default:
		return max(now, b.before.allowed(last))
	}
}

// noteMissed notes that calls were missed.
func (b *bucket) noteMissed(now time.Time, n int64) (writes []any) {
	hours := b.days[now.UnixMicro()/Day]
	hours.at(now.UnixMicro()).Most += n
	return []any{"hours", Missed, now.UTC().Format(time.DateOnly), hours.String()}
}
