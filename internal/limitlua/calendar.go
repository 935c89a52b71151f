package limitlua

import (
	"time"

	"github.com/headgate/headgate/internal/timezone"
)

// Windows returns the starts of the calendar windows around now, in µs since the epoch,
// ascending: that of the window before the one that holds now, of that one, and of n
// after it. It returns nil if the limit's windows do not follow a calendar.
//
// Package time computes them because scripts do not know time zones. A day has 23 or 25
// hours when the clocks change.
func (l Limit) Windows(now time.Time, n int) []int64 {
	if l.Algorithm != "fixed_window" || l.Location == nil {
		return nil
	}
	y, m, d := now.In(l.Location).Date()
	months, days := 0, 1
	switch {
	case l.Months != 0:
		months, days, d = 1, 0, 1
	case l.Period == 7*24*time.Hour:
		days = 7
		d -= (int(now.In(l.Location).Weekday()) + 6) % 7 // back to Monday
	}
	start := func(i int) int64 {
		return startOf(y, m+time.Month(i*months), d+i*days, l.Location).UnixMicro()
	}
	// Clocks that go back over midnight show a date again after the next one has begun.
	holding := 0
	for start(holding+1) <= now.UnixMicro() {
		holding++
	}
	// A date that was skipped has no window: it starts when the next one does.
	before := holding - 1
	for start(before) == start(holding) {
		before--
	}
	starts := append(make([]int64, 0, n+2), start(before))
	for i := holding; len(starts) < n+2; i++ {
		if next := start(i); next > starts[len(starts)-1] {
			starts = append(starts, next)
		}
	}
	return starts
}

// startOf returns the first moment at which the zone shows the date or a later one. If the
// clocks skip midnight, that is the moment of the change; if they repeat midnight, the
// first of the two.
func startOf(y int, m time.Month, d int, loc *time.Location) time.Time {
	midnight := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	t := midnight.Add(-2 * 24 * time.Hour).In(loc) // no zone is that far from UTC
	for {
		_, offset := t.Zone()
		start := midnight.Add(-time.Duration(offset) * time.Second)
		if start.Before(t) {
			start = t // the change before t skipped it
		}
		until := timezone.NextChange(t)
		if until.IsZero() || start.Before(until) {
			return start.In(loc)
		}
		t = until
	}
}
