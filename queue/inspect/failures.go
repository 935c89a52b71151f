package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/validation"
)

// FailureKey identifies a [FailureGroup]: archived jobs of one kind with the same
// outcome, whose reasons differ only in numbers and ids.
type FailureKey struct {
	Outcome lifecycle.Outcome `json:"outcome"`
	Kind    string            `json:"kind"`
	Reason  string            `json:"reason"` // without the attempt, with "#" for each number and id; "": there is none
}

// Check returns the error for an invalid field of the key, or for a kind or reason beside
// it.
func (k FailureKey) Check(kind, reason string) error {
	const maxFolded = 8 << 10 // for tasks of other tools; Headgate's reasons are shorter
	switch {
	case kind != "":
		return validation.Field("kind", "the group has the kind; leave this out")
	case reason != "":
		return validation.Field("reason", "the group has the reason; leave this out")
	case !k.Outcome.Failed():
		return validation.Field("group.outcome", check.Quote(string(k.Outcome))+" is not one of archived, expired, unknown, crashed, cancelled")
	case k.Kind == "" || len(k.Kind) > maxFolded:
		return validation.Field("group.kind", fmt.Sprintf("it has %d bytes, not 1 to %d", len(k.Kind), maxFolded))
	case len(k.Reason) > maxFolded:
		return validation.Field("group.reason", fmt.Sprintf("%d bytes; the maximum is %d", len(k.Reason), maxFolded))
	}
	return nil
}

// FailuresWanted returns which kind is wanted, and the words of failures_wanted in
// message.lua for a part of a reason or a group.
func FailuresWanted(kind, part string, group *FailureKey) (kindWanted, words string) {
	switch {
	case group != nil:
		return group.Kind, "group " + string(group.Outcome) + " " + group.Reason
	case part != "":
		return kind, "part " + part
	}
	return kind, ""
}

// FailureGroup is the archived jobs that have the same key.
type FailureGroup struct {
	FailureKey

	Jobs    int64
	Tenants int       // how many tenants have such jobs
	Newest  time.Time // when the newest of them was archived
	Example string    // the unfolded reason of the newest, without the attempt
	ID      string    // of the newest

	// Hours counts the jobs archived in each of the last 24 hours, the oldest hour first.
	Hours [24]int64
}

// failedJob is what is kept of an archived job.
type failedJob struct {
	FailureKey

	id, tenant, reason string
	at                 time.Time
}

// maxFailures is how many archived jobs are grouped, the newest.
const maxFailures = 10_000

// failures is what an Inspector keeps about the failures of one partition.
type failures struct {
	turn     chan struct{}
	jobs     []failedJob // the newest first
	archived int64
	until    time.Time
}

// Failures groups the newest 10,000 archived jobs of a queue by why they ended, the
// largest group first. With a tenant, it groups those of this tenant among them. The jobs
// are read again if some left the archive, and otherwise as seldom as an [Inspector] reads
// anything. Errors: [validation.Error].
func (in *Inspector) Failures(ctx context.Context, queue, tenant string) ([]FailureGroup, error) {
	if err := store.CheckQueue(ctx, in.redis, queue); err != nil {
		return nil, err
	}
	jobs, err := in.failures(ctx, queue)
	if err != nil {
		return nil, fmt.Errorf("failures of queue %q: %w", queue, err)
	}
	return groupFailures(jobs, tenant, time.Now()), nil
}

// FailedByTenant counts the newest 10,000 archived jobs of a queue by tenant, from the same
// reading as [Inspector.Failures].
func (in *Inspector) FailedByTenant(ctx context.Context, queue string) (map[string]int64, error) {
	if err := store.CheckQueue(ctx, in.redis, queue); err != nil {
		return nil, err
	}
	jobs, err := in.failures(ctx, queue)
	if err != nil {
		return nil, fmt.Errorf("failures of queue %q: %w", queue, err)
	}
	tenants := map[string]int64{}
	for _, job := range jobs {
		tenants[job.tenant]++
	}
	return tenants, nil
}

// failures returns the newest archived jobs of the partitions that answer, the newest first.
func (in *Inspector) failures(ctx context.Context, queue string) ([]failedJob, error) {
	_, names, err := in.answering(ctx, queue)
	if err != nil {
		return nil, err
	}
	all, err := ofEach(names, func(name string) ([]failedJob, error) { return in.failuresIn(ctx, name) })
	if err != nil || len(all) == 1 {
		return slices.Concat(all...), err
	}
	jobs := slices.Concat(all...)
	slices.SortStableFunc(jobs, func(a, b failedJob) int { return b.at.Compare(a.at) })
	return jobs[:min(len(jobs), maxFailures)], nil
}

func (in *Inspector) failuresIn(ctx context.Context, queue string) ([]failedJob, error) {
	known := &in.watch(queue).failures
	done, err := take(ctx, known.turn)
	if err != nil {
		return nil, err
	}
	defer done()
	pipe := in.redis.Pipeline()
	asynqs, ours := pipe.ZCard(ctx, asynqwire.Key(queue, "archived")), pipe.ZCard(ctx, store.Key(queue, "archive"))
	if err := store.Execute(ctx, pipe); err != nil {
		return nil, err
	}
	now, archived := time.Now(), asynqs.Val()+ours.Val()
	if now.Before(known.until) && archived >= known.archived {
		return known.jobs, nil
	}
	jobs, err := in.readFailures(ctx, queue)
	if err != nil {
		return nil, err
	}
	known.jobs, known.archived, known.until = jobs, archived, now.Add(sharedFor(time.Since(now)))
	return jobs, nil
}

func (in *Inspector) readFailures(ctx context.Context, queue string) ([]failedJob, error) {
	var all []failedJob
	at := jobCursor{}
	for looked := 0; looked < maxFailures && !at.ended; {
		rows, next, n, err := in.jobs(ctx, queue, JobQuery{State: lifecycle.StateArchived}, at, lookedOnce, lookedOnce, nil, true)
		if err != nil {
			return nil, err
		}
		at, looked = next, looked+n
		for _, row := range rows {
			key := FailureKey{Outcome: row.Outcome, Kind: row.Kind, Reason: store.FoldReason(row.Reason)}
			all = append(all, failedJob{key, row.ID, row.Tenant, store.TrimAttempt(row.Reason), row.At})
		}
	}
	return all, nil
}

// groupFailures groups the jobs of a tenant, or with "" all jobs.
func groupFailures(jobs []failedJob, tenant string, now time.Time) []FailureGroup {
	type group struct {
		FailureGroup
		tenants map[string]bool
	}
	groups := map[FailureKey]*group{}
	for _, job := range jobs {
		if tenant != "" && job.tenant != tenant {
			continue
		}
		g := groups[job.FailureKey]
		if g == nil {
			g = &group{FailureGroup{FailureKey: job.FailureKey, Newest: job.at, Example: job.reason, ID: job.id}, map[string]bool{}}
			groups[job.FailureKey] = g
		}
		g.Jobs++
		g.tenants[job.tenant] = true
		last := len(g.Hours) - 1
		if ago := int(max(now.Sub(job.at), 0) / time.Hour); ago <= last {
			g.Hours[last-ago]++
		}
	}
	var all []FailureGroup
	for _, g := range groups {
		g.Tenants = len(g.tenants)
		all = append(all, g.FailureGroup)
	}
	slices.SortFunc(all, func(a, b FailureGroup) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), b.Newest.Compare(a.Newest), strings.Compare(a.Reason, b.Reason), strings.Compare(a.Kind, b.Kind))
	})
	return all
}
