package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue"
)

// demo makes the traffic of `worker dev` and tells what becomes of it.
type demo struct {
	client    redis.UniversalClient
	enqueue   *queue.Client
	providers *demoProviders
	late      *lateness
	out       io.Writer

	began   time.Time
	topped  time.Time          // when traffic was last made
	owed    map[string]float64 // jobs that a tenant has come to want, by its name
	made    map[string]int     // jobs, by tenant
	sent    int64              // of them, that were enqueued
	waiting map[string]int64   // in the lanes of a tenant, as of the last line

	first  map[demoLimit]time.Time // call under a limit
	lines  int
	widths []int

	ended time.Time // of the traffic
	final []use     // then
	pace  pace      // of the machine, until then
}

const (
	topUpEvery = 100 * time.Millisecond
	tellEvery  = time.Second
	readyEvery = 10 * time.Millisecond
	titleEvery = 20 // lines

	unansweredFor = 30 * time.Second // until the demo gives up; the client repeats no request for longer
	slowAnswer    = 5 * time.Second

	// maxWaiting of a tenant: enough for a backlog, and no more however long
	// the demo runs.
	maxWaiting = 250
)

func newDemo(client redis.UniversalClient, providers *demoProviders, late *lateness, out io.Writer) *demo {
	now := time.Now()
	return &demo{
		client: client, enqueue: queue.NewClient(client), providers: providers, late: late, out: out,
		began: now, topped: now.Add(-time.Second / 2), // half a second's worth stands ready from the start
		owed: map[string]float64{}, made: map[string]int{}, waiting: map[string]int64{}, first: map[demoLimit]time.Time{},
	}
}

// lateness counts the slots that jobs came too late to. Such a call is not made
// late, but at its next slot: a busy machine costs capacity.
type lateness struct {
	queue.NoObserver
	slots atomic.Int64
}

func (l *lateness) Gated(_ string, g queue.Gating) {
	if g.Decision == "missed" {
		l.slots.Add(1)
	}
}

// run makes traffic until ctx is done or the time is over.
func (d *demo) run(ctx context.Context, lasts time.Duration) error {
	var over <-chan time.Time
	if lasts > 0 {
		timer := time.NewTimer(lasts)
		defer timer.Stop()
		over = timer.C
	}
	defer func() { d.ended, d.final = time.Now(), d.uses() }()
	topUp, tell := time.NewTicker(topUpEvery), time.NewTicker(tellEvery)
	defer topUp.Stop()
	defer tell.Stop()
	for {
		if err := d.topUp(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-topUp.C:
		case <-tell.C:
			if err := d.tell(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		case <-over:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// topUp enqueues what each tenant has come to want since the last time.
func (d *demo) topUp(ctx context.Context) error {
	now := time.Now()
	elapsed := now.Sub(d.topped).Seconds()
	d.topped = now
	var jobs []queue.Job
	for _, t := range demoTenants {
		if d.waiting[t.name] >= maxWaiting {
			continue
		}
		for d.owed[t.name] += elapsed * t.wants; d.owed[t.name] >= 1; d.owed[t.name]-- {
			d.made[t.name]++
			jobs = append(jobs, d.providers.job(t, d.made[t.name]))
		}
	}
	// Only the client can ask again without enqueueing a job twice, so it is given the time for that.
	asking, stop := context.WithTimeout(ctx, unansweredFor)
	defer stop()
	results := d.enqueue.EnqueueMany(asking, jobs)
	if took := time.Since(now); took > slowAnswer {
		fmt.Fprintf(d.out, "%4.0fs  waited %.1f s for Redis to take the jobs\n", time.Since(d.began).Seconds(), took.Seconds())
	}
	var failed error
	for _, result := range results {
		if result.Err == nil {
			d.sent++
		} else if failed == nil {
			failed = fmt.Errorf("enqueue demo traffic: %w", result.Err)
		}
	}
	return failed
}

// use is what became of a limit: what its provider accepted, what it would have
// accepted at most since the first call, and how many calls it refused.
type use struct{ sent, allowed, rejected int64 }

func (u use) part() float64 {
	if u.allowed == 0 {
		return 0
	}
	return float64(u.sent) / float64(u.allowed)
}

func (d *demo) uses() []use {
	uses := make([]use, len(bindingLimits))
	for i, l := range bindingLimits {
		provider := d.providers.of(l.kind)
		for tenant, stats := range provider.Stats() {
			if l.tenant == "" || l.tenant == tenant {
				uses[i].sent += int64(stats.Accepted)
				uses[i].rejected += int64(stats.Rejected)
			}
		}
		if l.unit == "tokens" {
			stats := d.providers.models.AIStats()[l.tenant]
			uses[i].sent = stats.Prompt + stats.Completion
		}
		if d.first[l].IsZero() {
			for _, call := range provider.Calls() { // in the order of their arrival
				if call.Accepted && (l.tenant == "" || l.tenant == call.Tenant) {
					d.first[l] = call.At
					break
				}
			}
		}
		if first := d.first[l]; !first.IsZero() {
			uses[i].allowed = l.burst + int64(l.perSecond()*time.Since(first).Seconds())
		}
	}
	return uses
}

// tell prints one line: what went out of what was allowed.
func (d *demo) tell(ctx context.Context) error {
	if waiting, err := d.backlogs(ctx); err == nil {
		d.waiting = waiting
	} else if ctx.Err() == nil {
		// On a busy machine one question can take too long. If Redis is gone, topUp says so.
		fmt.Fprintf(d.out, "%4.0fs  asking again how many jobs wait: %v\n", time.Since(d.began).Seconds(), err)
	}
	uses := d.uses()
	if d.lines%titleEvery == 0 {
		d.title(uses)
	}
	d.lines++
	rejected := int64(0)
	var b strings.Builder
	for i, u := range uses {
		rejected += u.rejected
		fmt.Fprintf(&b, "  %-*s", d.widths[i], fmt.Sprintf("%d/%d", u.sent, u.allowed))
	}
	_, err := fmt.Fprintf(d.out, "%4.0fs%s  %8d\n", time.Since(d.began).Seconds(), b.String(), rejected)
	return err
}

// title prints the heads of the columns, which grow with their numbers.
func (d *demo) title(uses []use) {
	heads := [2]strings.Builder{}
	d.widths = d.widths[:0]
	for i, l := range bindingLimits {
		most := uses[i].allowed + int64(titleEvery*l.perSecond())
		kind := l.kind
		if l.unit != "" {
			kind = "ai " + l.unit
		}
		width := max(2*len(fmt.Sprint(most))+1, len(kind), len(l.who()))
		d.widths = append(d.widths, width)
		fmt.Fprintf(&heads[0], "  %-*s", width, kind)
		fmt.Fprintf(&heads[1], "  %-*s", width, l.who())
	}
	fmt.Fprintf(d.out, "     %s\n     %s  rejected\n", strings.TrimRight(heads[0].String(), " "), heads[1].String())
}

// account prints what came of it all, and is an error if the promise was broken.
func (d *demo) account(ctx context.Context) error {
	books, err := d.books(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "\nAfter %.1f s:\n", d.ended.Sub(d.began).Seconds())
	for i, l := range bindingLimits {
		u := d.final[i]
		fmt.Fprintf(d.out, "  %-8s %-8s %-16s  %6d of %6d allowed (%.3f), rejected by the provider: %d\n",
			l.kind, l.who(), per(l.rate, cmp.Or(l.unit, "calls")), u.sent, u.allowed, u.part(), u.rejected)
	}
	most, err := d.most(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "  %s\n", most)
	paid := d.providers.stripe.Stats()
	fmt.Fprintf(d.out, "  the account's calls: stark %d, wayne %d; charges %d, of which for the second time: %d\n",
		paid["stark"].Accepted, paid["wayne"].Accepted, len(d.providers.stripe.Ledger()), d.providers.stripe.Doubles())

	fmt.Fprintf(d.out, "  slots missed: %d; %v\n", d.late.slots.Load(), d.pace)

	refused, err := d.refusals(ctx)
	if err != nil {
		return err
	}
	if refused.excused > 0 {
		fmt.Fprintf(d.out, "  calls that an operator let past a limit, and that the provider refused: %d\n", refused.excused)
	}
	var outside, operators string
	if books.outside() > 0 {
		outside = fmt.Sprintf(", %d of them from outside", books.outside())
	}
	if books.cancelled > 0 {
		operators = fmt.Sprintf(", %d cancelled", books.cancelled)
	}
	if books.deleted > 0 {
		operators += fmt.Sprintf(", %d deleted", books.deleted)
	}
	twice, missing := d.calledTwice(), books.missing()
	fmt.Fprintf(d.out, "  jobs: %d enqueued%s, %d done, %d failed for good, %d still waiting%s, %d called twice, %d unaccounted for\n",
		books.enqueued, outside, books.done, books.failed, books.left, operators, twice, missing)
	fmt.Fprintf(d.out, "  calls of jobs that providers accepted: %d, of which Redis does not know: %d; jobs done that no provider saw: %d\n",
		books.seen, books.unknown, books.unseen)
	switch {
	case missing != 0:
		return fmt.Errorf("%d jobs are unaccounted for", missing)
	case books.failed > 0:
		return fmt.Errorf("%d jobs failed for good, such as one with the reason %q", books.failed, books.reason)
	case twice > 0:
		return fmt.Errorf("%d jobs were called twice", twice)
	case books.unknown > 0:
		return fmt.Errorf("the providers accepted %d calls of jobs that are not done as far as Redis knows", books.unknown)
	case books.unseen > max(books.outside(), 0):
		return fmt.Errorf("%d jobs are done as far as Redis knows, and no provider saw their calls", books.unseen)
	case refused.violations > 0 && d.pace.excuses(refused.violations):
		return tooBusyError{fmt.Errorf("machine too busy to judge: the providers saw %d violations, such as a call %s, but a process that only keeps time was more than %v late at %d moments, too",
			refused.violations, refused.example, wayBound, d.pace.Late)}
	case refused.violations > 0:
		return fmt.Errorf("the providers saw %d violations, such as a call %s", refused.violations, refused.example)
	}
	return nil
}

// tooBusyError reports that the machine was too busy to tell who broke a promise.
type tooBusyError struct{ error }

// ExitCode is the exit code of dev.
func (tooBusyError) ExitCode() int { return 3 }
