package sandbox

import (
	"slices"
	"strings"
	"time"
)

// Call is one call as seen by the provider.
type Call struct {
	At      time.Time // of arrival, with a monotonic reading
	Tenant  string
	Job     string // "": the call does not say; also for the next fields
	Attempt string // as sent by the call
	Key     string // the idempotency key

	// Accepted is true for a call within the limits that did not fail on demand.
	Accepted bool

	// Status is the status of the answer; [NoAnswer] if the connection was closed instead, and for
	// a call that hangs.
	Status int
}

// Stats counts the calls of a tenant.
type Stats struct {
	Accepted int // within the limits
	Rejected int // over a limit: violations
	Failed   int // within the limits, but failed on demand
}

// calls is the log: the latest calls, up to a maximum. Sequence numbers start at 0 and continue
// when a call is overwritten.
type calls struct {
	most int
	ring []Call
	next int // sequence number of the next call
}

func (l *calls) add(c Call) (seq int) {
	seq = l.next
	l.next++
	if len(l.ring) < l.most {
		l.ring = append(l.ring, c)
	} else {
		l.ring[seq%l.most] = c
	}
	return seq
}

// at returns the call with a sequence number; nil if it was overwritten.
func (l *calls) at(seq int) *Call {
	if seq < l.next-len(l.ring) {
		return nil
	}
	return &l.ring[seq%l.most]
}

// all returns the calls, oldest first.
func (l *calls) all() []Call {
	if len(l.ring) < l.most {
		return slices.Clone(l.ring)
	}
	oldest := l.next % l.most
	return slices.Concat(l.ring[oldest:], l.ring[:oldest])
}

// clip limits the size of a caller's text in the log. It copies the text, so that its buffer can
// be freed.
func clip(text string) string {
	const most = 512
	return strings.Clone(text[:min(len(text), most)])
}
