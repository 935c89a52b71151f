package sendwindow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/check"
)

// the same zones on every machine

func parsedWindow(t testing.TB, text string) Window {
	t.Helper()
	w, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// minuteUTC reads "2026-03-29 01:00".
func minuteUTC(t testing.TB, text string) time.Time {
	t.Helper()
	moment, err := time.ParseInLocation("2006-01-02 15:04", text, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}

// openingsText writes openings as "2026-03-29 01:00 - 2026-03-29 02:00", in UTC.
func openingsText(openings []int64) []string {
	var texts []string
	for pair := range slices.Chunk(openings, 2) {
		text := func(micros int64) string { return time.UnixMicro(micros).UTC().Format("2006-01-02 15:04") }
		texts = append(texts, text(pair[0])+" - "+text(pair[1]))
	}
	return texts
}

func TestSendWindowText(t *testing.T) {
	for text, want := range map[string]string{
		"Mon-Fri 09:00-18:00 Europe/Berlin":                  "",
		"Mon-Fri 09:00-18:00, Sat 10:00-14:00 Europe/Berlin": "",
		"Mon,Wed,Fri 08:00-12:00 UTC":                        "",
		"22:00-06:00 America/New_York":                       "",
		"09:00-12:00, 13:00-18:00 Asia/Kolkata":              "",
		"00:00-24:00 UTC":                                    "",
		"Mon-Fri 09:00–18:00 Europe/Berlin":                  "Mon-Fri 09:00-18:00 Europe/Berlin",
		"  mon – FRI  9:00 - 18:00\tEtc/GMT-2 ":              "Mon-Fri 09:00-18:00 Etc/GMT-2",
		"Mon, Wed, Fri 08:00-12:00 UTC":                      "Mon,Wed,Fri 08:00-12:00 UTC",
		"Mon-Fri 09:00-12:00,Mon-Fri 13:00-18:00 UTC":        "Mon-Fri 09:00-12:00, Mon-Fri 13:00-18:00 UTC",
		"Fri-Mon 08:00-12:00 UTC":                            "Mon,Fri-Sun 08:00-12:00 UTC",
		"Sat-Sun 08:00-12:00 UTC":                            "Sat,Sun 08:00-12:00 UTC",
		"Mon-Wed,Tue 08:00-12:00 UTC":                        "Mon-Wed 08:00-12:00 UTC",
		"Mon-Sun 08:00-12:00 UTC":                            "08:00-12:00 UTC",
		"Mon-Sun 08:00-12:00, Sat 14:00-16:00 UTC":           "Mon-Sun 08:00-12:00, Sat 14:00-16:00 UTC",
		"Fri 22:00-00:00 UTC":                                "Fri 22:00-24:00 UTC",
		"Mon-Fri 09:00-18:00 America/Port-au-Prince":         "",
	} {
		if want == "" {
			want = text
		}
		w, err := Parse(text)
		if err != nil || w.String() != want {
			t.Errorf("%q: %q, %v; want %q", text, w, err, want)
		}
	}
}

func TestSendWindowMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                     "it is empty",
		"  ":                                   "it is empty",
		"UTC":                                  "it has no hours",
		"Mon-Fri 09:00-18:00":                  "the time zone is missing",
		"09:00-18:00, Mon":                     "the time zone is missing",
		"Mon - Fri 09:00 - 18:00":              "the time zone is missing",
		"Mon-Fri 09:00-18:00 Local":            "Local is a different time zone on each machine",
		"Mon-Fri 09:00-18:00 localtime":        "localtime is a different time zone on each machine",
		"Mon-Fri 09:00-18:00 Europe/Berln":     `"Europe/Berln" is not a time zone`,
		"Mon-Fri 09:00-18:00 ../etc/passwd":    `"../etc/passwd" is not a time zone`,
		"Mon-Fri 09:00-18:00 UTC+2":            `"UTC+2" is not a time zone`,
		"Mon-Fri UTC":                          `"Mon-Fri" has no hours`,
		"Mon 09:00-18:00, Sat,Sun UTC":         `"Sat,Sun" has no hours`,
		"Mo-Fr 09:00-18:00 UTC":                `"Mo-Fr" is not one of Mon, Tue, Wed, Thu, Fri, Sat, Sun`,
		"Mon-Tue-Wed 09:00-18:00 UTC":          `"Mon-Tue-Wed" is not one of`,
		"Mon- 09:00-18:00 UTC":                 `"Mon-09:00-18:00" is not a range of hours`,
		"Mon-Fri 9-18 UTC":                     `"9-18" is not a range of hours such as 09:00-18:00`,
		"9-18 UTC":                             `"9-18" is not a range of hours`,
		"09:00 UTC":                            `"09:00" is not a range of hours`,
		"09:00-12:00-18:00 UTC":                `"09:00-12:00-18:00" is not a range of hours`,
		"09:00-18:60 UTC":                      "is not a range of hours",
		"09:00-24:01 UTC":                      "is not a range of hours",
		"09:00-25:00 UTC":                      "is not a range of hours",
		"09:00:00-18:00:00 UTC":                "is not a range of hours",
		"+9:00-18:00 UTC":                      "is not a range of hours",
		"٠٩:00-18:00 UTC":                      "is not a range of hours",
		"09:00-09:00 UTC":                      "09:00-09:00 is never open; write 00:00-24:00 for the whole day",
		"00:00-00:00 UTC":                      "is never open",
		"24:00-24:00 UTC":                      "begins when the day is over",
		"24:00-06:00 UTC":                      "24:00-06:00 begins when the day is over; write 00:00 for the start of the next day",
		"Mon-Fri 09:00-18:00,, UTC":            "nothing before or after a comma",
		", 09:00-18:00 UTC":                    "nothing before or after a comma",
		"Mon 09:00-12:00 13:00-18:00 UTC":      `"Mon 09:00-12:00 13:00-18:00" is more than days and hours`,
		"Mon-Fri 09:00-12:00, 13:00-18:00 UTC": "13:00-18:00 has no days",
		"09:00-12:00, Sat 13:00-18:00 UTC":     "09:00-12:00 has no days",
		strings.Repeat("01:00-02:00,", 32) + "03:00-04:00 UTC": "33 ranges; the maximum is 32",
		strings.Repeat("x", 5000) + " UTC":                     "5004 bytes; the maximum is 2048",
		"09:00-18:00 " + strings.Repeat("/", 1000) + "UTC":     "is not a time zone",
		"09:00-18:00 UTC\x00":                                  "is not a time zone",
	} {
		w, err := Parse(text)
		if err == nil {
			t.Errorf("%q: %v; want %q", text, w, want)
			continue
		}
		got := err.Error()
		if !strings.HasPrefix(got, "send window "+check.Quote(text)+": ") && len(text) < 60 && strings.TrimSpace(text) == text ||
			!strings.Contains(got, want) || !strings.HasSuffix(got, "; write it like "+windowExample) {
			t.Errorf("%q:\n%v\nwant %q", text, got, want)
		}
		if len(got) > 400 || strings.ContainsAny(got, "\n\x00") {
			t.Errorf("%q: an error that is no short line: %q", text, got)
		}
	}
	if _, err := Parse(strings.Trim(windowExample, `"`)); err != nil {
		t.Errorf("the example of every error: %v", err)
	}
}

func TestZeroSendWindowIsAlwaysOpen(t *testing.T) {
	var w Window
	now := minuteUTC(t, "2026-11-21 09:00")
	if !w.IsZero() || w.String() != "" || w.Openings(now, now.Add(windowMargin)) != nil || !w.OpenAt(now).Equal(now) {
		t.Errorf("zero: %v, %q, %v, %v", w.IsZero(), w, w.Openings(now, now.Add(windowMargin)), w.OpenAt(now))
	}
	// Through JSON, in which limits are stored.
	type kept struct {
		Window Window `json:"window,omitzero"`
	}
	for _, w := range []Window{{}, parsedWindow(t, "Mon-Fri 09:00-18:00 Europe/Berlin")} {
		text, err := json.Marshal(kept{w})
		if err != nil {
			t.Fatal(err)
		}
		back := kept{parsedWindow(t, "00:00-24:00 UTC")}
		if strings.Contains(string(text), "window") == w.IsZero() {
			t.Errorf("%q is kept as %s", w, text)
		}
		if !w.IsZero() {
			if err := json.Unmarshal(text, &back); err != nil || back.Window.String() != w.String() {
				t.Errorf("%q came back from %s as %q, %v", w, text, back.Window, err)
			}
		}
	}
	w = parsedWindow(t, "00:00-24:00 UTC")
	if err := w.UnmarshalText([]byte("nonsense")); err == nil || w.String() != "00:00-24:00 UTC" {
		t.Errorf("nonsense: %v, and left %q", err, w)
	}
	if err := w.UnmarshalText(nil); err != nil || !w.IsZero() {
		t.Errorf("nothing: %v, and left %q; want the zero window", err, w)
	}
}

// TestOpenings has times computed by hand from the rules of the zones: in 2026
// Berlin (+1) has summer time (+2) from March 29 to October 25, 01:00 UTC each;
// New York (-5) from March 8, 07:00 UTC to November 1, 06:00 UTC (-4); Lord Howe
// (+10:30) changes to +11 on October 3, 15:30 UTC, and back on April 4, 15:00 UTC;
// Kolkata is at +5:30 all year.
func TestOpenings(t *testing.T) {
	tests := []struct {
		name, window, from, until string // in UTC
		want                      []string
	}{
		{
			"working days, and from within one of them", "Mon-Fri 09:00-18:00 Europe/Berlin",
			"2026-06-04 10:00", "2026-06-09 07:00", // a Thursday to a Tuesday as it opens
			[]string{"2026-06-04 07:00 - 2026-06-04 16:00", "2026-06-05 07:00 - 2026-06-05 16:00", "2026-06-08 07:00 - 2026-06-08 16:00"},
		},
		{
			"as it closes it is closed", "Mon-Fri 09:00-18:00 Europe/Berlin", "2026-06-04 16:00", "2026-06-04 16:00",
			[]string{"2026-06-05 07:00 - 2026-06-05 16:00"},
		},
		{
			"several ranges", "Mon-Fri 09:00-18:00, Sat 10:00-14:00 Europe/Berlin", "2026-06-05 17:00", "2026-06-08 08:00",
			[]string{"2026-06-06 08:00 - 2026-06-06 12:00", "2026-06-08 07:00 - 2026-06-08 16:00"},
		},
		{
			"ranges that touch or overlap are one", "Mon 09:00-12:00, Mon 11:00-13:00, Mon 13:00-24:00, Tue 00:00-01:00 UTC", "2026-06-08 00:00", "2026-06-10 00:00",
			[]string{"2026-06-08 09:00 - 2026-06-09 01:00"},
		},
		{
			"a night belongs to the day on which it begins", "Fri 22:00-06:00 UTC", "2026-06-01 00:00", "2026-06-07 00:00",
			[]string{"2026-06-05 22:00 - 2026-06-06 06:00"},
		},
		{
			"Sunday's night ends on Monday", "Sun 22:00-06:00 UTC", "2026-06-08 05:00", "2026-06-15 00:00",
			[]string{"2026-06-07 22:00 - 2026-06-08 06:00", "2026-06-14 22:00 - 2026-06-15 06:00"},
		},
		{
			"half an hour beside UTC", "Mon 09:00-18:00 Asia/Kolkata", "2026-06-08 00:00", "2026-06-09 00:00",
			[]string{"2026-06-08 03:30 - 2026-06-08 12:30"},
		},
		{
			"the clocks of Berlin go forward at night", "09:00-18:00 Europe/Berlin", "2026-03-28 00:00", "2026-03-30 00:00",
			[]string{"2026-03-28 08:00 - 2026-03-28 17:00", "2026-03-29 07:00 - 2026-03-29 16:00"},
		},
		{
			"it would begin in the skipped hour", "Sun 02:30-05:00 Europe/Berlin", "2026-03-28 00:00", "2026-03-30 00:00",
			[]string{"2026-03-29 01:00 - 2026-03-29 03:00"}, // at 03:00 summer time
		},
		{
			"it would end in the skipped hour", "Sun 01:00-02:30 Europe/Berlin", "2026-03-28 00:00", "2026-03-30 00:00",
			[]string{"2026-03-29 00:00 - 2026-03-29 01:00"},
		},
		{
			"all of it is skipped, so the next week's is next", "Sun 02:00-03:00 Europe/Berlin", "2026-03-23 00:00", "2026-03-30 00:00",
			[]string{"2026-04-05 00:00 - 2026-04-05 01:00"},
		},
		{
			"a night is an hour shorter", "22:00-06:00 Europe/Berlin", "2026-03-28 12:00", "2026-03-30 00:00",
			[]string{"2026-03-28 21:00 - 2026-03-29 04:00", "2026-03-29 20:00 - 2026-03-30 04:00"},
		},
		{
			"and an hour longer", "22:00-06:00 Europe/Berlin", "2026-10-24 12:00", "2026-10-26 00:00",
			[]string{"2026-10-24 20:00 - 2026-10-25 05:00", "2026-10-25 21:00 - 2026-10-26 05:00"},
		},
		{
			"the hour that comes twice is within it both times", "Sun 02:00-03:00 Europe/Berlin", "2026-10-24 00:00", "2026-10-26 00:00",
			[]string{"2026-10-25 00:00 - 2026-10-25 02:00"},
		},
		{
			"it begins in that hour, twice", "Sun 02:30-05:00 Europe/Berlin", "2026-10-24 00:00", "2026-10-26 00:00",
			[]string{"2026-10-25 00:30 - 2026-10-25 01:00", "2026-10-25 01:30 - 2026-10-25 04:00"},
		},
		{
			"it ends in that hour, twice", "Sun 01:00-02:30 Europe/Berlin", "2026-10-24 00:00", "2026-10-26 00:00",
			[]string{"2026-10-24 23:00 - 2026-10-25 00:30", "2026-10-25 01:00 - 2026-10-25 01:30"},
		},
		{
			"New York, forward: a night and a morning", "Sat 20:00-02:15, Sun 02:45-09:00 America/New_York", "2026-03-07 12:00", "2026-03-09 00:00",
			[]string{"2026-03-08 01:00 - 2026-03-08 13:00"}, // 02:00 is 03:00, so they touch
		},
		{
			"New York, back", "Sun 00:30-01:30 America/New_York", "2026-10-31 00:00", "2026-11-02 00:00",
			[]string{"2026-11-01 04:30 - 2026-11-01 05:30", "2026-11-01 06:00 - 2026-11-01 06:30"},
		},
		{
			"Lord Howe, half an hour forward", "Sun 02:15-04:00 Australia/Lord_Howe", "2026-10-03 00:00", "2026-10-05 00:00",
			[]string{"2026-10-03 15:30 - 2026-10-03 17:00"}, // at 02:30 of the new time
		},
		{
			"Lord Howe, half an hour back", "Sun 01:45-01:50 Australia/Lord_Howe", "2026-04-04 00:00", "2026-04-06 00:00",
			[]string{"2026-04-04 14:45 - 2026-04-04 14:50", "2026-04-04 15:15 - 2026-04-04 15:20"},
		},
		{
			"Lord Howe, a night of seven hours and a half", "Sat 23:00-06:00 Australia/Lord_Howe", "2026-04-04 00:00", "2026-04-06 00:00",
			[]string{"2026-04-04 12:00 - 2026-04-04 19:30"},
		},
	}
	for _, test := range tests {
		w := parsedWindow(t, test.window)
		got := openingsText(w.Openings(minuteUTC(t, test.from), minuteUTC(t, test.until)))
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %s\n got %q\nwant %q", test.name, test.window, got, test.want)
		}
	}
}

// TestOpeningsOfLaterDecades: openings are found also where package time only has a rule for the changes of the clocks, and
// takes leap years for a day too short.
func TestOpeningsOfLaterDecades(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Sydney", "UTC"} {
		w := parsedWindow(t, "09:00-18:00 "+zone)
		for _, year := range []int{2028, 2040, 2044} {
			from := time.Date(year, 12, 29, 8, 0, 0, 0, w.zone)
			got := w.Openings(from, from.Add(5*24*time.Hour))
			var want []int64
			for day := range 5 {
				want = append(want, time.Date(year, 12, 29+day, 9, 0, 0, 0, w.zone).UnixMicro(), time.Date(year, 12, 29+day, 18, 0, 0, 0, w.zone).UnixMicro())
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, %d: %v, want %v", zone, year, openingsText(got), openingsText(want))
			}
		}
	}
}

func TestLastingOpeningsAreCutFarAway(t *testing.T) {
	now := minuteUTC(t, "2026-11-21 09:00")
	for _, text := range []string{"00:00-24:00 UTC", "12:30-12:00, 12:00-12:30 Europe/Berlin"} {
		w := parsedWindow(t, text)
		got := w.Openings(now, now.Add(windowMargin))
		week := 7 * 24 * time.Hour
		if len(got) != 2 || got[0] > now.Add(-week).UnixMicro() || got[1] < now.Add(windowMargin+week).UnixMicro() {
			t.Errorf("%s: %v", text, openingsText(got))
		}
	}
}

func TestOpenAt(t *testing.T) {
	w := parsedWindow(t, "Mon-Fri 09:00-18:00 Europe/Berlin")
	for at, want := range map[string]string{
		"2026-06-04 06:59": "2026-06-04 07:00",
		"2026-06-04 07:00": "2026-06-04 07:00",
		"2026-06-04 15:59": "2026-06-04 15:59",
		"2026-06-04 16:00": "2026-06-05 07:00",
		"2026-06-05 16:00": "2026-06-08 07:00", // over the weekend
		"2026-03-27 17:00": "2026-03-30 07:00", // over the change
	} {
		if got := w.OpenAt(minuteUTC(t, at)); !got.Equal(minuteUTC(t, want)) {
			t.Errorf("OpenAt(%s) = %v; want %s", at, got, want)
		}
	}
	// To the microsecond, and below it never earlier than asked.
	for at, want := range map[time.Duration]time.Duration{
		-time.Microsecond: 0, -1: 0, 0: 0, 1: 1, 9*time.Hour - 1: 9*time.Hour - 1, 9 * time.Hour: 24 * time.Hour,
	} {
		opens := minuteUTC(t, "2026-06-04 07:00")
		if got := w.OpenAt(opens.Add(at)); !got.Equal(opens.Add(want)) {
			t.Errorf("OpenAt(%v beside the opening) = %v beside it; want %v", at, got.Sub(opens), want)
		}
	}
}

func TestWindowsThatNeverMeet(t *testing.T) {
	for _, test := range []struct {
		a, b string
		meet bool
	}{
		{"Mon-Fri 09:00-18:00 Europe/Berlin", "Fri,Sat 17:59-23:00 Europe/Berlin", true},
		{"Mon-Fri 09:00-18:00 Europe/Berlin", "Fri,Sat 18:00-23:00 Europe/Berlin", false},
		{"Mon-Fri 09:00-18:00 Europe/Berlin", "Sat,Sun 00:00-24:00 Europe/Berlin", false},
		{"Mon-Fri 09:00-18:00 Europe/Berlin", "Sat,Sun 00:00-24:00 Asia/Kolkata", false},
		{"Mon-Fri 09:00-18:00 Europe/Berlin", "Sun 18:00-24:00 America/New_York", false},
		{"Mon-Fri 09:00-18:00 Europe/Berlin", "Sun 20:00-03:01 America/New_York", true},
		{"09:00-10:00 Europe/Berlin", "08:00-09:00 UTC", true},  // in winter
		{"09:00-10:00 Europe/Berlin", "07:00-08:00 UTC", true},  // in summer
		{"09:00-10:00 Europe/Berlin", "06:00-07:00 UTC", false}, // never
	} {
		a, b := parsedWindow(t, test.a), parsedWindow(t, test.b)
		if a.Meet(b) != test.meet || b.Meet(a) != test.meet || !a.Meet(Window{}) || !a.Meet(a) {
			t.Errorf("%s and %s meet: %v; want %v", a, b, a.Meet(b), test.meet)
		}
	}
}

func TestMondayBefore(t *testing.T) {
	for moment, want := range map[string]string{
		"1969-12-31 23:59": "1969-12-29 00:00", // before 0
		"1970-01-01 00:00": "1969-12-29 00:00",
		"1970-01-05 00:00": "1970-01-05 00:00",
		"2026-11-21 09:00": "2026-11-16 00:00",
	} {
		if got := mondayBefore(minuteUTC(t, moment).UnixMicro()); got != minuteUTC(t, want).UnixMicro() {
			t.Errorf("mondayBefore(%s) = %v; want %s", moment, time.UnixMicro(got).UTC(), want)
		}
	}
}

// windowShows reports whether a clock of the window's zone shows a time within it, from
// the values that were drawn and not from the parsed window.
func windowShows(clock time.Time, days []time.Weekday, from, to int) bool {
	minute, today := clock.Hour()*60+clock.Minute(), clock.Weekday()
	if from < to {
		return slices.Contains(days, today) && from <= minute && minute < to
	}
	yesterday := (today + 6) % 7
	return slices.Contains(days, today) && from <= minute || slices.Contains(days, yesterday) && minute < to
}

// TestOpeningsAgreeWithTheClocks compares openings with the zone's clocks minute by
// minute.
func TestOpeningsAgreeWithTheClocks(t *testing.T) {
	t.Parallel()
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/Havana", "Asia/Kolkata", "Asia/Kathmandu",
		"Australia/Lord_Howe", "Africa/Cairo", "Africa/Casablanca", "America/Scoresbysund", "Asia/Beirut", "Pacific/Chatham", "Antarctica/Troll"}
	weekdays := []time.Weekday{time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday, time.Saturday, time.Sunday}
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		type drawn struct {
			days     []time.Weekday
			from, to int
		}
		var ranges []drawn
		var texts []string
		for range rapid.IntRange(1, 3).Draw(t, "ranges") {
			days := rapid.SliceOfNDistinct(rapid.SampledFrom(weekdays), 1, 7, rapid.ID[time.Weekday]).Draw(t, "days")
			from := rapid.IntRange(0, 24*60-1).Draw(t, "from")
			to := rapid.IntRange(1, 24*60).Filter(func(to int) bool { return to != from }).Draw(t, "to")
			var names []string
			for _, day := range days {
				names = append(names, day.String()[:3])
			}
			ranges = append(ranges, drawn{days, from, to})
			texts = append(texts, fmt.Sprintf("%s %02d:%02d-%02d:%02d", strings.Join(names, ","), from/60, from%60, to/60, to%60))
		}
		text := strings.Join(texts, ", ") + " " + zone
		w, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		// Half of them from two days before the clocks change.
		from := time.Unix(rapid.Int64Range(17_000_000, 33_000_000).Draw(t, "from")*60, 0)
		if _, change := from.In(loc).ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "at a change") {
			from = change.Add(-48 * time.Hour)
		}
		until := from.Add(windowMargin)
		openings := w.Openings(from, until)
		for i := 1; i < len(openings); i++ {
			if openings[i-1] >= openings[i] {
				t.Fatalf("%s: openings do not ascend, or touch: %v", text, openingsText(openings))
			}
		}
		open := func(at time.Time) bool {
			return slices.ContainsFunc(ranges, func(r drawn) bool { return windowShows(at.In(loc), r.days, r.from, r.to) })
		}
		opens := w.OpenAt(from)
		for at := from; at.Before(until); at = at.Add(time.Minute) {
			after, exact := slices.BinarySearch(openings, at.UnixMicro())
			got := after%2 == 1 != exact // within an opening, or at its beginning
			if got != open(at) {
				t.Fatalf("%s: open at %v = %v", text, at.In(loc), got)
			}
			if at.Before(opens) && open(at) {
				t.Fatalf("%s: OpenAt(%v) = %v, and it is open at %v", text, from.In(loc), opens.In(loc), at.In(loc))
			}
		}
		if opens.Before(from) || !open(opens) {
			t.Fatalf("%s: OpenAt(%v) = %v, when it is closed", text, from.In(loc), opens.In(loc))
		}
		if opens := opens.UnixMicro(); opens < openings[0] || opens >= openings[1] {
			t.Fatalf("%s: openings from %v begin with %v", text, from, openingsText(openings[:2]))
		}
	})
}

func FuzzParseSendWindow(f *testing.F) {
	for _, text := range []string{
		"Mon-Fri 09:00-18:00, Sat 10:00-14:00 Europe/Berlin", "Mon,Wed,Fri 08:00-12:00 UTC", "22:00–06:00 America/New_York",
		"Fri - Mon 9:00 - 24:00 Asia/Kolkata", "00:00-24:00 UTC", "Mon 09:00-09:00 Local", ",", "Mon- -09:00 UTC",
	} {
		f.Add(text)
	}
	now := time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		w, err := Parse(text)
		if err != nil {
			if message := err.Error(); strings.Contains(message, "\n") || !strings.HasSuffix(message, windowExample) {
				t.Errorf("%q: the error %q", text, message)
			}
			return
		}
		again, err := Parse(w.String())
		if err != nil || again.String() != w.String() || !slices.Equal(again.week, w.week) {
			t.Errorf("%q is %q, which is %q, %v", text, w, again, err)
		}
		openings := w.Openings(now, now.Add(windowMargin))
		if len(openings) < 2 || len(openings)%2 != 0 || !slices.IsSorted(openings) || openings[1] <= now.UnixMicro() {
			t.Errorf("%q opens %v", text, openings)
		}
		if opens := w.OpenAt(now); opens.Before(now) {
			t.Errorf("%q: OpenAt(%v) = %v", text, now, opens)
		}
	})
}

func ExampleWindow_OpenAt() {
	w, err := Parse("Mon-Fri 09:00-18:00 Europe/Berlin")
	if err != nil {
		panic(err)
	}
	saturday := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	fmt.Println(w.OpenAt(saturday))
	// Output: 2026-03-30 07:00:00 +0000 UTC
}
