package queue

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// lines are the calls of this process that wait, by what limits them.
type lines struct {
	mu  sync.Mutex
	all map[string]*directLine
}

type directLine struct {
	*semaphore.Weighted // first in, first out
	waiting             int
}

// enter waits until the caller is the first one in a line, or ctx is done. The caller leaves it with the func that is
// returned. "" is no line.
func (l *lines) enter(ctx context.Context, name string) (leave func()) {
	if name == "" {
		return func() {}
	}
	l.mu.Lock()
	line := l.all[name]
	if line == nil {
		line = &directLine{Weighted: semaphore.NewWeighted(1)}
		if l.all == nil {
			l.all = map[string]*directLine{}
		}
		l.all[name] = line
	}
	line.waiting++
	l.mu.Unlock()
	first := line.Acquire(ctx, 1) == nil
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if first {
			line.Release(1)
		}
		if line.waiting--; line.waiting == 0 {
			delete(l.all, name)
		}
	}
}
