package inspect

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// Level is a rate limit with what it admits now.
type Level struct {
	limits.Effective

	Adaptive  bool
	Adapted   float64 // the part of its rate to which an adaptive limit is lowered; 1: it is not
	PerSecond float64 // permits per second now: lowered, or as far as a limit with a ramp has grown

	// Left are the permits in its bucket now, and Capacity those in a full one. Capacity is 0 if they are not known,
	// because partitions or queues share the limit.
	Left, Capacity float64

	Next time.Time // when it admits its next permit
}

// Levels returns the rate limits of a whole queue or, of a tenant, those that are per tenant alone, in the order of the
// limits file. It reads them from Redis at each call, as the calls of jobs do. Errors: [validation.Error].
func (in *Inspector) Levels(ctx context.Context, queue, tenant string) ([]Level, error) {
	all, err := LimitsInForce(ctx, in.redis, queue, tenant)
	if err != nil {
		return nil, err
	}
	now, err := in.levelsNow(ctx, queue, tenant)
	if err != nil {
		return nil, fmt.Errorf("levels of tenant %s in queue %q: %w", check.Quote(tenant), queue, err)
	}
	levels := []Level{}
	for _, limit := range all {
		if level, ok := now[limit.Name]; ok {
			level.Effective = limit
			levels = append(levels, level)
		}
	}
	return levels, nil
}

// levelsNow returns what limits admit now, by name.
func (in *Inspector) levelsNow(ctx context.Context, queue, tenant string) (map[string]Level, error) {
	home, err := in.home(ctx, queue, tenant)
	if err != nil {
		return nil, err
	}
	var reply any
	windows := &effective.Calendars{Queue: home, Redis: in.redis}
	err = windows.Run(ctx, func(calendars string) error {
		return store.Patient(ctx, func() (err error) {
			reply, err = store.LevelsScript.Run(ctx, in.redis, store.ScriptKeys(home), home, calendars, rediskey.Escape(tenant))
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	read := store.Read(reply)
	read.Int()
	levels := map[string]Level{}
	list := read.List()
	for list.More() {
		one := list.List()
		name := one.Text()
		l := Level{Adaptive: one.Flag(), Adapted: one.Float(), PerSecond: one.Float(), Left: one.Float(), Capacity: max(float64(one.Int()), 0)}
		l.Left, l.Next = max(l.Left, 0), time.UnixMicro(one.Int())
		levels[name] = l
	}
	return levels, cmp.Or(read.End(), list.End())
}
