// Package sendwindow has the hours in which calls may go, such as "Mon-Fri 09:00-18:00
// Europe/Berlin".
package sendwindow

import "time"

// Window says at which hours of which days calls may go, by the clocks of a
// time zone: "Mon-Fri 09:00-18:00 Europe/Berlin". [Parse] has its text
// form. The zero value is always open.
//
// It is open exactly while the zone's clocks show a time within it. So where
// clocks go forward, a window that would begin in the hour that is skipped
// begins right after it; and where they go back, an hour that comes twice is
// within the window both times, and outside of it both times.
type Window struct {
	ranges []windowHours
	week   []weekSpan // what the ranges open together: ascending, apart from each other
	zone   *time.Location
}

// windowHours are the same on several days.
type windowHours struct {
	days     [7]bool // Monday first
	from, to int     // minutes since midnight; to is beyond 24:00 when it is on the next day
}

// weekSpan is a part of the week, in minutes since Monday 00:00.
type weekSpan struct{ from, to int64 }

// IsZero tells whether the window is the zero one, which never closes.
func (w Window) IsZero() bool { return w.zone == nil }

const (
	minuteMicros = int64(time.Minute / time.Microsecond)
	weekMinutes  = 7 * dayMinutes
	dayMinutes   = 24 * 60

	// windowMargin is more than a week, after which a window's hours come again.
	windowMargin = 8 * 24 * time.Hour
)

// OpenAt is the first moment at or after t at which the window is open.
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

// Openings are when the window opens and closes, in turns, in µs since the
// epoch, ascending. It is open from each opening up to, not including, the
// closing after it. They begin with the opening that holds from or, if the
// window is closed then, with the next one, which may be later than until; and
// they go on with all others before until. nil for the zero window.
//
// An opening that lasts is cut, at the earliest a week before from and a week
// after until: ask again before it closes.
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

// Meet tells whether two windows are ever open together. Zones differ by the
// season, so it looks at a winter and a summer, the same ones whenever it is asked.
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
			// What closes first meets nothing that comes later.
			if ours[1] < theirs[1] {
				ours = ours[2:]
			} else {
				theirs = theirs[2:]
			}
		}
	}
	return false
}

// between are the openings from one moment to another, cut there.
func (w Window) between(from, until time.Time) []int64 {
	var openings []int64
	for from.Before(until) {
		// Up to the next change of the zone its clocks run evenly.
		local := from.In(w.zone)
		_, offset := local.Zone()
		_, change := local.ZoneBounds()
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
				case opens >= closes: // outside of what is asked
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

// mondayBefore is when the week began that holds a moment, both in µs of a
// zone's own clock since 1970, whose first Monday was the 5th of January.
func mondayBefore(micros int64) int64 {
	const week, first = weekMinutes * minuteMicros, 4 * dayMinutes * minuteMicros
	since := (micros - first) % week
	if since < 0 {
		since += week
	}
	return micros - since
}
