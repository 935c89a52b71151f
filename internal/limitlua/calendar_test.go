package limitlua

import (
	"testing"
	"time"
)

func TestStartOf(t *testing.T) {
	for _, test := range []struct{ zone, date, want string }{
		{"UTC", "2024-02-29", "2024-02-29T00:00:00Z"},
		{"Europe/Berlin", "2026-03-29", "2026-03-29T00:00:00+01:00"},
		{"Europe/Berlin", "2026-10-25", "2026-10-25T00:00:00+02:00"},
		{"America/Sao_Paulo", "2018-11-04", "2018-11-04T01:00:00-02:00"}, // midnight was skipped
		{"America/Sao_Paulo", "2018-02-18", "2018-02-18T00:00:00-03:00"}, // 23:00 came twice the day before
		{"Asia/Beirut", "2022-03-27", "2022-03-27T01:00:00+03:00"},       // skipped
		{"Africa/Cairo", "2023-04-28", "2023-04-28T01:00:00+03:00"},      // skipped
		{"America/Havana", "2024-11-03", "2024-11-03T00:00:00-04:00"},    // midnight came twice: the first
		{"America/Havana", "2024-03-10", "2024-03-10T01:00:00-04:00"},    // skipped
		{"America/St_Johns", "2010-11-07", "2010-11-07T00:00:00-02:30"},  // a minute of it, an hour of the day before, then the rest
		{"Australia/Lord_Howe", "2026-04-05", "2026-04-05T00:00:00+11:00"},
		{"Pacific/Apia", "2011-12-29", "2011-12-29T00:00:00-10:00"},
		{"Pacific/Apia", "2011-12-30", "2011-12-31T00:00:00+14:00"}, // there was no such day
		{"Pacific/Apia", "2011-12-31", "2011-12-31T00:00:00+14:00"},
		{"Pacific/Kwajalein", "1993-08-21", "1993-08-22T00:00:00+12:00"}, // nor here
	} {
		loc, err := time.LoadLocation(test.zone)
		if err != nil {
			t.Fatal(err)
		}
		date, err := time.Parse(time.DateOnly, test.date)
		if err != nil {
			t.Fatal(err)
		}
		y, m, d := date.Date()
		if got := startOf(y, m, d, loc).Format(time.RFC3339); got != test.want {
			t.Errorf("%s in %s begins %s, want %s", test.date, test.zone, got, test.want)
		}
	}
}

// TestWindowsOfLaterDecades: windows are found also where package time only has a rule for the changes of the clocks, and
// takes leap years for a day too short.
func TestWindowsOfLaterDecades(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Sydney", "UTC"} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, limit := range []Limit{{Period: 24 * time.Hour}, {Period: 7 * 24 * time.Hour}, {Months: 1}} {
			limit.Algorithm, limit.Location = "fixed_window", loc
			for year := 2026; year < 2050; year++ {
				for _, start := range limit.Windows(time.Date(year, 12, 24, 12, 0, 0, 0, time.UTC), 12) {
					if at := time.UnixMicro(start).In(loc); at.Hour() != 0 || at.Minute() != 0 {
						t.Errorf("%s, %d: a window begins at %v", zone, year, at)
					}
				}
			}
		}
	}
}
