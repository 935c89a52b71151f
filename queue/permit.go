package queue

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/validation"
)

const (
	// directLease is how long the permits of a call that is not in a queue outlive a process that does
	// not renew them any more.
	directLease = 30 * time.Second
	directRenew = directLease / 3
)

// Permit is the permission for one call that its program makes itself. The first of
// [Permit.Cancel], [Permit.Settle] and [Permit.Release] ends it, and later ones do nothing. If the
// call's limits have a concurrency among them, its place is renewed until then, and for 30
// seconds after the process has died.
type Permit struct {
	client *Client
	of     accepted
	id     string // of the call

	slot           slot
	began          time.Duration // of the call, by boottime
	permits, marks string
	ended          atomic.Bool
	stop           context.CancelFunc // stops the renewal of its permits; nil: it has none
}

// hold waits for the moment of the call. It returns false if it was missed, or ctx is done before.
func (p *Permit) hold(ctx context.Context, in *directIn) bool {
	if p.permits != "" {
		p.renew()
	}
	wait := p.slot.earliest - boottime.Now()
	if wait > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
	p.began = boottime.Now()
	return ctx.Err() == nil && in.clock.onTime(p.slot)
}

// renew keeps the call's places under concurrency limits until it has ended.
func (p *Permit) renew() {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go every(ctx, directRenew, func() {
		_, _ = p.end(ctx, "renew", fmt.Sprint(directLease.Microseconds())) // the next one will do
	})
}

// Cancel says that the call was not made, and gives back what it took, as far as no later call depends on it.
func (p *Permit) Cancel(ctx context.Context) error { return p.finish(ctx, "cancel", "") }

// Release says that the call was made and used what it took.
func (p *Permit) Release(ctx context.Context) error { return p.finish(ctx, "end", "") }

// Settle says that the call was made, and what it used of limits with a unit, by unit, as [SetActual] does for a
// job. The difference is given back or charged.
func (p *Permit) Settle(ctx context.Context, actual map[string]int64) error {
	text, reason := store.EncodeCosts(actual)
	if reason != "" {
		return validation.Field("costs", reason)
	}
	return p.finish(ctx, "end", text)
}

// SetQuota passes on what the answer to the call says of the provider's limits, as the function [SetQuota] does in a
// handler. It asks Redis at once. If a quota is invalid, it returns an error and sets nothing; after an error of Redis
// it is not known.
func (p *Permit) SetQuota(ctx context.Context, quotas ...Quota) error {
	all, err := latestQuotas(nil, quotas)
	if err != nil || len(all) == 0 {
		return err
	}
	var text strings.Builder
	encodeQuotas(&text, all, boottime.Now()-p.began)
	if _, err := p.end(ctx, "hear", text.String()); err != nil {
		return fmt.Errorf("queue: SetQuota: %w", err)
	}
	return nil
}

// finish ends the permit once. Without anything to tell Redis it asks nothing.
func (p *Permit) finish(ctx context.Context, what, actual string) error {
	if !p.ended.CompareAndSwap(false, true) {
		return nil
	}
	if p.stop != nil {
		p.stop()
	}
	if p.permits == "" && actual == "" && (what == "end" || p.slot.latest == 0) {
		return nil
	}
	ctx = context.WithoutCancel(ctx) // a call whose context has ended is over, too
	woken, err := p.end(ctx, what, actual)
	if err != nil {
		return fmt.Errorf("the permit of a call of queue %q is not settled: %w", p.of.queue(), err)
	}
	if woken > 0 {
		store.Announce(ctx, p.client.redis, p.of.home)
	}
	return nil
}

// end sends direct_end.lua once: what it gives back must not be given back twice.
func (p *Permit) end(ctx context.Context, what, actual string) (woken int64, err error) {
	err = p.client.direct.in(p.client.redis, p.of.home).calendars.Run(ctx, func(calendars string) error {
		ctx, cancel := context.WithTimeout(ctx, store.Timeout)
		defer cancel()
		reply, err := store.DirectEndScript.RunUntilDone(ctx, p.client.redis, store.ScriptKeys(p.of.home), p.of.home, calendars,
			p.id, p.of.tenant, p.of.attributesOfLane(), p.of.cost, p.of.costs, p.permits, p.marks, p.slot.latestMicros, what, actual)
		woken, _ = reply.(int64)
		return err
	})
	return woken, err
}
