package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	hour = 3600 * 1e6
	Day  = 24 * hour // µs
)

// Hour is how a limit was kept to in an hour: what was taken in its windows that ended in that hour.
type Hour struct {
	Most, Allowed int64 // the most in a window, and what was allowed then
	Over          *Over // nil: no window had more than was allowed
}

// Over is the window that exceeded its limit most, the first of several.
type Over struct {
	At         int64 // when it ended
	N, Allowed int64
}

func (o *Over) excess() int64 { return o.N - o.Allowed }

// note counts a window, and reports whether that changed the hour.
func (h *Hour) note(at, n, allowed int64) (changed bool) {
	if n > h.Most || n == h.Most && allowed < h.Allowed {
		h.Most, h.Allowed, changed = n, allowed, true
	}
	if over := n - allowed; over > 0 && (h.Over == nil || over > h.Over.excess() || over == h.Over.excess() && at < h.Over.At) {
		h.Over, changed = &Over{at, n, allowed}, true
	}
	return changed
}

// Hours are the hours of a day, by their number from 0.
type Hours map[int]*Hour

// note counts a window that ended on that day, and reports whether that changed its hour.
func (h Hours) note(at, n, allowed int64) (changed bool) { return h.at(at).note(at, n, allowed) }

// at returns the hour of a moment on that day.
func (h Hours) at(micros int64) *Hour {
	i := int(micros % Day / hour)
	if h[i] == nil {
		h[i] = &Hour{}
	}
	return h[i]
}

// String returns the hours in the form that is stored: "HOUR MOST ALLOWED;…", and for one with a window that exceeded
// its limit "HOUR MOST ALLOWED AT N ALLOWED".
func (h Hours) String() string {
	var parts []string
	for _, i := range slices.Sorted(maps.Keys(h)) {
		part := fmt.Sprint(i, h[i].Most, h[i].Allowed)
		if over := h[i].Over; over != nil {
			part = fmt.Sprint(i, h[i].Most, h[i].Allowed, over.At, over.N, over.Allowed)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ";")
}

// ParseHours reads hours as [Hours.String] writes them. What has another form is left out.
func ParseHours(text string) Hours {
	h := Hours{}
	for part := range strings.SplitSeq(text, ";") {
		if i, one := parseHour(part); one != nil && i >= 0 && i < 24 {
			h[int(i)] = one
		}
	}
	return h
}

// parseHour reads one hour and its number; nil: it has another form. It does not use package fmt, which takes five times as
// long: a report reads millions of hours.
func parseHour(text string) (i int64, one *Hour) {
	var all [6]int64
	n := 0
	for field := range strings.SplitSeq(text, " ") {
		number, err := strconv.ParseInt(field, 10, 64)
		if err != nil || n == len(all) {
			return 0, nil
		}
		all[n] = number
		n++
	}
	switch n {
	case 3:
		return all[0], &Hour{Most: all[1], Allowed: all[2]}
	case 6:
		return all[0], &Hour{Most: all[1], Allowed: all[2], Over: &Over{all[3], all[4], all[5]}}
	}
	return 0, nil
}
