// Package fanout asks several at once.
package fanout

import (
	"context"
	"sync"
	"time"
)

// Each asks all at once, and returns their answers and errors in order.
func Each[T any](names []string, ask func(name string) (T, error)) ([]T, []error) {
	answers, errs := make([]T, len(names)), make([]error, len(names))
	var asking sync.WaitGroup
	for i, name := range names {
		asking.Go(func() { answers[i], errs[i] = ask(name) })
	}
	asking.Wait()
	return answers, errs
}

// Ask asks all at once, and returns their answers and errors in order. Once one has answered, the others are
// waited for until patience is over: the error of one that is late is [context.DeadlineExceeded], and its answer
// is dropped when it comes. If ctx ends before, the error of those who have not answered is that of ctx.
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
	answered, over := false, false
	for n := 0; n < len(names) && !(answered && over); {
		select {
		case a := <-answers:
			n++
			all[a.i], errs[a.i] = a.said, a.err
			answered = answered || a.err == nil
		case <-late.C:
			over = true
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
