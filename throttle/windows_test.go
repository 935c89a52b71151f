package throttle

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// dateAt is a date as one comparable number.
func dateAt(t time.Time) int {
	y, m, d := t.Date()
	return y*10000 + int(m)*100 + d
}

func TestLengthOfDays(t *testing.T) {
	berlin := location(t, "Europe/Berlin")
	for date, want := range map[string]time.Duration{
		"2026-03-28": 24 * time.Hour, "2026-03-29": 23 * time.Hour, "2026-10-25": 25 * time.Hour,
		"2026-10-26": 24 * time.Hour, "2024-02-29": 24 * time.Hour,
	} {
		now, err := time.ParseInLocation("2006-01-02 15:04", date+" 12:00", berlin)
		if err != nil {
			t.Fatal(err)
		}
		starts := window("1/day", berlin).lua().Windows(now, 1)
		if got := time.Duration(starts[2]-starts[1]) * time.Microsecond; got != want {
			t.Errorf("%s in Berlin has %v, want %v", date, got, want)
		}
	}
	for date, want := range map[string]int{"2023-02-14": 28, "2024-02-14": 29, "2100-02-14": 28, "2024-01-31": 31, "2024-12-01": 31, "2025-04-30": 30} {
		now, err := time.Parse(time.DateOnly, date)
		if err != nil {
			t.Fatal(err)
		}
		starts := window("1/month", time.UTC).lua().Windows(now, 1)
		if got := time.Duration(starts[2]-starts[1]) * time.Microsecond; got != time.Duration(want)*day {
			t.Errorf("the month of %s has %v, want %d days", date, got, want)
		}
	}
}

// hardZones have skipped midnights, repeated ones, half-hour changes, changes
// at 00:01 and days that never were.
var hardZones = []string{
	"UTC", "Europe/Berlin", "Europe/London", "America/New_York", "America/Sao_Paulo", "America/Havana", "America/St_Johns",
	"America/Scoresbysund", "America/Asuncion", "America/Santiago", "Asia/Kathmandu", "Asia/Beirut", "Asia/Gaza", "Asia/Tehran",
	"Africa/Cairo", "Africa/Casablanca", "Atlantic/Azores", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kwajalein", "Pacific/Chatham",
}

// TestWindowsHoldNow: whatever a zone does to its clocks, the second of the
// windows is the one that holds now, it begins with its date, and the same
// windows come out wherever in them one stands.
func TestWindowsHoldNow(t *testing.T) {
	t.Parallel()
	locations := map[string]*time.Location{}
	for _, zone := range hardZones {
		locations[zone] = location(t, zone)
	}
	rapid.Check(t, func(t *rapid.T) {
		loc := locations[rapid.SampledFrom(hardZones).Draw(t, "zone")]
		now := time.UnixMicro(rapid.Int64Range(5e14, 2.2e15).Draw(t, "now"))
		if rapid.Bool().Draw(t, "near a change") {
			if _, until := now.In(loc).ZoneBounds(); !until.IsZero() {
				now = until.Add(time.Duration(rapid.Int64Range(-30*60, 30*60).Draw(t, "minutes")) * time.Minute)
			}
		}
		limit := window(rapid.SampledFrom([]string{"1/day", "1/week", "1/month"}).Draw(t, "rate"), loc)
		checkWindows(t, limit, now)
	})
	// Every quarter of an hour around the changes known to be hard.
	for zone, at := range map[string]string{
		"America/Sao_Paulo": "2018-11-04", "America/Havana": "2024-11-03", "America/St_Johns": "2010-11-07",
		"Pacific/Apia": "2011-12-30", "Pacific/Kwajalein": "1993-08-21", "Africa/Cairo": "2023-04-28", "Europe/Berlin": "2026-10-25",
	} {
		date, err := time.Parse(time.DateOnly, at)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 * 24 * 8 {
			for _, rate := range []string{"1/day", "1/week", "1/month"} {
				checkWindows(t, window(rate, locations[zone]), date.Add(-4*day).Add(time.Duration(i)*15*time.Minute))
			}
		}
	}
}

func checkWindows(t rapid.TB, limit Limit, now time.Time) {
	t.Helper()
	const after = 3
	starts := limit.lua().Windows(now, after)
	if len(starts) != after+2 {
		t.Fatalf("%v, %v: %d windows, want %d", limit.Rate, now.In(limit.Location), len(starts), after+2)
	}
	holding := 0
	for i := 1; i < len(starts); i++ {
		if starts[i] <= starts[i-1] {
			t.Fatalf("%v, %v: starts do not ascend: %v", limit.Rate, now.In(limit.Location), starts)
		}
		if starts[i-1] <= now.UnixMicro() && now.UnixMicro() < starts[i] {
			holding++
		}
	}
	if holding != 1 || starts[1] > now.UnixMicro() || now.UnixMicro() >= starts[2] {
		t.Fatalf("%v, %v: the second of %v does not hold it", limit.Rate, now.In(limit.Location), starts)
	}
	for _, start := range starts {
		first := time.UnixMicro(start).In(limit.Location)
		if before := first.Add(-time.Microsecond); dateAt(before) >= dateAt(first) {
			t.Fatalf("%v: %v does not begin a date", limit.Rate, first)
		}
	}
	for _, same := range []int64{starts[1], starts[2] - 1, (starts[1] + starts[2]) / 2} {
		if again := limit.lua().Windows(time.UnixMicro(same), after); again[1] != starts[1] || again[2] != starts[2] {
			t.Fatalf("%v: %v and %v share a window, but their windows differ: %v, %v", limit.Rate, now.In(limit.Location), time.UnixMicro(same).In(limit.Location), starts, again)
		}
	}
}
