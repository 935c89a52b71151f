package limitlua

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Stored is the state of a bucket at a given time, which [Spec.Stored] reads from its text in
// Redis. It is for forecasts over many buckets, for which scripts would take too long. Only scripts
// decide which calls may go.
type Stored struct {
	// Left is how many permits could go at once. It is negative if permits were granted in
	// advance.
	Left float64

	// Used is the number of permits used in the current window, and Previous that of the window
	// before it, for a sliding window counter.
	Used, Previous float64

	// Opens is the start of a later window, in µs since the epoch, of which permits were granted in
	// advance, and Given is their number. No more permits are granted before it, and Used is that
	// of the window before it. 0: none.
	Opens int64
	Given float64

	// PausedUntil is when a pause ends, in µs since the epoch; 0: no pause.
	PausedUntil int64

	// Share is the part of the limit that the bucket gets, if the limit is leased: by the weights of
	// those that have jobs for it. Otherwise it is 1.
	Share float64
}

// Stored parses the text of a bucket; "" is a bucket that was never used. now is in µs since the
// epoch; windows are the calendar windows around it, for limits with a calendar. It returns an
// error for logs and concurrency limits, which are not stored as text.
func (s Spec) Stored(text string, now int64, windows []int64) (Stored, error) {
	out := Stored{Share: 1}
	if body, pause, paused := strings.Cut(text, " !"); paused {
		text = body
		until, _, _ := strings.Cut(pause, " ")
		var err error
		if out.PausedUntil, err = strconv.ParseInt(until, 10, 64); err != nil {
			return Stored{}, fmt.Errorf("bucket %.60q: its pause: %w", text, err)
		}
	}
	if s.Leased && len(text) > 1 && strings.ContainsRune("lqp", rune(text[0])) && text[1] == ' ' {
		lease, err := ReadLease(text)
		if err == nil {
			lease.fill(&out, &s, now)
		}
		return out, err
	}
	if s.Algorithm == "fw" || s.Algorithm == "sc" {
		text, _, _ = strings.Cut(text, " r") // what may come back counts until it does
	}
	fields, n, err := numbersOf(text)
	if err != nil {
		return Stored{}, fmt.Errorf("bucket %.60q: %w", text, err)
	}
	switch s.Algorithm {
	case "fw", "sc":
		start, end := s.WindowAt(now, windows)
		ahead := func() bool { return fields[0] > now && fields[0] <= now+s.Ahead }
		switch {
		case strings.HasPrefix(text, "f ") && n == 5 && ahead():
			out.Opens, out.Given = fields[0], float64(fields[2])
			return out, nil
		case strings.HasPrefix(text, "c ") && n == 6 && ahead():
			out.Opens, out.Used, out.Given = fields[0], float64(fields[2]), float64(fields[3])
			return out, nil
		case strings.HasPrefix(text, "f ") && n == 5:
			if fields[0] == start || fields[3] >= start && fields[3] < end {
				out.Used = float64(fields[2])
			}
		case strings.HasPrefix(text, "c ") && n == 6:
			switch start {
			case fields[0]:
				out.Previous, out.Used = float64(fields[2]), float64(fields[3])
			case fields[0] + fields[1]:
				out.Previous = float64(fields[3])
			}
		}
		out.Left = float64(s.Burst) - out.Used
		if s.Algorithm == "sc" && end > start {
			out.Left -= math.Floor(out.Previous * float64(end-now) / float64(end-start))
		}
	case "tb", "lb", "lm":
		out.Left = s.full() - owed(text, fields[:n], now)
		if out.PausedUntil > now {
			// After a pause the rate starts with one permit, not with a burst.
			out.Left = min(out.Left, 1-float64(out.PausedUntil-now)*float64(s.Flow)/float64(s.Permit))
		}
	default:
		return Stored{}, fmt.Errorf("algorithm %q has no text", s.Algorithm)
	}
	return out, nil
}

// Lost returns the text of a bucket whose permits were all just used at a moment, in µs: what one that
// is not in Redis counts as if it was lost then. It is "", a bucket that was never used, if that makes
// no difference.
func (s Spec) Lost(at int64, windows []int64) string {
	switch start, end := s.WindowAt(at, windows); {
	case s.Algorithm == "fw" && end > 0:
		return Window(start, end, s.Burst, at, at)
	case s.Algorithm == "sc":
		return fmt.Sprintf("c %d %d 0 %d %d %d", start, s.Window, s.Burst, at, at)
	case s.Algorithm == "tb" || s.Algorithm == "lb" || s.Algorithm == "lm":
		units := int64(s.full()) * s.Permit
		return Rate(at+units/s.Flow, units%s.Flow, s.Permit, s.Flow, at, at)
	}
	return ""
}

// Rate returns the text of a rate's bucket of which all is used up to a moment, in µs and units below: what a permit
// takes and how much flows back in a µs; when the last permit goes, and the time.
func Rate(until, units, permit, flow, last, now int64) string {
	return fmt.Sprintf("r %d %d %d %d %d %d 0", until, units, permit, flow, last, now)
}

// Window returns the text of a fixed window's bucket: when the window begins and ends, what is used of it, when the
// last permit goes, and the time, in µs.
func Window(start, end, used, last, now int64) string {
	return fmt.Sprintf("f %d %d %d %d %d", start, end, used, last, now)
}

// full returns the max number of permits that could go at once. A shaping leaky bucket lets one
// permit go at a time, whatever its capacity.
func (s Spec) full() float64 {
	if s.Algorithm == "lb" {
		return 1
	}
	return float64(max(s.Burst, 1))
}

// WindowAt returns the window around a time, of a limit with a calendar out of those windows; 0, 0 if that has none.
func (s Spec) WindowAt(t int64, windows []int64) (start, end int64) {
	if s.Window > 0 {
		start = t - t%s.Window
		return start, start + s.Window
	}
	for i := len(windows) - 2; i >= 0; i-- {
		if windows[i] <= t && t < windows[i+1] {
			return windows[i], windows[i+1]
		}
	}
	return 0, 0
}

const plainFrom = 1577836800000000 // as PLAIN_FROM in limits.lua

// owed returns how many granted permits have not flowed back by now.
func owed(text string, fields []int64, now int64) float64 {
	var tat, frac, permit, flow int64
	switch {
	case strings.HasPrefix(text, "r ") && len(fields) == storedNumbers:
		tat, frac, permit, flow = fields[0], fields[1], fields[2], fields[3]
	case len(fields) == plainNumbers && strings.Contains(text, ":"):
		tat, permit, flow, frac = plainFrom+fields[0], fields[1], fields[2], fields[3]
	case len(fields) == 1 && len(text) > 4:
		// MMME follows the time.
		code := fields[0] % 10000
		tat, permit, flow = plainFrom+fields[0]/10000, code/10, 1
		for range code % 10 {
			permit *= 10
		}
	}
	if tat < now || permit == 0 || flow == 0 {
		return 0
	}
	return (float64(tat-now)*float64(flow) + float64(frac)) / float64(permit)
}

// storedNumbers is how many numbers the text of a bucket has before its lows, and plainNumbers how many
// a plain one has that is no integer.
const storedNumbers, plainNumbers = 7, 5

// numbersOf returns the whole numbers of a bucket's text, which follow its letter.
// Forecasts read thousands of texts, so it does not allocate.
func numbersOf(text string) (all [storedNumbers]int64, n int, err error) {
	if len(text) > 1 && text[1] == ' ' {
		text = text[2:]
	}
	for text != "" && n < storedNumbers {
		word := text
		if end := strings.IndexAny(text, " :/+@"); end >= 0 {
			word, text = text[:end], text[end+1:]
		} else {
			text = ""
		}
		if all[n], err = strconv.ParseInt(word, 10, 64); err != nil {
			return all, n, errors.New("it is not a bucket")
		}
		n++
	}
	return all, n, nil
}
