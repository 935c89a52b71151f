// Package fanout asks several at once, and does not wait for those that are slow.
package fanout

import (
	"context"
	"time"
)

// Ask asks all at once, and returns their answers and errors in order. The error of one that has not
// answered after patience is [context.DeadlineExceeded], and that of ctx if ctx ends before; its answer
// is dropped when it comes.
func Ask[T any](ctx context.Context, patience time.Duration, names []string, ask func(ctx context.Context, name string) (T, error)) ([]T, []error) {
	type answer struct {
		i    int
		said T
		err  error
	}
	answers, late := make(chan answer, len(names)), time.NewTimer(patience)
	defer late.Stop()
	for i, name := range names {
		go func() {
			said, err := ask(ctx, name)
			answers <- answer{i, said, err}
		}()
	}
	all, errs := make([]T, len(names)), make([]error, len(names))
	for i := range errs {
		errs[i] = context.DeadlineExceeded
	}
	for range names {
		select {
		case a := <-answers:
			all[a.i], errs[a.i] = a.said, a.err
		case <-late.C:
			return all, errs
		case <-ctx.Done():
			for i, err := range errs {
				if err == context.DeadlineExceeded {
					errs[i] = ctx.Err()
				}
			}
			return all, errs
		}
	}
	return all, errs
}
