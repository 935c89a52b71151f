package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/ai"
	"github.com/headgate/headgate/clients/breaker"
	"github.com/headgate/headgate/clients/email"
	"github.com/headgate/headgate/clients/payment"
	"github.com/headgate/headgate/clients/webhook"
	"github.com/headgate/headgate/internal/credentials"
	"github.com/headgate/headgate/internal/endpoints"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/worker"
)

// handlers registers the handlers of all kinds that this worker can send. The function stop
// closes their connections.
func handlers(w *queue.Worker, c config, store *credentials.Store, gone *endpoints.Store, details *worker.Details) (stop func(), err error) {
	var closers []func()
	stop = func() {
		for _, end := range closers {
			end()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()

	// Receivers and providers can tell a repeated call by its idempotency key, but
	// not mail servers, nor Amazon SES.
	endpoints, err := c.breaker()
	if err != nil {
		return nil, err
	}
	details.AddProvider("webhook", endpoints)
	if c.WebhookAllowPrivate {
		details.AllowPrivate()
	}
	webhooks := webhook.New(c.webhooks(store))
	closers = append(closers, webhooks.Close)
	hook := func(ctx context.Context, call clients.Call, r webhook.Request) error {
		err := webhooks.Send(ctx, call, r)
		if private, ok := errors.AsType[*webhook.PrivateError](err); ok {
			return clients.EndpointThrottled(clients.KeyPause, clients.NotCalled(fmt.Errorf("%w; to call it, set HEADGATE_WEBHOOK_ALLOW_PRIVATE=true on the workers", private)))
		}
		// What fails for one tenant may work for another: hosts of workflow services are
		// shared by all their users.
		return endpoints.Note(ctx, call.Tenant+" "+r.Host(), clients.OfEndpoint, probing(ctx), err)
	}
	handle(w, "webhook", unlessGone(gone, hook), queue.Timeout(2*c.WebhookTimeout), queue.RepeatUnknown())

	if c.emailProvider() != "" {
		mails, err := newCaller("email", c, store, details, c.hasMails(), c.mailsFor)
		if err != nil {
			return nil, err
		}
		closers = append(closers, mails.Close)
		handle(w, "email", func(ctx context.Context, call clients.Call, m email.Message) error {
			return mails.do(ctx, call, func(call clients.Call, account mailer) error {
				err := account.Send(ctx, call, m)
				if refused(err) {
					_ = queue.SetRejected(ctx) // it fails only outside of a handler
				}
				return err
			})
		}, c.mailOptions()...)
	}
	if c.AIProvider != "" {
		models, err := newCaller("ai", c, store, details, c.hasAI(), c.aiFor)
		if err != nil {
			return nil, err
		}
		closers = append(closers, models.Close)
		handleResult(w, "ai", func(ctx context.Context, call clients.Call, r ai.Request) (result ai.Result, err error) {
			err = models.do(ctx, call, func(call clients.Call, account *ai.Client) (err error) {
				result, err = account.Send(ctx, call, r)
				return err
			})
			if result.Backoff >= minBackoff {
				// It fails only outside of a handler.
				pause := queue.PauseTenant
				if models.shared(call.Tenant) {
					pause = queue.PauseAccount
				}
				_ = pause(ctx, result.Backoff, "the latest answer says that the account is used up")
			}
			return result, err
		}, queue.Timeout(2*c.AITimeout), queue.RepeatUnknown())
	}
	if c.StripeKey != "" || store.Has("payment") {
		payments, err := newCaller("payment", c, store, details, c.StripeKey != "", c.paymentFor)
		if err != nil {
			return nil, err
		}
		closers = append(closers, payments.Close)
		handleResult(w, "payment", func(ctx context.Context, call clients.Call, p payment.Payload) (result payment.Result, err error) {
			err = payments.do(ctx, call, func(call clients.Call, account *payment.Sender) (err error) {
				result, err = account.Send(ctx, call, p)
				return err
			})
			return result, err
		}, queue.Timeout(2*c.StripeTimeout), queue.RepeatUnknown())
	}
	return stop, nil
}

// passOnOf returns what passes on the limits that the answers to one account say: to a tenant's own account, or to the
// worker's if s is nil.
func passOnOf(s *credentials.Secrets) func(context.Context, clients.Quota) {
	of := queue.QuotaOfAccount
	if s != nil {
		of = queue.QuotaOfTenant
	}
	return func(ctx context.Context, q clients.Quota) { passOn(ctx, q, of) }
}

// passOn passes on what an answer said of a limit: of requests, or of a unit such as input_tokens.
func passOn(ctx context.Context, q clients.Quota, of queue.QuotaScope) {
	// The call was made: no number of a provider is worth a second one.
	_ = queue.SetQuota(ctx, queue.Quota{Unit: q.Unit(), Limit: q.Limit, Window: q.Window, Remaining: q.Remaining, Of: of})
}

// refused reports whether a provider refused a mail for good, because of its address or its content.
func refused(err error) bool {
	_, permanent := errors.AsType[*clients.PermanentError](err)
	_, uncalled := errors.AsType[*clients.NotCalledError](err)
	_, unknown := errors.AsType[*clients.UnknownError](err)
	return permanent && !uncalled && !unknown
}

// minBackoff is less than what limits and a 429 see to by themselves.
const minBackoff = time.Second

// newCaller makes the caller of a kind. Where the worker has an account, a mistake
// in it ends the start.
func newCaller[C interface{ Close() }](kind string, c config, store *credentials.Store, details *worker.Details, has bool, open func(*credentials.Secrets) (C, error)) (*caller[C], error) {
	failures, err := c.breaker()
	if err != nil {
		return nil, err
	}
	made := &caller[C]{kind: kind, store: store, own: newAccounts(open), failures: failures}
	details.AddProvider(kind, failures)
	details.AddQuotas(kind, made.quotas)
	if has {
		common, err := open(nil)
		if err != nil {
			return nil, err
		}
		made.common = &common
	}
	return made, nil
}

// breaker is nil where there is to be none.
func (c config) breaker() (*breaker.Breaker, error) {
	if c.BreakerFailures == 0 {
		return nil, nil
	}
	return breaker.New(breaker.Config{Failures: c.BreakerFailures, Pause: c.BreakerPause})
}

// handle joins a client to the queue: the one thing that both need to know is
// which job a call is made for.
func handle[T any](w *queue.Worker, kind string, send func(context.Context, clients.Call, T) error, options ...queue.HandlerOption) {
	queue.Handle(w, queue.Kind[T](kind), func(ctx context.Context, payload T) error { return send(ctx, callOf(ctx), payload) }, options...)
}

// handleResult does so for clients that answer something, which becomes the
// job's result. What a call really cost is settled also when it failed.
func handleResult[T, R any](w *queue.Worker, kind string, send func(context.Context, clients.Call, T) (R, error), options ...queue.HandlerOption) {
	queue.HandleResult(w, queue.ResultKind[T, R](kind), func(ctx context.Context, payload T) (R, error) {
		result, err := send(ctx, callOf(ctx), payload)
		if metered, ok := any(result).(interface{ Actual() map[string]int64 }); ok {
			if actual := metered.Actual(); actual != nil {
				if err := queue.SetActual(ctx, actual); err != nil {
					return result, err // the call was made: no number of a provider is worth a second one
				}
			}
		}
		return result, err
	}, options...)
}

// probing is whether a call tries a provider that is held back.
func probing(ctx context.Context) bool {
	job, _ := queue.Current(ctx)
	return job.Probe
}

func callOf(ctx context.Context) clients.Call {
	job, _ := queue.Current(ctx)
	return clients.Call{
		Job: job.ID, Tenant: job.Tenant, Attempt: job.Attempt, IdempotencyKey: job.IdempotencyKey, First: job.First, Unsure: job.Unsure,
	}
}
