package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	Reason  string            `json:"reason"` // with "#" for each number and id; "": there is none
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
	Newest  time.Time // when the newest of them was archived
	Example string    // the unfolded reason of the newest
	ID      string    // of the newest
	Tenants int       // how many tenants have such jobs
}

// maxFailures is how many archived jobs are grouped, the newest.
const maxFailures = 10_000

// failures is what an Inspector keeps about the failures of one queue.
type failures struct {
	turn     chan struct{}
	groups   []FailureGroup
	tenants  map[string]int64 // archived jobs by tenant
	archived int64
	until    time.Time
}

// Failures groups the newest 10,000 archived jobs of a queue by why they ended, the
// largest group first. The groups are read again if jobs left the archive, and otherwise
// as seldom as an [Inspector] reads anything. Errors: [validation.Error].
func (in *Inspector) Failures(ctx context.Context, queue string) ([]FailureGroup, error) {
	if err := store.CheckQueue(ctx, in.redis, queue); err != nil {
		return nil, err
	}
	groups, _, err := in.failures(ctx, queue)
	if err != nil {
		return nil, fmt.Errorf("failures of queue %q: %w", queue, err)
	}
	return slices.Clone(groups), nil
}

// FailedByTenant counts the newest 10,000 archived jobs of a queue by tenant, from the same
// reading as [Inspector.Failures].
func (in *Inspector) FailedByTenant(ctx context.Context, queue string) (map[string]int64, error) {
	if err := store.CheckQueue(ctx, in.redis, queue); err != nil {
		return nil, err
	}
	_, tenants, err := in.failures(ctx, queue)
	if err != nil {
		return nil, fmt.Errorf("failures of queue %q: %w", queue, err)
	}
	return maps.Clone(tenants), nil
}

func (in *Inspector) failures(ctx context.Context, queue string) ([]FailureGroup, map[string]int64, error) {
	known := &in.watch(queue).failures
	done, err := take(ctx, known.turn)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	pipe := in.redis.Pipeline()
	asynqs, ours := pipe.ZCard(ctx, asynqwire.Key(queue, "archived")), pipe.ZCard(ctx, store.Key(queue, "archive"))
	if err := store.Execute(ctx, pipe); err != nil {
		return nil, nil, err
	}
	now, archived := time.Now(), asynqs.Val()+ours.Val()
	if now.Before(known.until) && archived >= known.archived {
		return known.groups, known.tenants, nil
	}
	groups, tenants, err := in.readFailures(ctx, queue)
	if err != nil {
		return nil, nil, err
	}
	known.groups, known.tenants, known.archived, known.until = groups, tenants, archived, now.Add(sharedFor(time.Since(now)))
	return groups, tenants, nil
}

func (in *Inspector) readFailures(ctx context.Context, queue string) ([]FailureGroup, map[string]int64, error) {
	groups, touched, tenants := map[FailureKey]*FailureGroup{}, map[FailureKey]map[string]bool{}, map[string]int64{}
	at := jobCursor{}
	for looked := 0; looked < maxFailures && !at.ended; {
		rows, next, n, err := in.jobs(ctx, queue, JobQuery{State: lifecycle.StateArchived}, at, lookedOnce, lookedOnce, nil, true)
		if err != nil {
			return nil, nil, err
		}
		at, looked = next, looked+n
		for _, row := range rows {
			of := FailureKey{Outcome: row.Outcome, Kind: row.Kind, Reason: store.FoldReason(row.Reason)}
			g := groups[of]
			if g == nil {
				g = &FailureGroup{FailureKey: of, Newest: row.At, Example: row.Reason, ID: row.ID}
				groups[of], touched[of] = g, map[string]bool{}
			}
			g.Jobs++
			touched[of][row.Tenant] = true
			tenants[row.Tenant]++
		}
	}
	var all []FailureGroup
	for of, g := range groups {
		g.Tenants = len(touched[of])
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b FailureGroup) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), b.Newest.Compare(a.Newest), strings.Compare(a.Reason, b.Reason), strings.Compare(a.Kind, b.Kind))
	})
	return all, tenants, nil
}
