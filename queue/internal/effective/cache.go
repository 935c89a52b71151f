package effective

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
)

// Calendars computes the calendars of a queue's limits for the scripts, and caches them.
type Calendars struct {
	Queue string
	Redis redis.UniversalClient
	Seen  func(queue string, kinds []string) // called with the kinds of the queue; may be nil

	mu     sync.Mutex
	text   string
	leased bool
	until  time.Time

	counted atomic.Pointer[[]string] // see Counts
	adapts  atomic.Bool
	grows   atomic.Bool
}

// Text returns the calendars in the form that scripts take, read at most 5 s ago.
func (c *Calendars) Text(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Before(c.until) {
		return c.text, nil
	}
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	stored, err := ReadQueue(ctx, c.Redis, c.Queue)
	if err != nil && !errors.Is(err, errUnreadable) {
		return "", err
	}
	redisNow, err := store.Time(ctx, c.Redis, store.Key(c.Queue, "limits")) // this machine's clock may be wrong by days
	if err != nil {
		return "", err
	}
	c.leased = slices.ContainsFunc(stored.Limits, func(l Limit) bool { return l.Spec.Leased })
	c.adapts.Store(slices.ContainsFunc(stored.Limits, func(l Limit) bool { return l.Adaptive }))
	c.grows.Store(slices.ContainsFunc(stored.Limits, func(l Limit) bool { return l.Ramp != nil }))
	var counted *[]string
	if stored.Conformance {
		counted = &stored.Attributes
	}
	c.counted.Store(counted) // at once: a call that ends meanwhile is counted, too
	if c.Seen != nil {
		c.Seen(c.Queue, stored.Kinds)
	}
	if c.text, err = stored.Calendars(redisNow); err != nil {
		c.text = "" // the scripts read the same limits, and report the damage
	}
	c.until = now.Add(5 * time.Second)
	return c.text, nil
}

// Leased reports whether the queue has a limit of which it gets leases, as of at most 5 s ago.
func (c *Calendars) Leased(ctx context.Context) bool {
	_, _ = c.Text(ctx) // else it is as it was
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leased
}

// Counts reports whether the calls of the queue are counted for conformance, and by which attributes its lanes
// differ, as of the latest [Calendars.Text]. It never waits.
func (c *Calendars) Counts() (counts bool, attributes []string) {
	if counted := c.counted.Load(); counted != nil {
		return true, *counted
	}
	return false, nil
}

// Adapts reports whether a limit of the queue is adaptive, as of the latest [Calendars.Text]. It never waits.
func (c *Calendars) Adapts() bool { return c.adapts.Load() }

// Grows reports whether a limit of the queue has a ramp, as of the latest [Calendars.Text]. It never waits.
func (c *Calendars) Grows() bool { return c.grows.Load() }

// Run runs a script with the calendars. If the script reports that one is missing,
// because the limits have changed, Run reads them again and repeats the script, which has
// changed nothing.
func (c *Calendars) Run(ctx context.Context, script func(calendars string) error) error {
	const tries = 3 // limits may change while it runs
	for try := 1; ; try++ {
		text, err := c.Text(ctx)
		if err != nil {
			return err
		}
		if err = script(text); err == nil || !Stale(err) {
			return err
		}
		c.mu.Lock()
		c.until = time.Time{}
		c.mu.Unlock()
		if try == tries {
			return err
		}
	}
}

// Stale reports whether a script was not passed a calendar that it needs, because the limits
// have changed.
func Stale(err error) bool { return redis.HasErrorPrefix(err, "STALE ") }
