package throttle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/coalesce"
	"github.com/headgate/headgate/internal/redisscript"
)

// The modes of take.lua.
const (
	modeTake    = "take"
	modeReserve = "reserve"

	modePeekTake    = "peek take"
	modePeekReserve = "peek reserve"
)

// shaping reports whether a mode is about slots, so that a leaky bucket shapes.
func shaping(mode string) bool { return mode == modeReserve || mode == modePeekReserve }

// form returns the form that limits have in a mode.
func form(mode string) int {
	if shaping(mode) {
		return shape
	}
	return police
}

const (
	// maxTogether bounds the calls in one round trip, and so the time for which
	// one script keeps Redis busy.
	maxTogether = 128

	// slow is how long an answer takes after which the next caller does not make its
	// own round trip, so that it can leave.
	slow = 20 * time.Millisecond
)

// call is one question and its answer.
type call struct {
	n       int64
	within  time.Duration
	buckets []string  // one for each limit
	one     [1]string // room for one bucket, which saves an allocation
	id      string    // for concurrency limits

	decision Decision
	marks    []int64 // of the buckets after a reservation: see limit_refund
	err      error
}

// together returns a group in which calls share round trips, each made by send.
func together(send func(ctx context.Context, calls []*call) error) *coalesce.Group[*call] {
	return &coalesce.Group[*call]{MaxCalls: maxTogether, Slow: slow, Send: func(ctx context.Context, calls []*call) {
		err := send(ctx, calls)
		for _, c := range calls {
			c.err = cmp.Or(c.err, err)
		}
	}}
}

// decide returns when c was answered, alone or together with other calls. After an error
// of ctx, c no longer belongs to the caller: its answer may still come, and then late is
// called unless it is nil.
func decide(ctx context.Context, group *coalesce.Group[*call], c *call, late func()) error {
	answered, err := group.Do(ctx, c)
	if err == nil {
		return c.err
	}
	if answered != nil && late != nil {
		go func() {
			if <-answered; c.err == nil {
				late()
			}
		}()
	}
	return fmt.Errorf("throttle: decide: %w", err)
}

// request is one run of a script that answers calls.
type request struct {
	mode   string
	calls  []*call
	script *redisscript.Script
	keys   []string
	args   []any
	sent   time.Time // of a short script
}

// deciding returns send for a mode.
func (l *Limiter) deciding(mode string) func(ctx context.Context, calls []*call) error {
	return func(ctx context.Context, calls []*call) error { return l.send(ctx, mode, calls) }
}

// send asks Redis for decisions. It stores the error of one call in the call, and returns
// an error that all calls have.
func (l *Limiter) send(ctx context.Context, mode string, calls []*call) error {
	if len(calls) == 1 {
		if l.short[form(mode)].knows(calls[0]) {
			return l.do(ctx, l.shortRequest(mode, calls))
		}
		return l.do(ctx, l.takeRequest(mode, calls))
	}
	return l.doAll(ctx, l.requests(mode, calls))
}

// requests returns what to ask for several calls: a script for each slot of a cluster,
// or two where the short script knows the answer to some of the calls.
func (l *Limiter) requests(mode string, calls []*call) (all []request) {
	for _, group := range l.bySlot(calls) {
		known, others := []*call(nil), group
		if short := l.short[form(mode)]; short != nil {
			known, others = short.sort(group)
		}
		if len(known) > 0 {
			all = append(all, l.shortRequest(mode, known))
		}
		if len(others) > 0 {
			all = append(all, l.takeRequest(mode, others))
		}
	}
	return all
}

// do runs one request, and returns an error that all of its calls have.
func (l *Limiter) do(ctx context.Context, r request) error {
	reply, err := r.script.Run(ctx, l.client, r.keys, r.args...)
	return l.finish(ctx, r, reply, err)
}

// doAll runs requests, several of them in one pipeline.
func (l *Limiter) doAll(ctx context.Context, all []request) error {
	if len(all) == 1 {
		return l.do(ctx, all[0])
	}
	pipe := l.client.Pipeline()
	replies := make([]func() (any, error), len(all))
	for i, r := range all {
		replies[i] = r.script.AddTo(ctx, pipe, l.client, r.keys, r.args...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, r := range all {
		reply, err := replies[i]()
		if err := l.finish(ctx, r, reply, err); err != nil {
			for _, c := range r.calls {
				c.err = err
			}
		}
	}
	return nil
}

// finish reads a reply, and asks take.lua about the calls that the short script did not know.
func (l *Limiter) finish(ctx context.Context, r request, reply any, err error) error {
	switch r.script {
	case takeScript:
		return l.answer(r, reply, err)
	case releaseScript:
		return settled(err)
	}
	if err != nil {
		return fmt.Errorf("throttle: decide: %w", err)
	}
	read := l.shortAnswer
	if r.script == plainScript {
		read = l.plainAnswer
	}
	unknown, err := read(r, reply)
	if err != nil || len(unknown) == 0 {
		return err
	}
	err = l.do(ctx, l.takeRequest(r.mode, unknown))
	for _, c := range unknown {
		c.err = cmp.Or(c.err, err) // the other calls have their answers
	}
	return nil
}

// spread reports whether keys of one limiter may live on different servers.
func (l *Limiter) spread() bool {
	if l.company {
		return false // they share a hash tag
	}
	switch l.client.(type) {
	case *redis.Client:
		return false
	default:
		return true
	}
}

// bySlot groups calls by the hash tag of their key, if their keys may live on different servers.
func (l *Limiter) bySlot(calls []*call) [][]*call {
	if len(calls) == 1 || !l.spread() {
		return [][]*call{calls}
	}
	var groups [][]*call
	at := map[string]int{}
	for _, c := range calls {
		tag := c.buckets[0]
		tag = tag[strings.IndexByte(tag, '{'):]
		i, seen := at[tag]
		if !seen {
			i = len(groups)
			at[tag] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	return groups
}

// takeRequest returns the run of take.lua for calls.
func (l *Limiter) takeRequest(mode string, calls []*call) request {
	within := time.Duration(0)
	for _, c := range calls {
		within = max(within, c.within)
	}
	args := make([]any, 0, 3+6*len(l.limits)+5*len(calls))
	args = append(args, l.clock(), mode, len(l.limits))
	args = l.appendSpecs(args, form(mode), within)
	keys := gather(calls, func(which int, c *call, times int) { args = c.question(args, which, times) })
	return request{mode: mode, calls: calls, script: takeScript, keys: keys, args: args}
}

// question appends what take.lua is asked, so many times, about one of the sets of keys.
func (c *call) question(args []any, which, times int) []any {
	return append(args, which, c.n, c.within.Microseconds(), c.id, times)
}

// gather returns the calls' buckets, each set of them once however many calls use it.
// It calls ask once for consecutive calls that ask the same.
func gather(calls []*call, ask func(which int, c *call, times int)) (keys []string) {
	if len(calls) == 1 {
		ask(1, calls[0], 1)
		return calls[0].buckets
	}
	known := make(map[string]int, len(calls))
	keys = make([]string, 0, len(calls)*len(calls[0].buckets))
	for len(calls) > 0 {
		c, times := calls[0], alike(calls)
		which, seen := known[c.set()]
		if !seen {
			which = len(known) + 1
			known[c.set()] = which
			keys = append(keys, c.buckets...)
		}
		ask(which, c, times)
		calls = calls[times:]
	}
	return keys
}

// alike returns how many of the first calls ask the same.
func alike(calls []*call) int {
	n := 1
	for n < len(calls) && calls[n].same(calls[0]) {
		n++
	}
	return n
}

// set identifies the keys of a call.
func (c *call) set() string {
	if len(c.buckets) == 1 {
		return c.buckets[0]
	}
	return strings.Join(c.buckets, " ") // escaped, so none holds a space
}

// same reports whether two calls ask the same.
func (c *call) same(other *call) bool {
	return c.n == other.n && c.within == other.within && c.id == other.id && slices.Equal(c.buckets, other.buckets)
}

// damaged is the answer to a call of a key that holds no bucket.
const damaged = -2

var errDamaged = errors.New("throttle: decide")

// answer reads the reply of take.lua into the calls.
func (l *Limiter) answer(r request, reply any, err error) error {
	calls, mode := r.calls, r.mode
	if err != nil {
		return fmt.Errorf("throttle: decide: %w", err)
	}
	const words = 6
	values, ok := reply.([]any)
	marks := 1 + words*len(calls)
	reasons := marks
	if mode == modeReserve {
		reasons += len(calls) * len(l.limits)
	}
	if !ok || len(values) < reasons {
		return fmt.Errorf("throttle: decide: unexpected reply %v", reply)
	}
	of := numbers{values, true}
	now := of.at(0)
	for i, c := range calls {
		at := 1 + words*i
		span := func(i int) time.Duration { return time.Duration(of.at(i)) * time.Microsecond }
		taken, which := of.at(at), of.at(at+1)
		if of.ok && taken == damaged {
			c.err = errDamaged // what is wrong follows
			continue
		}
		if !of.ok || which < 1 || which > int64(len(l.limits)) {
			return fmt.Errorf("throttle: decide: unexpected reply %v", reply)
		}
		limit := &l.limits[which-1]
		if taken == -1 {
			c.err = &CostError{Limit: limit.Name, Cost: c.n, Max: limit.maxCost(shaping(mode))}
			continue
		}
		d := &c.decision
		d.Allowed, d.Limit, d.Quota = taken == 1, limit.Name, limit.Quota()
		if shaping(mode) {
			d.Quota = limit.reserveQuota()
		}
		d.RetryAfter, d.Remaining, d.ResetAfter = span(at+3), of.at(at+4), span(at+5)
		if d.Allowed || shaping(mode) {
			d.Delay = span(at + 2)
		}
		if d.Allowed {
			d.At = time.UnixMicro(now).Add(d.Delay)
			l.forgetRefusals(c)
		}
		if mode == modeReserve {
			c.marks = make([]int64, len(l.limits))
			for j := range c.marks {
				c.marks[j] = of.at(marks + i*len(l.limits) + j)
			}
		}
	}
	for i := reasons; i+1 < len(values); i += 2 {
		n := of.at(i)
		if n < 0 || n >= int64(len(calls)) {
			continue
		}
		if text, _ := values[i+1].(string); calls[n].err == nil {
			calls[n].decision.Paused = text
		} else {
			calls[n].err = fmt.Errorf("%w: %s", errDamaged, text)
		}
	}
	if !of.ok {
		return fmt.Errorf("throttle: decide: unexpected reply %v", reply)
	}
	return nil
}
