package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue"
)

// enqueuer enqueues jobs of a contender, several in one call where it can.
type enqueuer func(ctx context.Context, queue string, jobs ...payload) error

func newEnqueuer(contender string, client redis.UniversalClient) enqueuer {
	if contender == headgate {
		return headgateEnqueuer(queue.NewClient(client))
	}
	return asynqEnqueuer(asynq.NewClientFromRedisClient(client))
}

func asynqEnqueuer(client *asynq.Client) enqueuer {
	return func(ctx context.Context, name string, jobs ...payload) error {
		for _, p := range jobs {
			text, err := json.Marshal(p)
			if err != nil {
				return err
			}
			if _, err := client.EnqueueContext(ctx, asynq.NewTask(kind, text), asynq.Queue(name)); err != nil {
				return err
			}
		}
		return nil
	}
}

func headgateEnqueuer(client *queue.Client) enqueuer {
	return func(ctx context.Context, name string, jobs ...payload) error {
		wanted := make([]queue.Job, len(jobs))
		for i, p := range jobs {
			wanted[i] = queue.Job{Kind: kind, Queue: name, Tenant: p.Tenant, Payload: p}
		}
		if len(wanted) == 1 {
			_, err := client.Enqueue(ctx, wanted[0])
			return err
		}
		for _, result := range client.EnqueueMany(ctx, wanted) {
			if result.Err != nil {
				return result.Err
			}
		}
		return nil
	}
}

// all enqueues jobs, spread over tenants, in batches by some callers.
func (enqueue enqueuer) all(ctx context.Context, name string, jobs, tenants, batch, callers int) error {
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for c := range callers {
		wg.Go(func() {
			for from := c * batch; from < jobs && errs[c] == nil; from += callers * batch {
				part := make([]payload, min(batch, jobs-from))
				for i := range part {
					part[i].Tenant = tenantName((from + i) % tenants)
				}
				errs[c] = enqueue(ctx, name, part...)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// fill enqueues jobs as fast as this contender can.
func (b *bench) fill(ctx context.Context, contender, name string, jobs, tenants int) error {
	return newEnqueuer(contender, b.admin).all(ctx, name, jobs, tenants, 1000, 8)
}

// enqueueAll is the task of a process that enqueues.
func enqueueAll(ctx context.Context, t task, log *callLog, ready func()) error {
	client := redis.NewClient(&redis.Options{Addr: t.Redis})
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil {
		return err
	}
	ready()
	log.First = time.Now()
	err := newEnqueuer(t.Contender, client).all(ctx, t.Queues[0], t.Jobs, 1, t.Batch, t.Callers)
	log.Last, log.Calls = time.Now(), t.Jobs
	return err
}
