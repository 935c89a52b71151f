package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/webhook"
	"github.com/headgate/headgate/internal/endpoints"
	"github.com/headgate/headgate/queue"
)

// maxPostponed is for how long a job to an endpoint that is gone is postponed at once.
const maxPostponed = time.Hour

// unlessGone calls no endpoint that answered 410 to a job of the same tenant.
func unlessGone(store *endpoints.Store, send func(context.Context, clients.Call, webhook.Request) error) func(context.Context, clients.Call, webhook.Request) error {
	return func(ctx context.Context, call clients.Call, r webhook.Request) error {
		e, again := store.Held(ctx, call.Tenant, r.URL)
		if !again.IsZero() {
			if latest := time.Now().Add(maxPostponed); again.After(latest) {
				again = latest
			}
			return clients.PostponeUntil(again, clients.NotCalled(fmt.Errorf("%s answered 410 at %s and is left alone until %s; %s",
				clients.Printable(e.Host, 200), e.Since.Format(time.RFC3339), e.Until.Format(time.RFC3339), endpoints.Remedy(e.ID))))
		}
		err := send(ctx, call, r)
		if gone, ok := errors.AsType[*webhook.GoneError](err); ok {
			job, _ := queue.Current(ctx)
			store.Gone(ctx, job.Queue, call.Tenant, r.URL, gone.Host)
		} else if _, none := errors.AsType[*clients.NotCalledError](err); e != nil && !none && ctx.Err() == nil {
			store.Back(ctx, *e)
		}
		return err
	}
}
