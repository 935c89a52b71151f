// Package cron computes the ticks of periodic jobs.
package cron

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // time zones on machines that have none, such as small containers

	"github.com/robfig/cron/v3"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/validation"
)

// Schedule is the ticks of a periodic job, in whole Unix seconds.
//
// The cron package is asked about a clock without time zones, on which no hour
// is missing or stands twice; what the zone makes of that is decided here. Its
// own way through a changed clock loses days that begin at 01:00, and ticks that
// fall into a missing hour.
type Schedule struct {
	every  int64 // seconds; 0: by the clock
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

// Parse reads a spec and the zone it is meant in.
func Parse(spec, zone string) (Schedule, error) {
	if reason := check.Text(spec, maxSpec); reason != "" {
		return Schedule{}, validation.Field("spec", reason)
	}
	if strings.Contains(spec, "TZ=") {
		return Schedule{}, validation.Field("spec", fmt.Sprintf("%s names a zone; put it into the field zone", check.Quote(spec)))
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
		return Schedule{}, validation.Field("spec", check.Quote(spec)+" is none that is known here")
	}
	if zone == "" || zone == "Local" {
		return Schedule{}, validation.Field("zone", "it is required, such as Europe/Berlin or UTC")
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return Schedule{}, validation.Field("zone", check.Quote(zone)+" is no time zone such as Europe/Berlin or UTC")
	}
	clock.Location = time.UTC
	return Schedule{clock: clock, zone: location, hourly: clock.Hour&allHours == allHours}, nil
}

// parseEvery counts from the Unix epoch, so that everybody knows the ticks and
// nobody has to remember the first.
func parseEvery(text, zone string) (Schedule, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return Schedule{}, validation.Field("spec", fmt.Sprintf("%s is not a duration such as 90s", check.Quote(text)))
	case d < time.Second || d > maxEvery || d%time.Second != 0:
		return Schedule{}, validation.Field("spec", fmt.Sprintf("@every %v is not whole seconds, 1s to %v", d, maxEvery))
	case zone != "":
		return Schedule{}, validation.Field("zone", "@every has none; leave it out")
	}
	return Schedule{every: int64(d.Seconds())}, nil
}

// Next is the first tick after the given second; 0: none in five years.
//
// In spring, ticks in the hour that is missing become one, at the first moment
// after it. In autumn a tick goes the first time that the clock shows it, and
// not again; only a schedule of every hour goes on through the repeated hour, and
// makes nothing up for the missing one.
func (s Schedule) Next(after int64) int64 {
	if s.every > 0 {
		return (after/s.every + 1) * s.every
	}
	at := time.Unix(after, 0).In(s.zone)
	start, end := at.ZoneBounds()
	offset := offsetOf(at)
	wall := after + offset
	if !s.hourly && !start.IsZero() {
		// What the clock showed before it was put back has gone already.
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
		// The clock changes before: the same tick by the clock after the change.
		change := end.Unix()
		wall = change + offset - 1
		offset = offsetOf(end)
		if first := change + offset; s.hourly {
			wall = first - 1
		} else if tick.Unix() < first {
			return change
		}
		_, end = end.ZoneBounds()
	}
}

func offsetOf(t time.Time) int64 {
	_, offset := t.Zone()
	return int64(offset)
}

// Last is the last tick in (after, now]; 0: there is none. It looks back further
// and further, so that a tick of each second does not cost a step of each second.
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
