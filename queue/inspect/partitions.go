package inspect

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/fanout"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/internal/refreshed"
	"github.com/headgate/headgate/queue/internal/store"
)

// A queue in partitions is shown as one queue. What is about a tenant or a job is read in its partition,
// and what is about the queue in all of them. An undivided queue has one partition, with its name.

// layoutAge is how long the partitions of a queue are known.
const layoutAge = time.Second

// layout returns the partitions of a queue.
func (in *Inspector) layout(ctx context.Context, queue string) (partition.Layout, error) {
	in.mu.Lock()
	known := in.layouts[queue]
	if known == nil {
		if len(in.layouts) >= maxWatched {
			clear(in.layouts)
		}
		known = &refreshed.Value[partition.Layout]{Read: func(ctx context.Context) (partition.Layout, error) {
			return store.ReadLayout(ctx, in.redis, queue)
		}}
		in.layouts[queue] = known
	}
	in.mu.Unlock()
	return known.Get(ctx, layoutAge, false)
}

// home returns the partition of a tenant.
func (in *Inspector) home(ctx context.Context, queue, tenant string) (string, error) {
	l, err := in.layout(ctx, queue)
	if err != nil {
		return "", err
	}
	home, _, err := store.HomeOf(ctx, in.redis, l, tenant)
	return home, err
}

// ofEach asks all partitions at once, and returns their answers in order.
func ofEach[T any](names []string, ask func(name string) (T, error)) ([]T, error) {
	answers, errs := fanout.Each(names, ask)
	return answers, cmp.Or(errs...)
}

// answering returns the layout of a queue and those of its partitions whose Redis answers. An undivided queue is
// not asked: its questions fail by themselves. The error is that of all, if none answers.
func (in *Inspector) answering(ctx context.Context, queue string) (l partition.Layout, names []string, err error) {
	if l, err = in.layout(ctx, queue); err != nil {
		return l, nil, err
	}
	all := l.Names()
	if l.Whole() {
		return l, all, nil
	}
	_, errs := fanout.Ask(ctx, store.AwayAfter, all, func(ctx context.Context, name string) (time.Time, error) {
		return store.Time(ctx, in.redis, store.Key(name, "waiting"))
	})
	if ctx.Err() != nil {
		return l, nil, ctx.Err()
	}
	for i, name := range all {
		if errs[i] == nil {
			names = append(names, name)
		}
	}
	if names == nil {
		return l, nil, errs[0]
	}
	return l, names, nil
}

// Moving is a change of a queue's partitions that is under way: the tenants that belong elsewhere move, and the
// jobs of each wait for a moment.
type Moving struct {
	Queue    string
	From, To int // how many partitions it had, and has
}

func (m *Moving) String() string {
	return fmt.Sprintf("tenants of queue %s are moving from %d to %d partitions: each waits for a moment", m.Queue, m.From, m.To)
}

// AwayError reports partitions of a queue whose Redis does not answer. The others are served.
type AwayError struct {
	Queue    string
	Away, Of int
}

// awayOf returns the error for a queue of which only some partitions answer.
func awayOf(l partition.Layout, answering []string) *AwayError {
	all := len(l.Names())
	return &AwayError{l.Queue, all - len(answering), all}
}

func (e *AwayError) Error() string {
	return fmt.Sprintf("%d of %d partitions of queue %s do not answer", e.Away, e.Of, e.Queue)
}

// ofAll asks all partitions of a queue.
func ofAll[T any](ctx context.Context, client redis.UniversalClient, queue string, ask func(name string) (T, error)) ([]T, error) {
	l, err := store.ReadLayout(ctx, client, queue)
	if err != nil {
		return nil, err
	}
	return ofEach(l.Names(), ask)
}
