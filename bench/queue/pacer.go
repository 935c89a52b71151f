package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// tolerance is what the law allows: a pacer that made up for more of its own delay would
// break it.
const tolerance = 5 * time.Millisecond

// pace calls the receiver as exactly as this machine allows: each call by a timer,
// without a queue. It keeps the law, so a delay beyond the tolerance is lost.
func pace(ctx context.Context, t task, log *callLog, ready func()) error {
	rate := traffic{tenants: t.Tenants, limits: t.Limits}.rate()
	ready()
	errs := make(chan error, 1)
	var running sync.WaitGroup
	began := time.Now()
	for n := range t.Jobs {
		due := began.Add(time.Duration(n) * time.Second / time.Duration(rate))
		if err := pause(ctx, time.Until(due)); err != nil {
			break
		}
		if late := time.Since(due); late > tolerance {
			began = began.Add(late)
		}
		running.Go(func() {
			if err := log.handle(ctx, payload{Tenant: tenantName(n % t.Tenants)}); err != nil && ctx.Err() == nil {
				select {
				case errs <- err:
				default:
				}
			}
		})
	}
	running.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	<-ctx.Done()
	return nil
}

func tenantName(i int) string { return fmt.Sprintf("t%d", i) }
