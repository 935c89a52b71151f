package throttle

import "time"

// Windows are the starts of the calendar windows around now, in µs since the
// epoch, ascending: one before the window that holds now, that one, and n
// after it. nil when the limit's windows do not follow a calendar.
//
// They are made by package time and not in the script, because only it knows
// the time zones. A day is as long as the zone makes it: 23 hours or 25 when
// the clocks change.
func (l Limit) Windows(now time.Time, n int) []int64 {
	if l.Algorithm != FixedWindow || l.Location == nil {
		return nil
	}
	y, m, d := now.In(l.Location).Date()
	months, days := 0, 0
	switch {
	case l.Rate.Months != 0:
		months, d = 1, 1
	case l.Rate.Period == 7*day:
		days = 7
		d -= (int(now.In(l.Location).Weekday()) + 6) % 7 // back to Monday
	default:
		days = 1
	}
	starts := make([]int64, 0, n+2)
	for i := -1; i <= n; i++ {
		start := startOf(y, m+time.Month(i*months), d+i*days, l.Location).UnixMicro()
		if len(starts) == 0 || start > starts[len(starts)-1] {
			starts = append(starts, start)
		}
	}
	return starts
}

// startOf is the first moment of a date. Where the clocks skip midnight the
// date starts later; where they repeat it, at the first of the two.
func startOf(y int, m time.Month, d int, loc *time.Location) time.Time {
	t := time.Date(y, m, d, 0, 0, 0, 0, loc)
	want := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).YearDay()
	from, until := t.ZoneBounds()
	// A skipped midnight: Date gives a time on the day before, or one within
	// the new day; the first moment of the new day is the change itself.
	if t.YearDay() != want && !until.IsZero() {
		return until
	}
	if (t.Hour() != 0 || t.Minute() != 0) && !from.IsZero() {
		return from
	}
	// A repeated midnight: the same wall clock an hour or so before the change.
	if !from.IsZero() {
		_, after := t.Zone()
		_, before := from.Add(-time.Second).Zone()
		if earlier := t.Add(time.Duration(after-before) * time.Second); earlier.Before(from) && earlier.Day() == t.Day() && earlier.Hour() == 0 {
			return earlier
		}
	}
	return t
}
