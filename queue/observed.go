package queue

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/throttle"
)

// Observe makes the client report each call of [Client.Take] and [Client.Wait], and so each of a
// [Transport], to observe: once, with the answer that its caller gets. observe is called by the
// goroutine of the call, so it must be quick. Package limitmetrics has one that counts. It must
// be set before the first call.
//
// A limit is named QUEUE/LIMIT, because limits of two queues may have the same name. The first of
// Limits is the name of the queue, which stands for its pauses and send windows: it is the Limit of
// a call that one of these refuses, and of a call that no limit applies to. If Redis does not
// answer, Limits has only the queue, and nothing if the client has not yet learned which queue
// serves the kind. A call whose deadline comes while it waits is observed as refused.
//
// Not observed are calls that are invalid, or that the limits can never admit, and those whose
// context is cancelled.
func (c *Client) Observe(observe func(throttle.Observation)) *Client {
	c.direct.observe = observe
	return c
}

// observed is what is observed of a call.
type observed struct {
	throttle.Observation
	queue   string
	observe func(throttle.Observation) // nil: nobody observes it
}

// of notes the queue of the call, once that is known.
func (o *observed) of(a accepted) {
	if a.home != "" {
		o.queue = a.queue()
		o.Limits = []string{o.queue}
	}
}

// append adds to the arguments of direct.lua that somebody observes the call.
func (o *observed) append(args []any) []any {
	if o.observe == nil {
		return args
	}
	return append(args, 1)
}

// waits adds how long the call waits; d <= 0 is no wait.
func (o *observed) waits(d time.Duration) { o.Waited += max(d, 0) }

// goes reads what direct.lua says of the limits of a call that may go. earliest and now are on Redis's clock.
func (o *observed) goes(read *store.Reply, earliest, now int64) {
	o.read(read)
	o.Decision.Allowed = true
	o.Decision.Delay, o.Decision.At = time.Duration(earliest-now)*time.Microsecond, time.UnixMicro(earliest)
}

// refused reads what direct.lua says of the limits of a call that may not go.
func (o *observed) refused(read *store.Reply, after time.Duration) {
	o.read(read)
	o.Decision.Delay, o.Decision.RetryAfter = after, after
}

// read reads the rest of an answer, which says only to observers what the limits are.
func (o *observed) read(read *store.Reply) {
	if o.observe == nil {
		return
	}
	list := read.List()
	o.Limits = []string{o.queue}
	for names := list.List(); names.More(); {
		o.Limits = append(o.Limits, o.queue+"/"+names.Text())
	}
	limit := o.queue
	if name := list.Text(); name != "" {
		limit += "/" + name
	}
	o.Decision = throttle.Decision{Limit: limit, Quota: list.Int(), Remaining: list.Int(), ResetAfter: time.Duration(list.Int()) * time.Microsecond}
}

// failed notes and returns the error of a call whose answer is not known.
func (o *observed) failed(err error) error {
	o.Err = err
	return err
}

// tell tells the observer how the call ended. If its time was over while it waited, it was refused.
func (o *observed) tell(err error) {
	switch {
	case o.observe == nil, errors.Is(err, context.Canceled):
		return
	case o.Err != nil:
		o.Decision = throttle.Decision{}
	case err != nil && (o.Decision.Allowed || o.Decision.Limit == ""):
		return
	}
	if !o.Decision.Allowed {
		o.Waited = 0
	}
	o.observe(o.Observation)
}
