package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/validation"
)

// directRenew is how often the permits of a call that is not in a queue are renewed.
const directRenew = store.DirectLease / 3

// Permit is the permission for one call that its program makes itself. The first of
// [Permit.Cancel], [Permit.Settle] and [Permit.Release] ends it, and later ones do nothing. If the
// call's limits have a concurrency among them, its place is renewed until then, and for 30
// seconds after the process has died.
type Permit struct {
	client *Client
	id     string // of the call

	mu      sync.Mutex
	of      accepted // its tenant may move to another partition
	permits string   // in the partition

	slot  slot
	began time.Duration // of the call, by boottime
	marks string
	ended atomic.Bool
	stop  context.CancelFunc // stops the renewal of its permits; nil: it has none
}

// hold waits for the moment of the call. It returns false if it was missed, or ctx is done before.
func (p *Permit) hold(ctx context.Context, in *directIn) bool {
	if p.permits != "" {
		p.renew()
	}
	if wait.For(ctx, p.slot.earliest-boottime.Now()) != nil {
		return false
	}
	p.began = boottime.Now()
	return ctx.Err() == nil && in.clock.onTime(p.slot)
}

// renew keeps the call's places under concurrency limits until it has ended.
func (p *Permit) renew() {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go every(ctx, directRenew, func() {
		_, _ = p.end(ctx, "renew", fmt.Sprint(store.DirectLease.Microseconds())) // the next one will do
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
	of, permits := p.place()
	if permits == "" && actual == "" && (what == "end" || p.slot.latest == 0) {
		return nil
	}
	ctx = context.WithoutCancel(ctx) // a call whose context has ended is over, too
	woken, err := p.end(ctx, what, actual)
	if err != nil {
		return fmt.Errorf("the permit of a call of queue %q is not settled: %w", of.queue(), err)
	}
	if woken > 0 {
		of, _ = p.place()
		store.Announce(ctx, p.client.redis, of.home)
	}
	return nil
}

// end sends direct_end.lua to the partition of the tenant. There it does its work once: what it gives back must not
// be given back twice.
func (p *Permit) end(ctx context.Context, what, actual string) (woken int64, err error) {
	seeking := &retry{}
	for try := 0; ; try++ {
		of, permits := p.place()
		woken, err := p.endIn(ctx, of, permits, what, actual)
		if err != nil || woken >= 0 {
			return woken, err
		}
		if !seeking.seek(ctx, try) {
			return 0, fmt.Errorf("tenant %s moves to another partition", check.Quote(store.Unescape(of.tenant)))
		}
		if err := p.follow(ctx, try); err != nil {
			return 0, err
		}
	}
}

func (p *Permit) endIn(ctx context.Context, of accepted, permits, what, actual string) (woken int64, err error) {
	send := func(calendars string) error {
		ctx, cancel := context.WithTimeout(ctx, store.Timeout)
		defer cancel()
		reply, err := store.DirectEndScript.RunUntilDone(ctx, p.client.redis, store.ScriptKeys(of.home), of.home, calendars,
			p.id, of.tenant, of.attributesOfLane(), of.cost, of.costs, permits, p.marks, p.slot.latestMicros, what, actual, of.layout)
		woken, _ = reply.(int64)
		return err
	}
	if what == "renew" || what == "end" && actual == "" { // of limits it needs nothing but the places
		err = send("")
	} else {
		err = p.client.direct.in(p.client.redis, of.home).calendars.Run(ctx, send)
	}
	return woken, err
}

// place returns the partition of the call, and its permits there.
func (p *Permit) place() (of accepted, permits string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of, p.permits
}

// follow looks up the partition of the call again. Of a tenant that moves it finds its two partitions in turn, by
// the number of tries.
func (p *Permit) follow(ctx context.Context, try int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	of, tenant, routes := p.of, store.Unescape(p.of.tenant), p.client.routes
	routes.forget(of.home)
	home, err := routes.homeIn(ctx, of.queue(), tenant, try)
	if err != nil {
		return err
	}
	of.home = home
	if err := routes.locate(ctx, Job{Kind: of.kind, Tenant: tenant}, &of); errors.Is(err, errNoPartition) {
		return nil // the next try finds it
	} else if err != nil {
		return err
	}
	p.permits = strings.ReplaceAll(p.permits, store.Key(p.of.home, ""), store.Key(home, ""))
	p.of = of
	return nil
}
