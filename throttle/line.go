package throttle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
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
	done     chan struct{} // closed when answered; nil while nobody waits
}

// line is where calls gather while others are on their way.
type line struct {
	mu      sync.Mutex
	flying  int
	waiting []*call
}

// decide has c answered: at once, or together with others. After an error c is
// no longer the caller's: its answer may still come.
func (q *line) decide(ctx context.Context, l *Limiter, mode string, c *call) error {
	q.mu.Lock()
	alone := q.flying < flying
	if alone {
		q.flying++
	}
	if alone && ctx.Done() == nil {
		q.mu.Unlock()
		err := l.send(ctx, mode, []*call{c})
		if batch := q.next(); batch != nil {
			go q.fly(context.Background(), l, mode, batch)
		}
		return cmp.Or(err, c.err)
	}
	c.done = make(chan struct{})
	if alone {
		go q.fly(context.WithoutCancel(ctx), l, mode, []*call{c})
	} else {
		q.waiting = append(q.waiting, c)
	}
	q.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		q.mu.Lock()
		defer q.mu.Unlock()
		if i := slices.Index(q.waiting, c); i >= 0 {
			q.waiting = slices.Delete(q.waiting, i, i+1) // never sent
		}
		return fmt.Errorf("throttle: decide: %w", ctx.Err())
	}
}

// next is what flies next, or nil: then the place is free.
func (q *line) next() []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.flying--
		return nil
	}
	n := min(len(q.waiting), mostTogether)
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return batch
}

// fly sends batches until nobody waits. A context is not for all that fly
// together, and go-redis does not leave a call when its context is done: the
// callers do, and what bounds the call are the client's own timeouts.
func (q *line) fly(ctx context.Context, l *Limiter, mode string, batch []*call) {
	for ; batch != nil; batch, ctx = q.next(), context.Background() {
		err := l.send(ctx, mode, batch)
		for _, c := range batch {
			c.err = cmp.Or(c.err, err)
			close(c.done)
		}
	}
}

// send asks Redis for the calls' decisions. Each call's error is its own; the
// one returned is that of all.
func (l *Limiter) send(ctx context.Context, mode string, calls []*call) error {
	groups := [][]*call{calls}
	if len(calls) > 1 && l.spread() {
		groups = byTag(calls)
	}
	if len(groups) == 1 {
		keys, args := l.question(mode, calls)
		reply, err := takeScript.Run(ctx, l.client, keys, args...)
		return l.answer(mode, calls, reply, err)
	}
	// Keys of different slots of a cluster: a script for each slot, in one pipeline.
	pipe := l.client.Pipeline()
	sent := make([]*redis.Cmd, len(groups))
	questions := make([][]any, len(groups))
	keys := make([][]string, len(groups))
	for i, group := range groups {
		keys[i], questions[i] = l.question(mode, group)
		sent[i] = takeScript.command(ctx, "evalsha", takeScript.sha, keys[i], questions[i])
		_ = pipe.Process(ctx, onceCmd{sent[i]})
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, group := range groups {
		reply, err := sent[i].Result()
		if err != nil {
			reply, err = takeScript.again(ctx, l.client, err, keys[i], questions[i])
		}
		if err := l.answer(mode, group, reply, err); err != nil {
			for _, c := range group {
				c.err = err
			}
		}
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

// question is what take.lua is asked.
func (l *Limiter) question(mode string, calls []*call) (keys []string, args []any) {
	form := police
	if mode == modeReserve {
		form = shape
	}
	within := time.Duration(0)
	for _, c := range calls {
		within = max(within, c.within)
	}
	args = make([]any, 0, 3+6*len(l.limits)+4*len(calls))
	args = append(args, l.clock(), mode, len(l.limits))
	args = l.appendSpecs(args, form, within)
	if len(calls) == 1 {
		c := calls[0]
		return c.buckets, append(args, 1, c.n, c.within.Microseconds(), c.id)
	}
	// One key is sent once, however many calls want it.
	known := make(map[string]int, len(calls))
	keys = make([]string, 0, len(calls)*len(l.limits))
	for _, c := range calls {
		set := c.buckets[0]
		if len(c.buckets) > 1 {
			set = strings.Join(c.buckets, " ") // escaped, so none holds a space
		}
		which, seen := known[set]
		if !seen {
			which = len(known) + 1
			known[set] = which
			keys = append(keys, c.buckets...)
		}
		args = append(args, which, c.n, c.within.Microseconds(), c.id)
	}
	return keys, args
}

// answer reads the reply of take.lua into the calls.
func (l *Limiter) answer(mode string, calls []*call, reply any, err error) error {
	if err != nil {
		return fmt.Errorf("throttle: decide: %w", err)
	}
	const words = 5
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
		taken, which, delay := number(at), number(at+1), time.Duration(number(at+2))*time.Microsecond
		if !ok || which < 1 || which > int64(len(l.limits)) {
			return fmt.Errorf("throttle: decide: unexpected reply %v", reply)
		}
		limit := &l.limits[which-1]
		if taken < 0 {
			c.err = &CostError{Limit: limit.Name, Cost: c.n, Most: limit.Most(mode == modeReserve)}
			continue
		}
		d := &c.decision
		d.Allowed, d.Limit, d.Quota = taken == 1, limit.Name, limit.quota(mode == modeReserve)
		d.Remaining, d.ResetAfter = number(at+3), time.Duration(number(at+4))*time.Microsecond
		if d.Allowed {
			d.Delay, d.At = delay, time.UnixMicro(now).Add(delay)
		} else {
			d.RetryAfter = delay
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
