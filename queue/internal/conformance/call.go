package conformance

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// call is a call as calls.lua tells of it.
type call struct {
	lane   store.Lane
	at     int64
	direct bool
	cost   int64
	costs  string // by unit
	back   bool   // it did not take this after all
	waited int64  // ms until a job's first call; -1: it is not one
}

// parseCalls reads the answer of calls.lua. It leaves out what it cannot read, and returns how many calls that are.
func parseCalls(base int64, names, lines string) (calls []call, unread int64) {
	if lines == "" {
		return nil, 0
	}
	var lanes []store.Lane
	for name := range strings.SplitSeq(names, "\n") {
		lanes = append(lanes, store.ParseLane(name))
	}
	at := base
	for line := range strings.SplitSeq(lines, "\n") {
		words := append(strings.SplitN(line, " ", 3), "", "")
		number, wrong := strconv.Atoi(words[0])
		since, err := strconv.ParseInt(words[1], 10, 64)
		if wrong != nil || err != nil || number < 1 || number > len(lanes) {
			unread++
			continue
		}
		at += since
		taken, direct := strings.CutPrefix(words[2], "d")
		taken, back := strings.CutPrefix(taken, "-")
		c := call{lane: lanes[number-1], at: at, direct: direct, cost: 1, back: back, waited: -1}
		taken, waited, first := strings.Cut(taken, "@")
		if first {
			if c.waited, err = strconv.ParseInt(waited, 10, 64); err != nil || c.waited < 0 {
				unread++
				continue
			}
		}
		cost, costs, _ := strings.Cut(taken, ";")
		if cost != "" {
			if c.cost, err = strconv.ParseInt(cost, 10, 64); err != nil {
				unread++
				continue
			}
		}
		c.costs = costs
		calls = append(calls, c)
	}
	return calls, unread
}

// of returns how many permits of a limit the call took; 0: the limit does not apply to it.
func (c *call) of(limit *limits.Limit) int64 {
	if limit.For == limits.Jobs && c.direct || limit.For == limits.Direct && !c.direct {
		return 0
	}
	if limit.Unit == "" {
		return c.cost
	}
	return unitOf(c.costs, limit.Unit)
}

// took returns what the call took, "COST;unit=n;…", each unit once; behind a "-" if it did not after all.
func (c *call) took() string {
	text := strconv.FormatInt(c.cost, 10)
	if c.back {
		text = "-" + text
	}
	seen := ""
	for part := range strings.SplitSeq(c.costs, ";") {
		if unit, n, ok := strings.Cut(part, "="); ok && !strings.Contains(seen, unit+"=") {
			seen += ";" + unit + "=" + n
		}
	}
	return text + seen
}

// unitOf returns how many permits of a unit costs have.
func unitOf(costs, unit string) int64 {
	for part := range strings.SplitSeq(costs, ";") { // what was used comes before what was expected
		if name, n, _ := strings.Cut(part, "="); name == unit {
			took, _ := strconv.ParseInt(n, 10, 64)
			return took
		}
	}
	return 0
}
