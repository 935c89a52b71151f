package sandbox

import (
	"slices"
	"strings"
	"time"
)

// Call is one call as the provider saw it.
type Call struct {
	At      time.Time // of arrival, with a monotonic reading
	Tenant  string
	Job     string // "" when the call did not say; so for the others
	Attempt string // as the call wrote it
	Key     string // the idempotency key

	// Accepted: within the limits, and not struck by a fault.
	Accepted bool

	// Status is the code that it was or will be answered with; [NoAnswer] when
	// the connection was closed instead, and for a call that hangs.
	Status int
}

// Stats counts the calls of a tenant.
type Stats struct {
	Accepted int // within the limits
	Rejected int // over a limit: violations
	Failed   int // within the limits, and struck by a fault
}

// calls is the log: the latest calls, up to a number. Sequence numbers count
// from 0 and go on when a call is overwritten.
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

// at is the call of a sequence number; nil when it was overwritten.
func (l *calls) at(seq int) *Call {
	if seq < l.next-len(l.ring) {
		return nil
	}
	return &l.ring[seq%l.most]
}

// all are the calls from the oldest to the latest.
func (l *calls) all() []Call {
	if len(l.ring) < l.most {
		return slices.Clone(l.ring)
	}
	oldest := l.next % l.most
	return slices.Concat(l.ring[oldest:], l.ring[:oldest])
}

// clip bounds what a caller can make the log hold, and lets go of the buffer
// that the text was cut from.
func clip(text string) string {
	const most = 512
	return strings.Clone(text[:min(len(text), most)])
}
