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
	waited int64 // ms until a job's first call; -1: it is not one
	Took
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
		c := call{lane: lanes[number-1], at: at, direct: direct, waited: -1, Took: Took{cost: 1, back: back}}
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

// took returns how many permits of a limit the call took, less than 0 if it did not after all; 0: the limit does not apply to it.
func (c *call) took(limit *limits.Limit) int64 {
	if limit.For == limits.Jobs && c.direct || limit.For == limits.Direct && !c.direct {
		return 0
	}
	return c.Of(limit.Unit)
}
