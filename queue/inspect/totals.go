package inspect

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// Totals is the counts of a queue. Their differences over time are rates.
type Totals struct {
	Queue    string
	At       time.Time                  // when they were read, by the clock of Redis
	Enqueued int64                      // jobs ever accepted
	Waiting  int64                      // jobs in lanes now
	Answers  map[lifecycle.Answer]int64 // calls ever made, by their answer
	Calls    int64                      // the sum of Answers
}

// Totals returns the counts of a queue; all are 0 if it does not exist. While its node of a Redis
// Cluster does not answer, they are those of before, and so are those of a partition.
func (in *Inspector) Totals(ctx context.Context, queue string) (Totals, error) {
	l, err := in.layout(ctx, queue)
	var all []Totals
	if err == nil {
		all, err = ofEach(l.Names(), func(name string) (Totals, error) { return in.watch(name).totals.Get(ctx, 0, false) })
	}
	if err != nil {
		return Totals{}, fmt.Errorf("read the totals of queue %q: %w", queue, err)
	}
	t := mergeTotals(all)
	t.Queue = queue
	return t, nil
}

// totalsIn returns the counts of a partition.
func totalsIn(ctx context.Context, client redis.UniversalClient, queue string) (t Totals, err error) {
	pipe := client.Pipeline()
	at := store.AddTime(ctx, pipe, client, store.Key(queue, "totals"))
	counts := pipe.HGetAll(ctx, store.Key(queue, "totals"))
	waiting := pipe.HGet(ctx, store.TenantsKey(queue), store.WholeQueue)
	if err := store.Execute(ctx, pipe); err != nil {
		return t, err
	}
	t.At = at.Val()
	t.Enqueued, _ = strconv.ParseInt(counts.Val()["enqueued"], 10, 64)
	t.Waiting = store.ReadCounts(waiting.Val()).Waiting
	t.Answers, t.Calls = store.ReadAnswers(counts.Val())
	return t, nil
}
