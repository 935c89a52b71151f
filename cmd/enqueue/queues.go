package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/fanout"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/validation"
)

// selected are the queues that --queue means: one, or all.
func selected(ctx context.Context, client redis.UniversalClient, name string) ([]string, error) {
	names, err := inspect.Queues(ctx, client)
	if err != nil || name == "" {
		return names, err
	}
	if !slices.Contains(names, name) {
		return nil, &program.UsageError{Err: fmt.Errorf("--queue: there is no queue %.60q%s", name, check.Suggest(name, names))}
	}
	return []string{name}, nil
}

// withQueue connects, and calls f with the one queue that has to be named.
func (o *options) withQueue(ctx context.Context, name string, f func(redis.UniversalClient) error) error {
	if name == "" {
		return &program.UsageError{Err: errors.New("--queue: say which queue")}
	}
	client, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := selected(ctx, client, name); err != nil {
		return err
	}
	return wrong(f(client))
}

// readQueues connects, and reads all queues that --queue means at once. Those that cannot be read, because their node of
// a Cluster is away, do not hide what the others have: unread has their errors, and err is nil if there are others. Once
// one queue has answered, the others may take as long as patience.
func readQueues[T any](ctx context.Context, o *options, name string, patience time.Duration, read func(ctx context.Context, client redis.UniversalClient, name string) (T, error)) (all []T, unread []error, err error) {
	client, err := o.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer client.Close()
	names, err := selected(ctx, client, name)
	if err != nil {
		return nil, nil, err
	}
	answers, errs := fanout.Ask(ctx, patience, names, func(ctx context.Context, name string) (T, error) {
		return read(ctx, client, name)
	})
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	for i, err := range errs {
		switch {
		case err == nil:
			all = append(all, answers[i])
		case name == "" && errors.Is(err, validation.ErrNotFound):
			// It was deleted meanwhile.
		case err == context.DeadlineExceeded:
			unread = append(unread, fmt.Errorf("queue %q did not answer within %v", names[i], patience))
		default:
			unread = append(unread, err)
		}
	}
	if len(all) == 0 && unread != nil {
		err = wrong(errors.Join(unread...))
	}
	return all, unread, err
}

// readPatience is how long a queue may take that is read once: one of 100,000 tenants takes some seconds.
const readPatience = time.Minute

// partly says of what was shown that it is not all.
func partly(unread []error) error {
	if unread == nil {
		return nil
	}
	return partialError{errors.Join(unread...)}
}
