package throttle

import (
	"context"
	"errors"
	"time"
)

// Observation is what one call asked of a limiter, and the answer.
type Observation struct {
	// Limits are the names of all limits that were asked. The slice must not be changed.
	Limits []string

	// Decision is the answer; the zero value with Err. Of a [Blocks] it says how much of the
	// limit is left. If the permits came from a block that was there, nobody asked that, and
	// Quota is 0.
	Decision Decision

	// Took is how long the answer took, in sum if several were needed, and Waited how
	// long the call waits for its slot then. Took says nothing about Redis if
	// Decision.Local is true.
	Took, Waited time.Duration

	// Err is why the answer is not known, and Unlimited whether the call went
	// nevertheless: see httplimit.FailOpen.
	Err       error
	Unlimited bool
}

// WithObserver returns a limiter over the limits and buckets of l that calls observe after
// each Take, Reserve and Wait; so does a [Blocks] that is made with it. observe is called
// by the goroutine of the call, so it must be quick, and it must not panic, or the permits
// of the call are lost. Package limitmetrics has one that counts. Not observed are Peek,
// and calls that end because they are invalid ([CostError]) or because their context is
// cancelled.
func (l *Limiter) WithObserver(observe func(Observation)) *Limiter {
	observed := l.WithClock(l.now)
	observed.observe = observe
	return observed
}

// began returns the moment at which a call begins, if somebody wants to know.
func (l *Limiter) began() time.Time {
	if l.observe == nil {
		return time.Time{}
	}
	return time.Now()
}

// since returns how long ago a call began.
func (l *Limiter) since(began time.Time) time.Duration {
	if l.observe == nil {
		return 0
	}
	return time.Since(began)
}

// tell tells the observer about a call.
func (l *Limiter) tell(seen Observation) {
	if l.observe != nil && known(seen.Err) {
		seen.Limits = l.names
		l.observe(seen)
	}
}

// known reports whether an error says something about the limiter, and not about the call.
func known(err error) bool {
	if _, invalid := errors.AsType[*invalidError](err); invalid {
		return false
	}
	_, tooMuch := errors.AsType[*CostError](err)
	return !tooMuch && !errors.Is(err, context.Canceled)
}

// invalidError reports a question that no limiter answers.
type invalidError struct{ text string }

func (e *invalidError) Error() string { return "throttle: " + e.text }
