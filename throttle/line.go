package throttle

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisscript"
)

// The modes of take.lua.
const (
	modeTake    = "take"
	modeReserve = "reserve"
	modePeek    = "peek"
)

const (
	// flying is how many round trips of one kind a limiter has under way at a
	// time, before calls begin to gather: one is answered by Redis while another
	// is read and written here.
	flying = 2

	// mostTogether bounds the calls in one round trip, and so the time for which
	// one script keeps Redis busy.
	mostTogether = 128

	// slow is when an answer took so long that the next caller is better off
	// waiting beside the call than in it.
	slow = 20 * time.Millisecond
)

// call is one question, and its answer.
type call struct {
	n       int64
	within  time.Duration
	buckets []string  // one for each limit
	one     [1]string // of a single limit, to save an allocation
	id      string    // for concurrency limits

	decision Decision
	marks    []int64 // of the buckets after a reservation: see limit_refund
	err      error
}

// batch is calls that are sent together.
type batch struct {
	calls    []*call
	answered chan struct{} // closed then
}

func newBatch(c *call) *batch { return &batch{[]*call{c}, make(chan struct{})} }

// line is where calls gather while others are on their way.
type line struct {
	mu      sync.Mutex
	flying  int
	slow    bool     // the last answer was
	waiting []*batch // calls join the last one
}

// decide has c answered: at once, or together with others. After an error c is
// no longer the caller's: its answer may still come, and then late is called, unless it
// is nil.
func (q *line) decide(ctx context.Context, l *Limiter, mode string, c *call, late func()) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("throttle: decide: %w", err) // nothing was sent
	}
	q.mu.Lock()
	alone := q.flying < flying
	if alone {
		q.flying++
	}
	// go-redis does not leave a call when its context is done, so that a caller
	// who makes it waits for the client's ReadTimeout at worst. To make it in a
	// goroutine would cost a third of what the call takes: that is done only
	// while Redis is slow.
	if alone && (!q.slow || ctx.Done() == nil) {
		q.mu.Unlock()
		begin := time.Now()
		err := l.send(ctx, mode, []*call{c})
		if b := q.next(time.Since(begin)); b != nil {
			go q.fly(context.Background(), l, mode, b)
		}
		return cmp.Or(err, c.err)
	}
	var b *batch
	if alone {
		b = newBatch(c)
		go q.fly(context.WithoutCancel(ctx), l, mode, b)
	} else {
		b = q.join(c)
	}
	q.mu.Unlock()
	select {
	case <-b.answered:
		return c.err
	case <-ctx.Done():
		if sent := !q.leave(b, c); sent && late != nil {
			go func() {
				if <-b.answered; c.err == nil {
					late()
				}
			}()
		}
		return fmt.Errorf("throttle: decide: %w", ctx.Err())
	}
}

// join adds a call to those that wait.
func (q *line) join(c *call) *batch {
	if last := len(q.waiting) - 1; last >= 0 && len(q.waiting[last].calls) < mostTogether {
		b := q.waiting[last]
		b.calls = append(b.calls, c)
		return b
	}
	b := newBatch(c)
	q.waiting = append(q.waiting, b)
	return b
}

// leave takes a call out again, if its batch was not sent, and answers whether it was out
// in time.
func (q *line) leave(b *batch, c *call) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.Index(q.waiting, b)
	if at < 0 {
		return false
	}
	i := slices.Index(b.calls, c)
	if b.calls = slices.Delete(b.calls, i, i+1); len(b.calls) == 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
	return true
}

// next is what flies next, or nil: then the place is free. took is how long the
// answer before it was on its way.
func (q *line) next(took time.Duration) *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.slow = took > slow
	if len(q.waiting) == 0 {
		q.flying--
		return nil
	}
	b := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	return b
}

// fly sends batches until nobody waits. One caller's context is not for all that
// fly together: the callers leave by theirs, and what bounds the call are the
// client's own timeouts.
func (q *line) fly(ctx context.Context, l *Limiter, mode string, b *batch) {
	for b != nil {
		begin := time.Now()
		err := l.send(ctx, mode, b.calls)
		took := time.Since(begin)
		for _, c := range b.calls {
			c.err = cmp.Or(c.err, err)
		}
		close(b.answered)
		// Whoever was just answered and asks again flies with the next batch.
		runtime.Gosched()
		b, ctx = q.next(took), context.Background()
	}
}

// enquiry is what a script is asked for calls.
type enquiry struct {
	mode   string
	calls  []*call
	script *redisscript.Script
	keys   []string
	args   []any
}

// send asks Redis for the calls' decisions. Each call's error is its own; the
// one returned is that of all.
func (l *Limiter) send(ctx context.Context, mode string, calls []*call) error {
	if len(calls) == 1 {
		if mode == modeTake && l.plain.knows(calls[0]) {
			return l.put(ctx, l.plainEnquiry(calls))
		}
		return l.put(ctx, l.enquiry(mode, calls))
	}
	questions := l.enquiries(mode, calls)
	if len(questions) > 1 {
		l.putTogether(ctx, questions)
		return nil
	}
	return l.put(ctx, questions[0])
}

// enquiries are what has to be asked about several calls: a script for each slot of a
// cluster, and another where the plain script knows the answer to some of them.
func (l *Limiter) enquiries(mode string, calls []*call) (questions []enquiry) {
	groups := [][]*call{calls}
	if l.spread() {
		groups = byTag(calls)
	}
	for _, group := range groups {
		known, others := []*call(nil), group
		if mode == modeTake && l.plain != nil {
			known, others = l.plain.sort(group)
		}
		if len(known) > 0 {
			questions = append(questions, l.plainEnquiry(known))
		}
		if len(others) > 0 {
			questions = append(questions, l.enquiry(mode, others))
		}
	}
	return questions
}

// put asks, and returns an error of all calls.
func (l *Limiter) put(ctx context.Context, q enquiry) error {
	reply, err := q.script.Run(ctx, l.client, q.keys, q.args...)
	return l.finish(ctx, q, reply, err)
}

// putTogether asks several questions in one pipeline.
func (l *Limiter) putTogether(ctx context.Context, questions []enquiry) {
	pipe := l.client.Pipeline()
	replies := make([]func() (any, error), len(questions))
	for i, q := range questions {
		replies[i] = q.script.AddTo(ctx, pipe, l.client, q.keys, q.args...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, q := range questions {
		reply, err := replies[i]()
		if err := l.finish(ctx, q, reply, err); err != nil {
			for _, c := range q.calls {
				c.err = err
			}
		}
	}
}

// finish reads an answer, and asks again about calls that the plain script did not
// know.
func (l *Limiter) finish(ctx context.Context, q enquiry, reply any, err error) error {
	if q.script != plainScript {
		return l.answer(q, reply, err)
	}
	if err != nil {
		return fmt.Errorf("throttle: decide: %w", err)
	}
	unknown, err := l.plainAnswer(q.calls, reply)
	if err != nil || len(unknown) == 0 {
		return err
	}
	err = l.put(ctx, l.enquiry(q.mode, unknown))
	for _, c := range unknown {
		c.err = cmp.Or(c.err, err) // the others have their answer
	}
	return nil
}

// spread reports whether keys of one limiter may live on different servers.
func (l *Limiter) spread() bool {
	if len(l.limits) > 1 {
		return false // they share a hash tag
	}
	switch l.client.(type) {
	case *redis.Client:
		return false
	default:
		return true
	}
}

// byTag groups calls by the hash tag of their key.
func byTag(calls []*call) [][]*call {
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

// enquiry is what take.lua is asked.
func (l *Limiter) enquiry(mode string, calls []*call) enquiry {
	form := police
	if mode == modeReserve {
		form = shape
	}
	within := time.Duration(0)
	for _, c := range calls {
		within = max(within, c.within)
	}
	args := make([]any, 0, 3+6*len(l.limits)+5*len(calls))
	args = append(args, l.clock(), mode, len(l.limits))
	args = l.appendSpecs(args, form, within)
	q := enquiry{mode: mode, calls: calls, script: takeScript}
	q.keys = gather(calls, func(which int, c *call, times int) {
		args = append(args, which, c.n, c.within.Microseconds(), c.id, times)
	})
	q.args = args
	return q
}

// gather lists the calls' buckets, each set of them once however many calls want
// it, and what is asked about them: once for calls in a row that ask the same.
func gather(calls []*call, ask func(which int, c *call, times int)) (keys []string) {
	if len(calls) == 1 {
		ask(1, calls[0], 1)
		return calls[0].buckets
	}
	known := make(map[string]int, len(calls))
	keys = make([]string, 0, len(calls)*len(calls[0].buckets))
	for i := 0; i < len(calls); i++ {
		c := calls[i]
		which, seen := known[c.set()]
		if !seen {
			which = len(known) + 1
			known[c.set()] = which
			keys = append(keys, c.buckets...)
		}
		times := 1
		for i+1 < len(calls) && calls[i+1].same(c) {
			i, times = i+1, times+1
		}
		ask(which, c, times)
	}
	return keys
}

// set tells the keys of one call from those of another.
func (c *call) set() string {
	if len(c.buckets) == 1 {
		return c.buckets[0]
	}
	return strings.Join(c.buckets, " ") // escaped, so none holds a space
}

// same reports two calls that ask the same thing.
func (c *call) same(other *call) bool {
	return c.n == other.n && c.within == other.within && c.id == other.id && slices.Equal(c.buckets, other.buckets)
}

// answer reads the reply of take.lua into the calls.
func (l *Limiter) answer(q enquiry, reply any, err error) error {
	calls, mode := q.calls, q.mode
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
	number := func(i int) int64 {
		n, isNumber := values[i].(int64)
		ok = ok && isNumber
		return n
	}
	now := number(0)
	for i, c := range calls {
		at := 1 + words*i
		span := func(i int) time.Duration { return time.Duration(number(i)) * time.Microsecond }
		taken, which := number(at), number(at+1)
		if !ok || which < 1 || which > int64(len(l.limits)) {
			return fmt.Errorf("throttle: decide: unexpected reply %v", reply)
		}
		limit := &l.limits[which-1]
		if taken < 0 {
			c.err = &CostError{Limit: limit.Name, Cost: c.n, Most: limit.maxCost(mode == modeReserve)}
			continue
		}
		d := &c.decision
		d.Allowed, d.Limit, d.Quota = taken == 1, limit.Name, limit.quota(mode == modeReserve)
		d.RetryAfter, d.Remaining, d.ResetAfter = span(at+3), number(at+4), span(at+5)
		if d.Allowed || mode == modeReserve {
			d.Delay = span(at + 2)
		}
		if d.Allowed {
			d.At = time.UnixMicro(now).Add(d.Delay)
		}
		if mode == modeReserve {
			c.marks = make([]int64, len(l.limits))
			for j := range c.marks {
				c.marks[j] = number(marks + i*len(l.limits) + j)
			}
		}
	}
	for i := reasons; i+1 < len(values); i += 2 {
		if n := number(i); n >= 0 && n < int64(len(calls)) {
			calls[n].decision.Paused, _ = values[i+1].(string)
		}
	}
	if !ok {
		return fmt.Errorf("throttle: decide: unexpected reply %v", reply)
	}
	return nil
}
