package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// flights counts calls that are under way.
type flights struct {
	mu        sync.Mutex
	now, most int
	ended     map[string]int // by tenant
}

func (f *flights) call(ctx context.Context, _ json.RawMessage) error {
	f.mu.Lock()
	f.now++
	f.most = max(f.most, f.now)
	f.mu.Unlock()
	time.Sleep(40 * time.Millisecond) // the call
	job, _ := Current(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now--
	f.ended[job.Tenant]++
	return nil
}

// reset returns how many calls were made by tenant, and most at a time, and begins anew.
func (f *flights) reset() (ended map[string]int, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended, most = f.ended, f.most
	f.ended, f.most = map[string]int{}, f.now
	return ended, most
}

func (f *flights) total() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, calls := range f.ended {
		n += calls
	}
	return n
}

// TestSharedConcurrency: the partitions of a queue together make as many calls at once as a limit that they
// share allows, and never more: several each their part, and one alone all of them.
func TestSharedConcurrency(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const calls = 8
	server := redistest.Own(t)
	l := newLeased(t, server, limits.Limit{Name: "calls", Algorithm: throttle.Concurrency, Concurrency: calls})
	tenants := append(l.everywhere(1), l.of("q@2", 3)[1:]...)
	l.enqueue(100, tenants...)
	f := &flights{ended: map[string]int{}}
	for range 2 {
		worker := newWorker(t, Config{Redis: l.options, Queues: []string{"q"}, ShutdownTimeout: time.Second})
		Handle(worker, "call", f.call)
		runWorker(t, worker)
	}
	until(t, "the calls are divided", func() bool { return f.total() >= 100 })
	f.reset()
	until(t, "more of them are made", func() bool { return f.total() >= 240 })
	ended, most := f.reset()
	if most != calls {
		t.Errorf("%d calls at a time by all partitions; want %d", most, calls)
	}
	for _, tenant := range tenants {
		if n := ended[tenant]; n < 20 || n > 60 { // 40 are its part
			t.Errorf("tenant %s had %d of %d calls", tenant, n, 240)
		}
	}
	t.Log(fmt.Sprint(ended))
	until(t, "all are called", func() bool { return allEnded(t, l) })
	l.enqueue(80, l.of("q@3", 1)[0])
	f.reset()
	until(t, "those of one partition are called", func() bool { return allEnded(t, l) })
	if _, most := f.reset(); most != calls {
		t.Errorf("%d calls at a time by one partition; want %d", most, calls)
	}
}

// allEnded reports whether no job of a queue in partitions waits or is called.
func allEnded(t *testing.T, l *leased) bool {
	t.Helper()
	o, err := inspect.New(l.client).Overview(t.Context(), "q")
	if _, slow := errors.AsType[*inspect.AwayError](err); slow {
		return false // on a busy machine
	}
	if err != nil {
		t.Fatal(err)
	}
	return o.Waiting+o.Active == 0
}
