// Package timezone says until when the clocks of a time zone run evenly.
package timezone

import "time"

// NextChange returns a moment after t up to which the clocks of t's zone are not changed. It is that of the next change
// or, where package time has only a rule for the changes, the end of a year. It is the zero time if there is no change any
// more.
func NextChange(t time.Time) time.Time {
	_, end := t.ZoneBounds()
	if end.IsZero() || end.After(t) {
		return end
	}
	// By a rule, ZoneBounds ends a leap year a day early, and returns that moment for the whole day after it, too.
	return end.Add(24 * time.Hour)
}
