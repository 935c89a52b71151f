package queue

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Status is what a queue looks like right now.
type Status struct {
	Queue     string
	Waiting   int64     // jobs in lanes
	Scheduled int64     // jobs for later
	Retry     int64     // failed jobs that wait to be tried again
	Pending   int64     // released, not yet in a worker's hands
	Active    int64     // in a worker's hands: held for their slot, or being sent
	Archived  int64     // also those beyond what asynq's tools list
	Enqueued  int64     // jobs ever accepted
	DrainsAt  time.Time // when nothing will wait any more, as things are; zero: nothing waits, or not known
	Tenants   []TenantStatus
}

// TenantStatus is what one tenant's jobs in a queue look like.
type TenantStatus struct {
	Tenant   string
	Waiting  int64
	Done     int64     // calls that succeeded, ever
	Next     time.Time // when its limits next admit a job; zero: none waits
	HeldBy   string    // the limit that holds it longest; "" when none does
	DrainsAt time.Time // when nothing of it will wait any more; zero: nothing waits, or not known
}

// Queues lists the queues of a Redis, sorted.
func Queues(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	names, err := client.SMembers(ctx, asynqQueues).Result()
	if err != nil {
		return nil, fmt.Errorf("list the queues: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// ReadStatus reads a queue's state. Drain times are those of [TenantOutlook].
func ReadStatus(ctx context.Context, client redis.UniversalClient, queue string) (Status, error) {
	fail := func(err error) (Status, error) { return Status{}, fmt.Errorf("status of queue %q: %w", queue, err) }
	pipe := client.Pipeline()
	scheduled := pipe.ZCard(ctx, asynqKey(queue, "scheduled"))
	retry := pipe.ZCard(ctx, asynqKey(queue, "retry"))
	pending := pipe.LLen(ctx, asynqKey(queue, "pending"))
	active := pipe.LLen(ctx, asynqKey(queue, "active"))
	archived := pipe.ZCard(ctx, asynqKey(queue, "archived"))
	moved := pipe.ZCard(ctx, key(queue, "archive"))
	done := pipe.HGetAll(ctx, key(queue, "done"))
	waiting := pipe.ZRangeWithScores(ctx, key(queue, "waiting"), 0, -1)
	enqueued := pipe.HGet(ctx, key(queue, "totals"), "enqueued")
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return fail(err)
	}
	f, members, err := forecastAll(ctx, client, queue)
	if err != nil {
		return fail(err)
	}
	next := map[string]time.Time{}
	for _, lane := range waiting.Val() {
		tenant, _, _ := strings.Cut(fmt.Sprint(lane.Member), ";")
		due := time.UnixMicro(int64(lane.Score))
		if known, ok := next[tenant]; !ok || due.Before(known) {
			next[tenant] = due
		}
	}
	s := Status{
		Queue: queue, Scheduled: scheduled.Val(), Retry: retry.Val(), Pending: pending.Val(),
		Active: active.Val(), Archived: archived.Val() + moved.Val(),
	}
	s.Enqueued, _ = enqueued.Int64()
	s.Waiting, _ = strconv.ParseInt(f.backlog["*"], 10, 64)
	names := map[string]bool{}
	for tenant := range f.backlog {
		names[tenant] = tenant != "*"
	}
	for tenant := range done.Val() {
		names[tenant] = true
	}
	outlooks := f.outlooks(members)
	unknown := false
	for escaped, wanted := range names {
		if !wanted {
			continue
		}
		t := TenantStatus{Tenant: unescape(escaped)}
		t.Done, _ = strconv.ParseInt(done.Val()[escaped], 10, 64)
		if o := outlooks[escaped]; o.Waiting > 0 {
			t.Waiting = o.Waiting
			// A lane that is ready waits for shared limits alone, and may go as soon as they let it.
			t.Next = f.now
			if due, ok := next[escaped]; ok && due.After(t.Next) {
				t.Next = due
			}
			if o.HeldBy != nil {
				t.HeldBy = o.HeldBy.Limit
			}
			t.DrainsAt = o.DrainsAt
			unknown = unknown || t.DrainsAt.IsZero()
			if t.DrainsAt.After(s.DrainsAt) {
				s.DrainsAt = t.DrainsAt
			}
		}
		s.Tenants = append(s.Tenants, t)
	}
	if unknown {
		s.DrainsAt = time.Time{}
	}
	slices.SortFunc(s.Tenants, func(a, b TenantStatus) int { return strings.Compare(a.Tenant, b.Tenant) })
	return s, nil
}

// unescape is the way back from [throttle.Escape].
func unescape(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}
