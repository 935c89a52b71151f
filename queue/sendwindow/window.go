// Package sendwindow defines the hours in which calls may go, such as "Mon-Fri
// 09:00-18:00 Europe/Berlin".
package sendwindow

import (
	"time"

	"github.com/headgate/headgate/internal/timezone"
)

// Window is the hours of a week in which calls may go, by the clocks of a time zone:
// "Mon-Fri 09:00-18:00 Europe/Berlin". [Parse] reads its text form. The zero value is
// always open.
//
// It is open exactly while the zone's clocks show a time within it. So when clocks go
// forward, a window that would begin in the skipped hour begins right after it. When
// clocks go back, the repeated hour is within the window both times, or outside of it
// both times.
type Window struct {
	ranges []windowHours
	week   []weekSpan // when any of the ranges is open: ascending, without overlaps
	zone   *time.Location
}

// windowHours is a range of hours that is open on several days.
type windowHours struct {
	days     [7]bool // Monday first
	from, to int     // minutes since midnight; to is beyond 24:00 if it is on the next day
}

// weekSpan is a part of the week, in minutes since Monday 00:00.
type weekSpan struct{ from, to int64 }

// IsZero reports whether w is the zero window, which is always open.
func (w Window) IsZero() bool { return w.zone == nil }

const (
	minuteMicros = int64(time.Minute / time.Microsecond)
	weekMinutes  = 7 * dayMinutes
	dayMinutes   = 24 * 60

	// windowMargin is more than a week, after which the hours of a window repeat.
	windowMargin = 8 * 24 * time.Hour
)

// OpenAt returns the first moment at or after t at which the window is open.
func (w Window) OpenAt(t time.Time) time.Time {
	if w.IsZero() {
		return t
	}
	open := w.Openings(t, t)[0]
	if open <= t.UnixMicro() {
		return t
	}
	return time.UnixMicro(open).In(t.Location())
}

// Openings returns when the window opens and closes, alternating, in µs since the epoch,
// ascending. It is open from each opening up to, not including, the closing after it. The
// first opening is the one that contains from or, if the window is closed then, the next
// one, which may be later than until. The others are all before until. It returns nil for
// the zero window.
//
// An opening that does not end is cut, at the earliest a week before from and a week
// after until: call Openings again before it closes.
func (w Window) Openings(from, until time.Time) []int64 {
	if w.IsZero() {
		return nil
	}
	for ; ; until = until.Add(windowMargin) {
		all := w.between(from.Add(-windowMargin), until.Add(windowMargin))
		for len(all) > 0 && all[1] <= from.UnixMicro() {
			all = all[2:]
		}
		for len(all) > 2 && all[len(all)-2] >= until.UnixMicro() {
			all = all[:len(all)-2]
		}
		// Clocks that go forward can skip the only opening of a week.
		if len(all) > 0 {
			return all
		}
	}
}

// Meet reports whether two windows are ever open at the same time. Time zones differ
// between seasons, so it checks a winter and a summer, always the same ones.
func (w Window) Meet(other Window) bool {
	if w.IsZero() || other.IsZero() {
		return true
	}
	for _, month := range []time.Month{time.January, time.July} {
		from := time.Date(2026, month, 5, 0, 0, 0, 0, time.UTC)
		ours, theirs := w.between(from, from.Add(windowMargin)), other.between(from, from.Add(windowMargin))
		for len(ours) > 0 && len(theirs) > 0 {
			if max(ours[0], theirs[0]) < min(ours[1], theirs[1]) {
				return true
			}
			// The one that closes first meets nothing that comes later.
			if ours[1] < theirs[1] {
				ours = ours[2:]
			} else {
				theirs = theirs[2:]
			}
		}
	}
	return false
}

// between returns the openings between two moments, cut there.
func (w Window) between(from, until time.Time) []int64 {
	var openings []int64
	for from.Before(until) {
		// Until the zone's next change its clocks run evenly.
		local := from.In(w.zone)
		_, offset := local.Zone()
		change := timezone.NextChange(local)
		if change.IsZero() || change.After(until) {
			change = until
		}
		first, last := from.UnixMicro(), change.UnixMicro()
		ahead := int64(offset) * 1e6
		for monday := mondayBefore(first + ahead); monday < last+ahead; monday += weekMinutes * minuteMicros {
			for _, span := range w.week {
				opens := max(first, monday+span.from*minuteMicros-ahead)
				closes := min(last, monday+span.to*minuteMicros-ahead)
				n := len(openings)
				switch {
				case opens >= closes: // outside of the range
				case n > 0 && openings[n-1] == opens:
					openings[n-1] = closes
				default:
					openings = append(openings, opens, closes)
				}
			}
		}
		from = change
	}
	return openings
}

// mondayBefore returns when the week of a moment began, both in µs of a zone's own clock
// since 1970, whose first Monday was the 5th of January.
func mondayBefore(micros int64) int64 {
	const week, first = weekMinutes * minuteMicros, 4 * dayMinutes * minuteMicros
	since := (micros - first) % week
	if since < 0 {
		since += week
	}
	return micros - since
}
