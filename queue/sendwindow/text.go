package sendwindow

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/internal/check"
)

const (
	windowExample = `"Mon-Fri 09:00-18:00, Sat 10:00-14:00 Europe/Berlin"`
	maxWindowText = 2048
	maxRanges     = 32
)

var dayNames = [7]string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}

// Parse reads the text form of a window: days, hours, and the time zone of the clocks by
// which it opens.
//
//	Mon-Fri 09:00-18:00 Europe/Berlin
//	Mon-Fri 09:00-18:00, Sat 10:00-14:00 Europe/Berlin
//	Mon,Wed,Fri 08:00-12:00 UTC
//	22:00-06:00 America/New_York
//
// Without days, the hours are those of every day. Hours whose end is before their start
// end on the next day, and belong to the day on which they start; 24:00 is the end of a
// day. The error says in one line what is wrong with the text.
func Parse(text string) (Window, error) {
	w, err := parseWindow(text)
	if err != nil {
		return Window{}, fmt.Errorf("send window %s: %w; write it like %s", check.Quote(text), err, windowExample)
	}
	return w, nil
}

// spacedDash is a dash as people write it.
var spacedDash = regexp.MustCompile(`\s*[-–]\s*`)

func parseWindow(text string) (Window, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return Window{}, errors.New("it is empty")
	case len(text) > maxWindowText:
		return Window{}, fmt.Errorf("%d bytes; the maximum is %d", len(text), maxWindowText)
	}
	days, zone := "", text
	if i := strings.LastIndexFunc(text, unicode.IsSpace); i >= 0 {
		days, zone = strings.TrimSpace(text[:i]), strings.TrimSpace(text[i:])
	}
	var w Window
	var err error
	if w.zone, err = parseZone(zone); err != nil {
		return Window{}, err
	}
	if w.ranges, err = parseRanges(spacedDash.ReplaceAllString(days, "-")); err != nil {
		return Window{}, err
	}
	w.week = weekOf(w.ranges)
	return w, nil
}

func parseZone(name string) (*time.Location, error) {
	if _, err := parseDays(name); err == nil || strings.Contains(name, ":") {
		return nil, errors.New("the time zone is missing at the end")
	}
	if lower := strings.ToLower(name); lower == "local" || lower == "localtime" {
		return nil, fmt.Errorf("%s is a different time zone on each machine", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil || len(name) > 64 {
		return nil, fmt.Errorf("%s is not a time zone such as Europe/Berlin or UTC", check.Quote(name))
	}
	return zone, nil
}

// parseRanges reads "Mon,Wed 09:00-12:00, Sat 10:00-14:00". Commas separate both days and
// ranges, so days are collected until their hours come.
func parseRanges(text string) ([]windowHours, error) {
	if text == "" {
		return nil, errors.New("it has no hours")
	}
	var ranges []windowHours
	var waiting []string
	var next windowHours
	daily := "" // the hours of a range without days
	dated := false
	for part := range strings.SplitSeq(text, ",") {
		words := strings.Fields(part)
		if len(words) == 0 {
			return nil, errors.New("there is nothing before or after a comma")
		}
		times := ""
		if last := len(words) - 1; last == 1 || strings.ContainsAny(words[last], "0123456789") {
			times, words = words[last], words[:last]
		}
		if len(words) > 1 {
			return nil, fmt.Errorf("%s is more than days and hours; separate ranges with commas", check.Quote(strings.TrimSpace(part)))
		}
		for _, word := range words {
			days, err := parseDays(word)
			if err != nil {
				return nil, err
			}
			for day, named := range days {
				next.days[day] = next.days[day] || named
			}
			dated, waiting = true, append(waiting, word)
		}
		if times == "" {
			continue
		}
		var err error
		if next.from, next.to, err = parseHours(times); err != nil {
			return nil, err
		}
		if len(waiting) == 0 {
			daily, next.days = times, [7]bool{true, true, true, true, true, true, true}
		}
		ranges = append(ranges, next)
		next, waiting = windowHours{}, nil
	}
	switch {
	case len(waiting) > 0:
		return nil, fmt.Errorf("%s has no hours", check.Quote(strings.Join(waiting, ",")))
	case dated && daily != "":
		// Without days it could mean the days before it, or all. Sending on a Sunday must
		// be explicit.
		return nil, fmt.Errorf("%s has no days; write days for each range, or for none", daily)
	case len(ranges) > maxRanges:
		return nil, fmt.Errorf("%d ranges; the maximum is %d", len(ranges), maxRanges)
	}
	return ranges, nil
}

// parseDays reads "Mon" or "Fri-Mon".
func parseDays(text string) (days [7]bool, err error) {
	from, to, several := strings.Cut(text, "-")
	if !several {
		to = from
	}
	first, last := dayNumber(from), dayNumber(to)
	if first < 0 || last < 0 {
		return days, fmt.Errorf("%s is not one of %s, nor a range of them", check.Quote(text), strings.Join(dayNames[:], ", "))
	}
	for day := first; ; day = (day + 1) % 7 {
		days[day] = true
		if day == last {
			return days, nil
		}
	}
}

func dayNumber(name string) int {
	return slices.IndexFunc(dayNames[:], func(day string) bool { return strings.EqualFold(day, name) })
}

// parseHours reads "09:00-18:00" as minutes since midnight.
func parseHours(text string) (from, to int, err error) {
	begin, end, _ := strings.Cut(text, "-")
	from, okFrom := parseClock(begin)
	to, okTo := parseClock(end)
	switch {
	case !okFrom || !okTo:
		return 0, 0, fmt.Errorf("%s is not a range of hours such as 09:00-18:00", check.Quote(text))
	case from == dayMinutes:
		return 0, 0, fmt.Errorf("%s begins when the day is over; write 00:00 for the start of the next day", text)
	case from == to:
		return 0, 0, fmt.Errorf("%s is never open; write 00:00-24:00 for the whole day", text)
	case to < from:
		to += dayMinutes
	}
	return from, to, nil
}

var clockPattern = regexp.MustCompile(`^([0-9]{1,2}):([0-5][0-9])$`)

func parseClock(text string) (minutes int, ok bool) {
	m := clockPattern.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	hour, _ := strconv.Atoi(m[1])
	minute, _ := strconv.Atoi(m[2])
	minutes = hour*60 + minute
	return minutes, minutes <= dayMinutes
}

// weekOf returns when any of the ranges is open in a week. Hours that continue after
// Sunday are at the start of the week.
func weekOf(ranges []windowHours) []weekSpan {
	var all []weekSpan
	for _, r := range ranges {
		for day, open := range r.days {
			if !open {
				continue
			}
			from, to := int64(day*dayMinutes+r.from), int64(day*dayMinutes+r.to)
			all = append(all, weekSpan{from, min(to, weekMinutes)})
			if to > weekMinutes {
				all = append(all, weekSpan{0, to - weekMinutes})
			}
		}
	}
	slices.SortFunc(all, func(a, b weekSpan) int { return cmp.Compare(a.from, b.from) })
	week := all[:0]
	for _, s := range all {
		if n := len(week); n > 0 && s.from <= week[n-1].to {
			week[n-1].to = max(week[n-1].to, s.to)
			continue
		}
		week = append(week, s)
	}
	return week
}

// String returns the text form; "" for the zero window.
func (w Window) String() string {
	if w.IsZero() {
		return ""
	}
	daily := !slices.ContainsFunc(w.ranges, func(r windowHours) bool { return slices.Contains(r.days[:], false) })
	var parts []string
	for _, r := range w.ranges {
		part := fmt.Sprintf("%s-%s", hourText(r.from), hourText(r.to))
		if !daily {
			part = dayText(r.days) + " " + part
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ") + " " + w.zone.String()
}

func hourText(minutes int) string {
	if minutes > dayMinutes {
		minutes -= dayMinutes
	}
	return fmt.Sprintf("%02d:%02d", minutes/60, minutes%60)
}

// dayText returns days as text, with three or more consecutive days as a range.
func dayText(days [7]bool) string {
	var parts []string
	for day := 0; day < 7; day++ {
		first := day
		for day < 7 && days[day] {
			day++
		}
		if day-first > 2 {
			parts = append(parts, dayNames[first]+"-"+dayNames[day-1])
		} else {
			parts = append(parts, dayNames[first:day]...)
		}
	}
	return strings.Join(parts, ",")
}

// MarshalText returns the text form. It never fails.
func (w Window) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads the text form, and an empty text as the zero window. Errors are
// those of [Parse]; they leave the window unchanged.
func (w *Window) UnmarshalText(text []byte) error {
	var parsed Window
	if len(text) > 0 {
		var err error
		if parsed, err = Parse(string(text)); err != nil {
			return err
		}
	}
	*w = parsed
	return nil
}
