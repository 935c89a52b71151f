// Package cron computes the ticks of periodic jobs.
package cron

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // time zones on machines that have none, such as small containers

	"github.com/robfig/cron/v3"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/timezone"
	"github.com/headgate/headgate/queue/validation"
)

// Schedule computes the ticks of a periodic job, in whole Unix seconds.
//
// The cron package computes ticks of a clock without time zones, on which no hour is
// missing or repeated. This package applies the time zone, because the cron package loses
// days that begin at 01:00, and ticks in an hour that is skipped.
type Schedule struct {
	every  int64 // seconds; 0: the schedule follows the clock
	clock  *cron.SpecSchedule
	zone   *time.Location
	hourly bool // every hour of the day
}

const (
	maxSpec   = 256
	maxEvery  = 366 * 24 * time.Hour
	everyWord = "@every "
	allHours  = 1<<24 - 1
)

var cronParser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Parse reads a spec and its time zone. Errors are of type [*validation.Error].
func Parse(spec, zone string) (Schedule, error) {
	if reason := check.Text(spec, maxSpec); reason != "" {
		return Schedule{}, validation.Field("spec", reason)
	}
	if strings.Contains(spec, "TZ=") {
		return Schedule{}, validation.Field("spec", fmt.Sprintf("%s contains a time zone; set the field zone instead", check.Quote(spec)))
	}
	if text, ok := strings.CutPrefix(spec, everyWord); ok {
		return parseEvery(text, zone)
	}
	parsed, err := cronParser.Parse(spec)
	if err != nil {
		return Schedule{}, validation.Field("spec", fmt.Sprintf("%s: %v", check.Quote(spec), err))
	}
	clock, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return Schedule{}, validation.Field("spec", check.Quote(spec)+" is not a supported schedule")
	}
	if zone == "" || zone == "Local" {
		return Schedule{}, validation.Field("zone", "it is required; write a name such as Europe/Berlin or UTC")
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return Schedule{}, validation.Field("zone", check.Quote(zone)+" is not a time zone such as Europe/Berlin or UTC")
	}
	clock.Location = time.UTC
	return Schedule{clock: clock, zone: location, hourly: clock.Hour&allHours == allHours}, nil
}

// parseEvery counts from the Unix epoch, so that all workers know the ticks without
// remembering the first one.
func parseEvery(text, zone string) (Schedule, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return Schedule{}, validation.Field("spec", fmt.Sprintf("%s is not a duration such as 90s", check.Quote(text)))
	case d < time.Second || d > maxEvery || d%time.Second != 0:
		return Schedule{}, validation.Field("spec", fmt.Sprintf("@every %v is not whole seconds, 1s to %v", d, maxEvery))
	case zone != "":
		return Schedule{}, validation.Field("zone", "it must be empty for an @every schedule")
	}
	return Schedule{every: int64(d.Seconds())}, nil
}

// Next returns the first tick after the given second; 0 if there is none in five years.
//
// When clocks go forward, the ticks in the skipped hour become one, at the first moment
// after it. When clocks go back, a tick goes the first time that the clock shows it, and
// not again. Only a schedule of every hour continues through the repeated hour, and has
// no tick for a skipped one.
func (s Schedule) Next(after int64) int64 {
	if s.every > 0 {
		return (after/s.every + 1) * s.every
	}
	at := time.Unix(after, 0).In(s.zone)
	start, _ := at.ZoneBounds()
	end := timezone.NextChange(at)
	offset := offsetOf(at)
	wall := after + offset
	if !s.hourly && !start.IsZero() {
		// The ticks that the clock showed before it went back have gone already.
		wall = max(wall, start.Unix()+offsetOf(start.Add(-time.Second))-1)
	}
	for {
		tick := s.clock.Next(time.Unix(wall, 0).UTC())
		if tick.IsZero() {
			return 0
		}
		moment := tick.Unix() - offset
		if end.IsZero() || moment < end.Unix() {
			return moment
		}
		// The clock changes before that: take the same tick by the clock after the
		// change.
		change := end.Unix()
		wall = change + offset - 1
		offset = offsetOf(end)
		if first := change + offset; s.hourly {
			wall = first - 1
		} else if tick.Unix() < first {
			return change
		}
		end = timezone.NextChange(end)
	}
}

func offsetOf(t time.Time) int64 {
	_, offset := t.Zone()
	return int64(offset)
}

// Last returns the last tick in (after, now]; 0 if there is none. It looks back in steps
// of growing length, so that it stays fast for a tick every second.
func (s Schedule) Last(after, now int64) int64 {
	for back := int64(1); ; back *= 2 {
		from := max(after, now-back)
		tick := s.Next(from)
		if tick == 0 || tick > now {
			if from == after {
				return 0
			}
			continue
		}
		for {
			next := s.Next(tick)
			if next == 0 || next > now {
				return tick
			}
			tick = next
		}
	}
}
