package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// concurrency is how many jobs a worker process of each contender holds or runs at once.
const concurrency = 1000

// limitedError is the error of asynq's recipe for rate limits: the task is tried again
// after a while, and its attempt does not count.
type limitedError struct{ after time.Duration }

func (e *limitedError) Error() string { return fmt.Sprintf("limited for %v", e.after) }

// runAsynq runs servers of plain asynq, or of its recipe with redis_rate.
func runAsynq(ctx context.Context, t task, log *callLog, ready func()) error {
	client := redis.NewClient(&redis.Options{Addr: t.Redis})
	defer client.Close()
	config := asynq.Config{Concurrency: concurrency, Queues: map[string]int{}, LogLevel: asynq.FatalLevel}
	for _, name := range t.Queues {
		config.Queues[name] = 1
	}
	handler := func(ctx context.Context, task *asynq.Task) error {
		var p payload
		if err := json.Unmarshal(task.Payload(), &p); err != nil {
			return err
		}
		return log.handle(ctx, p)
	}
	if t.Contender == recipe {
		config.IsFailure = func(err error) bool {
			_, limited := errors.AsType[*limitedError](err)
			return !limited
		}
		config.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
			if limited, ok := errors.AsType[*limitedError](err); ok {
				return limited.after
			}
			return asynq.DefaultRetryDelayFunc(n, err, task)
		}
		handler = limited(redis_rate.NewLimiter(client), t.Limits, handler)
	}
	var running sync.WaitGroup
	defer running.Wait()
	for range max(1, t.Workers) {
		server := asynq.NewServerFromRedisClient(client, config)
		if err := server.Start(asynq.HandlerFunc(handler)); err != nil {
			return err
		}
		running.Go(func() {
			<-ctx.Done()
			server.Shutdown()
		})
	}
	ready()
	<-ctx.Done()
	return nil
}

// limited asks redis_rate for every limit before a call.
func limited(limiter *redis_rate.Limiter, limits []limit, next func(context.Context, *asynq.Task) error) func(context.Context, *asynq.Task) error {
	return func(ctx context.Context, task *asynq.Task) error {
		var p payload
		if err := json.Unmarshal(task.Payload(), &p); err != nil {
			return err
		}
		for _, l := range limits {
			key, rule := l.rule(p.Tenant)
			result, err := limiter.Allow(ctx, key, rule)
			if err != nil {
				return err
			}
			if result.Allowed == 0 {
				return &limitedError{result.RetryAfter}
			}
		}
		return next(ctx, task)
	}
}
