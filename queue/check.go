package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
)

// check refuses a Redis that would lose jobs, with the reason and the remedy.
// What is only a risk is logged the first time.
func (w *Worker) check(ctx context.Context, first bool) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	if err := w.redis.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("queue: redis at %s: %w", strings.Join(w.config.Redis.Addrs, ","), err)
	}
	info, err := w.redis.Info(ctx).Result()
	if err != nil {
		return fmt.Errorf("queue: redis at %s: %w", strings.Join(w.config.Redis.Addrs, ","), err)
	}
	facts := parseInfo(info)
	if version := facts["redis_version"]; version != "" {
		major, _, _ := strings.Cut(version, ".")
		if n, err := strconv.Atoi(major); err == nil && n < 7 {
			return fmt.Errorf("queue: redis %s is too old: 7.0 or later is needed", version)
		}
	}
	if role := facts["role"]; role == "slave" {
		return errors.New("queue: this redis is a replica: connect to its master")
	}
	policy, err := evictionPolicy(ctx, w.redis)
	if err == nil {
		err = refuseEviction(policy)
	}
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	if policy == "" && first {
		w.logger.Warn("cannot see whether this redis evicts keys; it must have maxmemory-policy noeviction")
	}
	if facts["aof_enabled"] == "0" && first {
		w.logger.Warn("this redis does not write an append-only file: jobs accepted since its last snapshot are lost with it; set appendonly yes")
	}
	return w.checkQueues(ctx)
}

// checkQueues has asynq's tools list the queues, and refuses one whose lanes a server of
// asynq's would swallow.
func (w *Worker) checkQueues(ctx context.Context) error {
	if err := asynqwire.RegisterQueues(ctx, w.redis, w.config.Queues...); err != nil {
		return err
	}
	pipe := w.redis.Pipeline()
	besides := make([]*redis.IntCmd, len(w.config.Queues))
	for i, queue := range w.config.Queues {
		besides[i] = asynqwire.AggregatorBeside(ctx, pipe, queue)
	}
	if err := store.Execute(ctx, pipe); err != nil {
		return fmt.Errorf("queue: look at the queues: %w", err)
	}
	for i, beside := range besides {
		if beside.Val() > 0 {
			return fmt.Errorf("queue: another asynq server aggregates the groups of queue %q, which are our lanes: give it a queue of its own", w.config.Queues[i])
		}
	}
	return nil
}

const checkEvery = 10 * time.Second

// checkOn repeats the check while the worker runs; readiness says what it found.
func (w *Worker) checkOn(ctx context.Context) {
	every(ctx, checkEvery, func() {
		err := w.check(ctx, false)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.logger.Error("redis is not fit", logkey.Error, err)
		}
		w.setReady(err)
	})
}

func parseInfo(info string) map[string]string {
	facts := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	return facts
}
