package timezone

import (
	"testing"
	"time"
	_ "time/tzdata"
)

// TestNextChange: from one moment to the next, the clocks run evenly, and the last one is not far away.
func TestNextChange(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Sydney", "Pacific/Chatham", "Asia/Kolkata", "Africa/Casablanca", "UTC"} {
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		offsetOf := func(t time.Time) int {
			_, offset := t.Zone()
			return offset
		}
		// Three steps a year at the most: two changes and the end of the year.
		at, end := time.Date(2026, 1, 1, 0, 0, 0, 0, loc), time.Date(2100, 1, 1, 0, 0, 0, 0, loc)
		for steps := 0; at.Before(end); steps++ {
			next := NextChange(at)
			if next.IsZero() {
				break
			}
			if !next.After(at) || steps > 4*75 {
				t.Fatalf("%s: after %v comes %v, in step %d", name, at, next, steps)
			}
			for hour := at; hour.Before(next); hour = hour.Add(time.Hour) {
				if offsetOf(hour) != offsetOf(at) {
					t.Fatalf("%s: the clocks change at %v, before %v", name, hour, next)
				}
			}
			at = next
		}
	}
}

// TestLastDayOfLeapYear: each moment of the day that ZoneBounds leaves out has a later one.
func TestLastDayOfLeapYear(t *testing.T) {
	t.Parallel()
	loc, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, year := range []int{2028, 2040, 2044, 2096} {
		for at := time.Date(year, 12, 30, 12, 0, 0, 0, loc); at.Year() == year; at = at.Add(30 * time.Minute) {
			if next := NextChange(at); !next.After(at) || next.After(time.Date(year+1, 4, 1, 0, 0, 0, 0, loc)) {
				t.Errorf("after %v comes %v", at, next)
			}
		}
	}
}
