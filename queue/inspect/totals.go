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

// ReadTotals returns the counts of queues, in their order, in two round trips. For a queue
// that does not exist all are 0.
func ReadTotals(ctx context.Context, client redis.UniversalClient, queues ...string) ([]Totals, error) {
	layouts, err := store.ReadLayouts(ctx, client, queues...)
	var homes []string
	for _, l := range layouts {
		homes = append(homes, l.Names()...)
	}
	var each []Totals
	if err == nil {
		each, err = totalsIn(ctx, client, homes)
	}
	if err != nil {
		return nil, fmt.Errorf("read the totals of queues: %w", err)
	}
	all := make([]Totals, len(queues))
	for i, l := range layouts {
		all[i] = mergeTotals(each[:l.N])
		all[i].Queue, each = queues[i], each[l.N:]
	}
	return all, nil
}

func totalsIn(ctx context.Context, client redis.UniversalClient, queues []string) ([]Totals, error) {
	pipe := client.Pipeline()
	at := make([]store.Clock, len(queues))
	counts, waiting := make([]*redis.MapStringStringCmd, len(queues)), make([]*redis.StringCmd, len(queues))
	for i, queue := range queues {
		at[i] = store.AddTime(ctx, pipe, client, store.Key(queue, "totals"))
		counts[i] = pipe.HGetAll(ctx, store.Key(queue, "totals"))
		waiting[i] = pipe.HGet(ctx, store.TenantsKey(queue), store.WholeQueue)
	}
	if err := store.Execute(ctx, pipe); err != nil {
		return nil, err
	}
	all := make([]Totals, len(queues))
	for i := range queues {
		t := &all[i]
		t.At = at[i].Val()
		t.Enqueued, _ = strconv.ParseInt(counts[i].Val()["enqueued"], 10, 64)
		t.Waiting = store.ReadCounts(waiting[i].Val()).Waiting
		t.Answers, t.Calls = store.ReadAnswers(counts[i].Val())
	}
	return all, nil
}
