package worker

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// part blocks until ctx is done and its work is finished.
type part func(ctx context.Context) error

// runParts runs a worker and the parts beside it until ctx is done. The first one that fails, or ends before, stops
// all of them, and its error is returned. The worker ends first: the other parts continue while it finishes its calls.
func runParts(ctx context.Context, worker part, others ...part) error {
	group, serving := errgroup.WithContext(ctx)
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	for _, other := range others {
		group.Go(func() error {
			if err := other(background); err != nil || background.Err() != nil {
				return err
			}
			return errors.New("a function passed to Program.Go returned before its context was done")
		})
	}
	group.Go(func() error {
		defer stop()
		return worker(serving)
	})
	return group.Wait()
}
