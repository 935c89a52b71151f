package throttle

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/test/redistest"
)

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func TestWindows(t *testing.T) {
	tests := []struct {
		zone, rate, now string // now in the zone
		want            []string
	}{
		{"Europe/Berlin", "1/day", "2026-03-29 12:00", []string{"2026-03-28T00:00:00+01:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00", "2026-03-31T00:00:00+02:00"}},
		{"Europe/Berlin", "1/day", "2026-10-25 01:00", []string{"2026-10-24T00:00:00+02:00", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00", "2026-10-27T00:00:00+01:00"}},
		// Midnight was skipped: the day began at one o'clock.
		{"America/Sao_Paulo", "1/day", "2018-11-03 12:00", []string{"2018-11-02T00:00:00-03:00", "2018-11-03T00:00:00-03:00", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"}},
		// Midnight came twice: the day began at the first.
		{"America/Havana", "1/day", "2024-11-03 12:00", []string{"2024-11-02T00:00:00-04:00", "2024-11-03T00:00:00-04:00", "2024-11-04T00:00:00-05:00", "2024-11-05T00:00:00-05:00"}},
		{"UTC", "1/week", "2026-01-01 12:00", []string{"2025-12-22T00:00:00Z", "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z", "2026-01-12T00:00:00Z"}},
		{"Europe/Berlin", "1/month", "2024-01-31 23:59", []string{"2023-12-01T00:00:00+01:00", "2024-01-01T00:00:00+01:00", "2024-02-01T00:00:00+01:00", "2024-03-01T00:00:00+01:00"}},
		{"Europe/Berlin", "1/month", "2024-12-01 00:00", []string{"2024-11-01T00:00:00+01:00", "2024-12-01T00:00:00+01:00", "2025-01-01T00:00:00+01:00", "2025-02-01T00:00:00+01:00"}},
	}
	for _, test := range tests {
		loc := location(t, test.zone)
		now, err := time.ParseInLocation("2006-01-02 15:04", test.now, loc)
		if err != nil {
			t.Fatal(err)
		}
		got := window(test.rate, loc).lua().Windows(now, 2)
		if len(got) != len(test.want) {
			t.Errorf("%s %s at %s: %d windows", test.zone, test.rate, test.now, len(got))
			continue
		}
		for i, start := range got {
			if text := time.UnixMicro(start).In(loc).Format(time.RFC3339); text != test.want[i] {
				t.Errorf("%s %s at %s: window %d begins %s, want %s", test.zone, test.rate, test.now, i, text, test.want[i])
			}
		}
	}
	if bucket("1/s", 1).lua().Windows(time.Now(), 2) != nil || window("1/day", nil).lua().Windows(time.Now(), 2) != nil {
		t.Error("a limit without a calendar has windows")
	}
}

// TestEveryMomentHasOneWindow: whatever the zone does to its clocks, the second
// window holds now, and its date is that of all moments in it.
func TestEveryMomentHasOneWindow(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Cairo", "America/Scoresbysund", "Asia/Beirut"}
	rapid.Check(t, func(t *rapid.T) {
		loc, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(rapid.Int64Range(1e9, 2e9).Draw(t, "now"), 0)
		limit := window(rapid.SampledFrom([]string{"1/day", "1/week", "1/month"}).Draw(t, "rate"), loc)
		starts := limit.lua().Windows(now, 3)
		for i := 1; i < len(starts); i++ {
			if starts[i] <= starts[i-1] {
				t.Fatalf("%v in %v: windows do not ascend: %v", now.In(loc), loc, starts)
			}
		}
		if starts[0] > now.UnixMicro() || starts[len(starts)-1] <= now.UnixMicro() {
			t.Fatalf("%v in %v: not within its windows %v", now.In(loc), loc, starts)
		}
	})
}

// lastStarts is a hook that counts the starts of windows in the latest script.
type lastStarts struct{ n int }

func (s *lastStarts) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *lastStarts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *lastStarts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.n = 0
		for _, arg := range cmd.Args()[2:] { // after the name or text of the script
			if text, ok := arg.(string); ok {
				s.n += strings.Count(text, ",")
			}
		}
		return next(ctx, cmd)
	}
}

// TestCalendarsAreShort: a script gets the windows up to the latest slot that it may give, and no more.
func TestCalendarsAreShort(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr()})
	defer client.Close()
	starts := &lastStarts{}
	client.AddHook(starts)
	for rate, most := range map[string]int{"1/day": 372, "1/week": 58, "1/month": 19} {
		c := newClocked(t, client, window(rate, location(t, "Europe/Berlin")))
		c.now = time.Date(2026, 1, 31, 23, 59, 0, 0, time.UTC)
		r := c.book(1, maxWithin)
		if starts.n > most {
			t.Errorf("%s: %d windows for a slot within a year; want at most %d", rate, starts.n, most)
		}
		c.cancel(r)
		if starts.n > 6 {
			t.Errorf("%s: %d windows to give a slot back that goes now", rate, starts.n)
		}
		limit := c.limits[0]
		for _, within := range []time.Duration{0, day, 7 * day, 28 * day, 31 * day, maxWithin} {
			all := strings.Split(strings.TrimSuffix(c.calendar(limit, within), ","), ",")
			if last, err := strconv.ParseInt(all[len(all)-1], 10, 64); err != nil || last <= c.now.Add(within).UnixMicro() {
				t.Errorf("%s: the windows for a slot within %v end before it: %v", rate, within, all)
			}
		}
	}
}
