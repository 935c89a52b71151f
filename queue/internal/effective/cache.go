package effective

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/refreshed"
	"github.com/headgate/headgate/queue/internal/store"
)

// Calendars computes the calendars of a queue's limits for the scripts, and caches them.
type Calendars struct {
	Queue string
	Redis redis.UniversalClient
	Seen  func(queue string, kinds []string) // called with the kinds of the queue; may be nil

	once    sync.Once // sets what latest needs
	latest  refreshed.Value[calendars]
	changed atomic.Pointer[time.Time] // since when what was read before is of no use; nil: never

	counted atomic.Pointer[[]string] // see Counts
	adapts  atomic.Bool
	grows   atomic.Bool
}

type calendars struct {
	text   string
	leased bool // a limit of the queue is
}

const maxAge = 5 * time.Second

// Text returns the calendars in the form that scripts take, read at most 5 s ago. Concurrent callers share a read, and
// each waits until its context is done, but no longer than [store.Timeout].
func (c *Calendars) Text(ctx context.Context) (string, error) {
	latest, err := c.get(ctx)
	return latest.text, err
}

func (c *Calendars) get(ctx context.Context) (calendars, error) {
	c.once.Do(func() { c.latest.Read = c.read })
	age := maxAge
	if changed := c.changed.Load(); changed != nil {
		age = max(min(age, time.Since(*changed)), 1) // 1 ns: a read that begins now is new enough by any clock
	}
	ctx, cancel := context.WithTimeout(ctx, store.Timeout) // which the read may exceed by another timeout of the client
	defer cancel()
	return c.latest.Get(ctx, age, true)
}

func (c *Calendars) read(ctx context.Context) (calendars, error) {
	stored, err := ReadQueue(ctx, c.Redis, c.Queue)
	if err != nil && !errors.Is(err, errUnreadable) {
		return calendars{}, err
	}
	redisNow, err := store.Time(ctx, c.Redis, store.Key(c.Queue, "limits")) // this machine's clock may be wrong by days
	if err != nil {
		return calendars{}, err
	}
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
	text, err := stored.Calendars(redisNow)
	if err != nil {
		text = "" // the scripts read the same limits, and report the damage
	}
	return calendars{text, slices.ContainsFunc(stored.Limits, func(l Limit) bool { return l.Spec.Leased })}, nil
}

// Leased reports whether the queue has a limit of which it gets leases, as of at most 5 s ago.
func (c *Calendars) Leased(ctx context.Context) bool {
	latest, _ := c.get(ctx) // else it is as it was
	return latest.leased
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
		now := time.Now()
		c.changed.Store(&now)
		if try == tries {
			return err
		}
	}
}

// Stale reports whether a script was not passed a calendar that it needs, because the limits
// have changed.
func Stale(err error) bool { return redis.HasErrorPrefix(err, "STALE ") }
