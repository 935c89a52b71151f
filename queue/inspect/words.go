package inspect

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// thousands formats a number as 6,120.
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// spanText formats a duration in one unit: 84 ms, 12 s, 40 min.
func spanText(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(d.Milliseconds(), 0))
	case d < 2*time.Minute:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

// clockText formats a time of day, with the date if it is not near, and with seconds if
// it is very near.
func clockText(t, now time.Time) string {
	t = t.Local()
	switch away := t.Sub(now).Abs(); {
	case away < 5*time.Minute:
		return t.Format("15:04:05")
	case away < 20*time.Hour:
		return t.Format("15:04")
	}
	return t.Format("2006-01-02 15:04")
}

// atText returns when something happens: "now", "at 14:12".
func atText(t, now time.Time) string {
	switch {
	case t.IsZero():
		return "at a time that is not known"
	case !t.After(now.Add(time.Millisecond)):
		return "now"
	}
	return "at " + clockText(t, now)
}

func doneText(t, now time.Time) string {
	if t.IsZero() {
		return "not known when done"
	}
	return "done " + atText(t, now)
}

// heldText returns the beginning of a sentence about what holds jobs.
func heldText(h *Hold, now time.Time) string {
	switch {
	case h == nil:
		return "held by no limit, "
	case h.Next.IsZero():
		return fmt.Sprintf("held by %v, ", h)
	case !h.Next.After(now):
		return fmt.Sprintf("held by %v, next slot now, ", h)
	}
	return fmt.Sprintf("held by %v, next slot in %s, ", h, spanText(h.Next.Sub(now)))
}

// stopText returns what stops jobs besides limits: no worker takes them, they are paused,
// or both; "" for neither.
func stopText(unserved *Unserved, pause *Pause, now time.Time) string {
	var reasons []string
	if unserved != nil {
		reasons = append(reasons, unserved.String())
	}
	if pause != nil {
		reasons = append(reasons, fmt.Sprintf("%v is %s", pause.Scope, pause.Text(now)))
	}
	return strings.Join(reasons, ", and ")
}
