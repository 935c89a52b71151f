package cron

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/queue/validation"
)

func mustSchedule(t testing.TB, spec, zone string) Schedule {
	t.Helper()
	s, err := Parse(spec, zone)
	if err != nil {
		t.Fatalf("%s in %s: %v", spec, zone, err)
	}
	return s
}

// TestScheduleWhenClocksChange: ticks in the hour that is skipped, and in the hour that
// is repeated.
func TestScheduleWhenClocksChange(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spec, zone string
		from, to   string // in UTC
		want       []string
	}{
		"02:30 in spring goes at 03:00": {
			"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		},
		"02:30 in autumn goes the first time": {
			"30 2 * * *", "Europe/Berlin", "2026-10-24T00:00:00Z", "2026-10-27T00:00:00Z",
			[]string{"2026-10-24T02:30:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"},
		},
		"from within the repeated hour": {
			"30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", "2026-10-27T00:00:00Z",
			[]string{"2026-10-26T02:30:00+01:00"},
		},
		"several in the missing hour go once": {
			"*/20 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T22:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00", "2026-03-29T03:40:00+02:00"},
		},
		"each hour goes by the clock in spring": {
			"30 * * * *", "Europe/Berlin", "2026-03-28T23:45:00Z", "2026-03-29T03:00:00Z",
			[]string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00", "2026-03-29T04:30:00+02:00"},
		},
		"each hour goes on in autumn": {
			"@hourly", "Europe/Berlin", "2026-10-24T23:30:00Z", "2026-10-25T02:30:00Z",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"},
		},
		"a day that begins at 01:00": { // which the library alone leaves out
			"0 0 4 11 *", "America/Sao_Paulo", "2018-11-01T00:00:00Z", "2018-12-01T00:00:00Z",
			[]string{"2018-11-04T01:00:00-02:00"},
		},
		"each hour of a day that begins at 01:00": {
			"0 * 4 11 *", "America/Sao_Paulo", "2018-11-04T02:00:00Z", "2018-11-04T05:30:00Z",
			[]string{"2018-11-04T01:00:00-02:00", "2018-11-04T02:00:00-02:00", "2018-11-04T03:00:00-02:00"},
		},
		"midnight that comes twice": {
			"0 0 * * *", "America/Havana", "2026-10-31T12:00:00Z", "2026-11-02T12:00:00Z",
			[]string{"2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00"},
		},
		"half an hour": {
			"10 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", "2026-10-04T12:00:00Z",
			[]string{"2026-10-04T02:30:00+11:00"},
		},
		"a day that was left out": {
			"0 12 30 12 *", "Pacific/Apia", "2011-12-29T00:00:00Z", "2012-01-02T00:00:00Z",
			[]string{"2011-12-31T00:00:00+14:00"},
		},
		"seconds": {
			"*/20 59 23 31 12 *", "Asia/Kolkata", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z",
			[]string{"2026-12-31T23:59:00+05:30", "2026-12-31T23:59:20+05:30", "2026-12-31T23:59:40+05:30"},
		},
		"every counts from the epoch": {
			"@every 90s", "", "1970-01-01T00:00:10Z", "1970-01-01T00:04:00Z",
			[]string{"1970-01-01T00:01:30Z", "1970-01-01T00:03:00Z"},
		},
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			s := mustSchedule(t, test.spec, test.zone)
			parse := func(text string) int64 {
				at, err := time.Parse(time.RFC3339, text)
				if err != nil {
					t.Fatal(err)
				}
				return at.Unix()
			}
			var got []string
			zone := time.UTC
			if s.zone != nil {
				zone = s.zone
			}
			for tick := s.Next(parse(test.from)); tick > 0 && tick < parse(test.to); tick = s.Next(tick) {
				got = append(got, time.Unix(tick, 0).In(zone).Format(time.RFC3339))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("ticks %v, want %v", got, test.want)
			}
		})
	}
}

// TestTicksOfLaterDecades: ticks are found also where package time only has a rule for the changes of the clocks, and takes
// leap years for a day too short.
func TestTicksOfLaterDecades(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Sydney", "UTC"} {
		for _, year := range []int{2028, 2040, 2044} {
			s := mustSchedule(t, "30 9 * * *", zone)
			at := time.Date(year, 12, 29, 12, 0, 0, 0, s.zone).Unix()
			for day := 30; day < 34; day++ {
				at = s.Next(at)
				if want := time.Date(year, 12, day, 9, 30, 0, 0, s.zone); at != want.Unix() {
					t.Errorf("%s: tick at %v, want %v", zone, time.Unix(at, 0).In(s.zone), want)
				}
			}
		}
	}
}

// TestScheduleAgainstTheClock walks through clock changes minute by minute, and reads the
// clock on the wall as a person would.
func TestScheduleAgainstTheClock(t *testing.T) {
	t.Parallel()
	changes := map[string]string{ // the day before one
		"Europe/Berlin": "2026-03-28T00:00:00Z", "America/New_York": "2026-10-31T00:00:00Z", "Australia/Lord_Howe": "2026-04-04T00:00:00Z",
		"America/Sao_Paulo": "2018-11-03T00:00:00Z", "America/Havana": "2026-10-31T00:00:00Z", "Africa/Casablanca": "2026-02-14T00:00:00Z",
		"Pacific/Apia": "2011-12-29T00:00:00Z", "Europe/London": "2026-10-24T00:00:00Z", "Africa/Cairo": "2026-04-23T00:00:00Z", "UTC": "2026-01-01T00:00:00Z",
	}
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(changes))).Draw(rt, "zone")
		spec := strings.Join([]string{
			rapid.SampledFrom([]string{"*", "0", "30", "*/7", "5,59", "10-20"}).Draw(rt, "minute"),
			rapid.SampledFrom([]string{"*", "0", "1", "2", "3", "*/2", "0-3", "1,2,23", "*/1"}).Draw(rt, "hour"),
			rapid.SampledFrom([]string{"*", "*", "1-15", "30,31"}).Draw(rt, "day"), "*",
			rapid.SampledFrom([]string{"*", "*", "sun", "1-5"}).Draw(rt, "weekday"),
		}, " ")
		s, err := Parse(spec, name)
		if err != nil {
			rt.Fatal(err)
		}
		matches := func(wall int64) bool { return s.clock.Next(time.Unix(wall-1, 0).UTC()).Unix() == wall }
		start, err := time.Parse(time.RFC3339, changes[name])
		if err != nil {
			rt.Fatal(err)
		}
		begin := start.Unix() + 60*rapid.Int64Range(0, 2880).Draw(rt, "minutes later")
		showed := int64(0) // the latest that the clock showed
		var want []int64
		for at := start.Add(-24 * time.Hour).Unix(); at < begin+36*3600; at += 60 {
			wall := at + offsetOf(time.Unix(at, 0).In(s.zone))
			fires := matches(wall)
			if !s.hourly && showed > 0 {
				fires = fires && wall > showed
				for missing := showed + 60; missing < wall; missing += 60 {
					fires = fires || matches(missing)
				}
			}
			showed = max(showed, wall)
			if fires && at > begin {
				want = append(want, at)
			}
		}
		var got []int64
		for tick := s.Next(begin); tick > 0 && tick < begin+36*3600; tick = s.Next(tick) {
			got = append(got, tick)
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("%s in %s from %s: %d ticks, want %d: %v, %v", spec, name, time.Unix(begin, 0).UTC(), len(got), len(want), got, want)
		}
		if now := begin + 36*3600 - 1; len(want) > 0 {
			if last := s.Last(begin, now); last != want[len(want)-1] {
				rt.Fatalf("last tick %d, want %d", last, want[len(want)-1])
			}
		} else if last := s.Last(begin, now); last != 0 {
			rt.Fatalf("last tick %d, want none", last)
		}
	})
}

func TestHostileSchedules(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ spec, zone, field, reason string }{
		"empty":            {"", "UTC", "spec", "empty"},
		"too long":         {strings.Repeat("1,", 200) + "1 * * * *", "UTC", "spec", "bytes; the maximum is 256"},
		"NUL":              {"* * * * \x00", "UTC", "spec", "control characters"},
		"zone in the spec": {"TZ=UTC * * * * *", "UTC", "spec", "field zone"},
		"zone alone":       {"CRON_TZ=UTC", "UTC", "spec", "field zone"}, // the library panics
		"too few fields":   {"* * *", "UTC", "spec", "fields"},
		"too many fields":  {"* * * * * * *", "UTC", "spec", "fields"},
		"minute 60":        {"60 * * * *", "UTC", "spec", "above maximum"},
		"step 0":           {"*/0 * * * *", "UTC", "spec", "step"},
		"negative":         {"-1 * * * *", "UTC", "spec", "parse"},
		"a huge number":    {"99999999999999999999 * * * *", "UTC", "spec", "parse"},
		"a word":           {"@fortnightly", "UTC", "spec", "unrecognized"},
		"no zone":          {"@daily", "", "zone", "required"},
		"the local zone":   {"@daily", "Local", "zone", "required"},
		"an unknown zone":  {"@daily", "Europe/Berlyn", "zone", "is not a time zone"},
		"a path":           {"@daily", "../../etc/passwd", "zone", "is not a time zone"},
		"every 0":          {"@every 0s", "", "spec", "whole seconds"},
		"every 1500 ms":    {"@every 1500ms", "", "spec", "whole seconds"},
		"every -1 h":       {"@every -1h", "", "spec", "whole seconds"},
		"every 9000 hours": {"@every 9000h", "", "spec", "whole seconds"},
		"every nothing":    {"@every ", "", "spec", "not a duration"},
		"every in a zone":  {"@every 1h", "UTC", "zone", "must be empty"},
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			_, err := Parse(test.spec, test.zone)
			invalid, ok := errors.AsType[*validation.Error](err)
			if !ok || invalid.Field != test.field || !strings.Contains(invalid.Reason, test.reason) {
				t.Errorf("%v; want %s: …%s…", err, test.field, test.reason)
			}
		})
	}
	for _, spec := range []string{"0 0 30 2 *", "0 0 31 4,6 *", ", * * * *"} {
		if tick := mustSchedule(t, spec, "Europe/Berlin").Next(time.Now().Unix()); tick != 0 {
			t.Errorf("%q has a tick: %v", spec, time.Unix(tick, 0))
		}
	}
}

func FuzzSchedule(f *testing.F) {
	for _, spec := range []string{"* * * * *", "*/5 0 * * * *", "@every 90s", "@daily", "0 0 29 2 *", "TZ=", "1-5/2,7 ? * jan-mar mon", "*/9223372036854775807 * * * *"} {
		f.Add(spec, int64(1774746000))
	}
	f.Fuzz(func(t *testing.T, spec string, from int64) {
		for _, zone := range []string{"", "Europe/Berlin"} {
			s, err := Parse(spec, zone)
			if err != nil {
				continue
			}
			from = max(from%(1<<32), -from%(1<<32)) // within the years that Redis can return
			tick := s.Next(from)
			if tick != 0 && tick <= from {
				t.Errorf("%q after %d: %d", spec, from, tick)
			}
			if tick > 0 {
				if last := s.Last(from, tick); last != tick {
					t.Errorf("%q: last %d, next %d", spec, last, tick)
				}
			}
		}
	})
}
