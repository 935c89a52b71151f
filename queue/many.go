package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	maxBatch      = 100
	maxBatchBytes = 1 << 20
	maxPrepared   = 64 * maxBatch // jobs that are encoded before they are sent
)

// EnqueueMany enqueues jobs in few round trips. Each job is accepted or rejected on its
// own, and the jobs may be for several queues. The results have the order of jobs, and so
// do the jobs of a lane.
func (c *Client) EnqueueMany(ctx context.Context, jobs []Job) []Result {
	results, left := make([]Result, len(jobs)), make([]int, len(jobs))
	for i := range jobs {
		left[i] = i
	}
	now, seeking, looking := time.Now(), &retry{}, &retry{}
	for try := 0; ; try++ {
		m := many{jobs: jobs, results: results, now: now, try: try, sent: map[source]bool{}}
		late := c.sendFound(ctx, &m, left)
		for len(late) > 0 && looking.wait(ctx, time.Time{}) {
			late = c.sendFound(ctx, &m, late)
		}
		m.sending.Wait()
		left = slices.DeleteFunc(left, func(i int) bool { return !errors.Is(results[i].Err, errNoPartition) })
		if len(left) == 0 || !seeking.seek(ctx, try) {
			return results
		}
	}
}

// many is one try of [Client.EnqueueMany].
type many struct {
	jobs    []Job
	results []Result
	now     time.Time // of the call: all that is looked up is as new
	try     int

	sending sync.WaitGroup
	sent    map[source]bool  // of which a job was sent
	behind  map[source]error // of which a job was not sent in this pass, and why: later ones must not overtake it
}

// source is what a job says of its lane: jobs with the same one keep their order.
type source struct{ queue, kind, tenant string }

// lookupWait is how long jobs whose partitions are known wait for those whose partitions are looked up.
const lookupWait = 100 * time.Millisecond

// sendFound sends some jobs, those of each partition in their order, and the partitions side by side: one whose node
// does not answer keeps no other waiting. It returns those whose partitions were not found in time. m.sending ends
// when the others are answered.
func (c *Client) sendFound(ctx context.Context, m *many, some []int) (late []int) {
	m.behind = map[source]error{}
	for n := 0; n < len(some); n += maxPrepared {
		if n > 0 {
			m.sending.Wait()
		}
		quick, cancel := context.WithTimeout(ctx, lookupWait)
		batches := map[place][]*batchOf{} // one round trip is for one
		for _, i := range some[n:min(n+maxPrepared, len(some))] {
			a, err := c.find(ctx, quick, m, i)
			if err != nil {
				m.results[i].Err = err
				if isLate(err) {
					late = append(late, i)
				}
				continue
			}
			m.results[i] = Result{Receipt: Receipt{ID: a.id, Queue: a.queue()}}
			all := batches[a.place()]
			if len(all) == 0 || !all[len(all)-1].fits(a) {
				all = append(all, &batchOf{})
				batches[a.place()] = all
			}
			all[len(all)-1].add(a, i)
		}
		cancel()
		for _, all := range batches {
			m.sending.Go(func() { c.sendInOrder(ctx, all, m.results) })
		}
	}
	return late
}

// find prepares a job. It looks up its partition only until quick is done.
func (c *Client) find(ctx, quick context.Context, m *many, i int) (accepted, error) {
	job, err := c.changed(ctx, m.jobs[i])
	if err != nil {
		return accepted{}, err
	}
	of := source{job.Queue, job.Kind, job.Tenant}
	if err := m.behind[of]; err != nil {
		return accepted{}, err
	}
	a, err := c.placed(quick, job, m.now, m.try)
	switch late := isLate(err); {
	case err == nil:
		m.sent[of] = true
	case late && m.sent[of]:
		err = errNoPartition // it may go when the answers to those before it are known
	case late && errors.Is(err, context.DeadlineExceeded):
		err = &lookupError{job.Kind, errSilent}
	}
	if isLate(err) || errors.Is(err, errNoPartition) {
		m.behind[of] = err
	}
	return a, err
}

// sendInOrder sends batches of one place.
func (c *Client) sendInOrder(ctx context.Context, all []*batchOf, results []Result) {
	again := &retry{}
	strays := map[string]bool{} // tenants of which a job was refused: later ones must not overtake it
	for _, batch := range all {
		if batch = batch.without(strays, results); len(batch.jobs) == 0 {
			continue
		}
		c.send(ctx, batch, results, again)
		for n, i := range batch.at {
			if errors.Is(results[i].Err, errNoPartition) {
				strays[batch.jobs[n].tenant] = true
			}
		}
	}
}

// batchOf collects jobs for one place.
type batchOf struct {
	jobs  []accepted
	at    []int // their indexes in the caller's list
	bytes int
}

func (b *batchOf) fits(a accepted) bool {
	return len(b.jobs) == 0 || len(b.jobs) < maxBatch && b.bytes+a.size() <= maxBatchBytes
}

// without returns the batch without the jobs of some tenants, which are refused as those before them.
func (b *batchOf) without(tenants map[string]bool, results []Result) *batchOf {
	if len(tenants) == 0 {
		return b
	}
	left := &batchOf{}
	for n, a := range b.jobs {
		if tenants[a.tenant] {
			results[b.at[n]] = Result{Err: errNoPartition}
		} else {
			left.add(a, b.at[n])
		}
	}
	return left
}

func (b *batchOf) add(a accepted, at int) {
	b.jobs, b.at, b.bytes = append(b.jobs, a), append(b.at, at), b.bytes+a.size()
}

func (c *Client) send(ctx context.Context, batch *batchOf, results []Result, again *retry) {
	answers, err := c.deliver(ctx, c.newRequest(batch.jobs), again)
	for n, i := range batch.at {
		if err != nil && !isRefusal(answers, n) {
			results[i] = Result{Err: err}
		} else {
			c.read(&results[i], answers[n], batch.jobs[n])
		}
	}
}

// errSilent is the cause of a [lookupError] while it is not known yet whether Redis answers.
var errSilent = fmt.Errorf("redis does not answer: %w", context.DeadlineExceeded)
