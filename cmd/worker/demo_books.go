package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// books is what Redis knows of the demo's jobs, and of those of a second terminal,
// beside what the demo and the providers counted themselves.
type books struct {
	sent           int64 // jobs that the demo enqueued
	enqueued, done int64
	left           int64  // not done, and not in the archive
	failed         int64  // in the archive, but for those that operators cancelled
	reason         string // of one that failed
	cancelled      int64  // by operators, and still in the archive
	deleted        int64  // by operators, from the archive

	seen    int64 // calls of jobs that the providers accepted
	unknown int64 // of them, more than are done; by tenants
	unseen  int64 // jobs that are done, more than were seen; by tenants
}

// outside is how many jobs others enqueued. Below 0 Redis has lost count.
func (b books) outside() int64 { return b.enqueued - b.sent }

// missing is how many jobs are nowhere, or of which Redis was never told.
func (b books) missing() int64 {
	return b.enqueued - b.done - b.left - b.failed - b.cancelled - b.deleted + max(-b.outside(), 0)
}

// backlogs is what waits of each of the demo's tenants.
func (d *demo) backlogs(ctx context.Context) (map[string]int64, error) {
	waiting := map[string]int64{}
	inspector := inspect.New(d.client)
	for _, kind := range demoKinds {
		var names []string
		for _, t := range demoTenants {
			if t.kind == kind {
				names = append(names, t.name)
			}
		}
		tenants, err := inspector.TenantGauges(ctx, kind, names)
		if err != nil {
			return nil, err
		}
		for _, t := range tenants {
			waiting[t.Tenant] = t.Waiting
		}
	}
	return waiting, nil
}

func (d *demo) books(ctx context.Context) (books, error) {
	b := books{sent: d.sent}
	inspector := inspect.New(d.client)
	for _, name := range demoKinds {
		overview, err := inspector.Overview(ctx, name)
		if err != nil {
			return books{}, err
		}
		b.enqueued += overview.Enqueued
		b.left += overview.Waiting + overview.Scheduled + overview.Retry + overview.Pending + overview.Active
		b.failed += overview.Archived
		failures, err := inspector.Failures(ctx, name, "")
		if err != nil {
			return books{}, err
		}
		for _, group := range failures {
			if group.Outcome == lifecycle.Cancelled {
				b.failed -= group.Jobs
				b.cancelled += group.Jobs
			} else {
				b.reason = group.Example
			}
		}
		done, err := doneOf(ctx, inspector, name)
		if err != nil {
			return books{}, err
		}
		seen := d.seen(name)
		for tenant, n := range seen {
			b.seen += n
			b.unknown += max(n-done[tenant], 0)
		}
		for tenant, n := range done {
			b.done += n
			b.unseen += max(n-seen[tenant], 0)
		}
		changes, err := operate.Audit(ctx, d.client, name, operate.MaxAudit)
		if err != nil {
			return books{}, err
		}
		for _, change := range changes {
			if change.Action == string(operate.DeleteArchived) {
				b.deleted += change.Count
			}
		}
	}
	return b, nil
}

// doneOf is how many jobs of each tenant are done, as Redis counted them. A second
// terminal may have made any number of tenants.
func doneOf(ctx context.Context, inspector *inspect.Inspector, name string) (map[string]int64, error) {
	done := map[string]int64{}
	for t, err := range inspector.Tenants(ctx, name, inspect.TenantQuery{Sort: inspect.ByTenant, Ascending: true}) {
		if err != nil {
			return nil, err
		}
		done[t.Tenant] = t.Done
	}
	return done, nil
}

// seen is how many calls of jobs the provider of a kind accepted, by tenant. Calls
// that somebody made by hand are no jobs'.
func (d *demo) seen(kind string) map[string]int64 {
	provider, seen := d.providers.of(kind), map[string]int64{}
	for tenant, stats := range provider.Stats() {
		if tenant != unshapedTenant {
			seen[tenant] = int64(stats.Accepted)
		}
	}
	for _, call := range provider.Calls() {
		if call.Accepted && call.Job == "" && call.Tenant != unshapedTenant {
			seen[call.Tenant]--
		}
	}
	return seen
}

// refusals are the calls that the providers refused, but for those of the tenant that
// goes past the queue.
type refusals struct {
	excused    int64  // an operator let them past a limit
	violations int64  // all others
	example    string // of a violation
}

func (d *demo) refusals(ctx context.Context) (r refusals, err error) {
	for _, kind := range demoKinds {
		changes, err := operate.Audit(ctx, d.client, kind, operate.MaxAudit)
		if err != nil {
			return r, err
		}
		provider := d.providers.of(kind)
		calls := provider.Calls()
		for tenant, stats := range provider.Stats() {
			if tenant == unshapedTenant || stats.Rejected == 0 {
				continue
			}
			since, violations := letPast(changes, kind, tenant), stats.Rejected
			if !since.IsZero() {
				violations = 0 // unless they came before
			}
			for _, call := range calls {
				if call.Accepted || call.Tenant != tenant {
					continue
				}
				if !since.IsZero() && call.At.Before(since) {
					violations++
				}
				if r.example == "" && (since.IsZero() || call.At.Before(since)) {
					r.example = fmt.Sprintf("of %s at %s after %.1f s", tenant, kind, call.At.Sub(d.began).Seconds())
				}
			}
			r.violations += int64(violations)
			r.excused += int64(stats.Rejected - violations)
		}
	}
	return r, nil
}

// letPast is since when operators let jobs of a tenant past what its provider allows:
// they raised a limit, or ran jobs at once, which is charged to those that follow. The
// zero time: they did not.
func letPast(changes []operate.AuditEntry, kind, tenant string) time.Time {
	shared := slices.ContainsFunc(bindingLimits, func(l demoLimit) bool { return l.kind == kind && l.tenant == "" })
	var first time.Time
	for _, change := range changes { // the newest first
		past := change.Action == "override" && raises(change) || change.Action == string(operate.RunNow) && change.Count > 0
		if past && (shared || change.Tenant == "" || change.Tenant == tenant) {
			first = change.At
		}
	}
	return first
}

// raises tells whether a change of a limit lets more go than before: it is not a lower
// rate alone.
func raises(change operate.AuditEntry) bool {
	for name, after := range change.After {
		afterRate, afterRest, _ := strings.Cut(after, ",")
		beforeRate, beforeRest, _ := strings.Cut(change.Before[name], ",")
		now, err := throttle.ParseRate(afterRate)
		was, beforeErr := throttle.ParseRate(beforeRate)
		if err != nil || beforeErr != nil || afterRest != beforeRest ||
			float64(now.Count)*was.Period.Seconds() > float64(was.Count)*now.Period.Seconds() {
			return true
		}
	}
	return false
}

// calledTwice counts the jobs that a provider accepted more than once. A key may be used
// again once its job has ended, so jobs with one do not count: the demo's have none.
func (d *demo) calledTwice() (twice int) {
	for _, kind := range demoKinds {
		called := map[string]int{}
		for _, call := range d.providers.of(kind).Calls() {
			if !call.Accepted || call.Job == "" || strings.Contains(call.Job, ":") {
				continue
			}
			if called[call.Job]++; called[call.Job] == 2 {
				twice++
			}
		}
	}
	return twice
}
