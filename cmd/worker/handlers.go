package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/ai"
	"github.com/headgate/headgate/clients/breaker"
	"github.com/headgate/headgate/clients/email"
	"github.com/headgate/headgate/clients/payment"
	"github.com/headgate/headgate/clients/webhook"
	"github.com/headgate/headgate/queue"
)

// handlers registers what this worker can send, and returns the kinds and what
// closes their connections.
func handlers(worker *queue.Worker, c config) (kinds []string, stop func(), err error) {
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
	ready := func(kind string, end func()) { kinds, closers = append(kinds, kind), append(closers, end) }

	// A receiver that is down holds up the jobs for it alone, a provider all of its kind.
	hosts, err := c.breaker(breaker.HoldJob)
	if err != nil {
		return nil, nil, err
	}
	providers, err := c.breaker(breaker.HoldAccount)
	if err != nil {
		return nil, nil, err
	}

	// Receivers and providers can tell a repeated call by its idempotency key, but
	// not mail servers, nor Amazon SES.
	webhooks := webhook.New(webhook.Config{Timeout: c.WebhookTimeout, AllowPrivate: c.WebhookAllowPrivate})
	ready("webhook", webhooks.Close)
	host := func(_ clients.Call, r webhook.Request) string { return r.Host() }
	handle(worker, "webhook", breaker.Guard(hosts, host, webhooks.Send), queue.Timeout(2*c.WebhookTimeout), queue.RepeatUnknown())

	if c.emailProvider() != "" {
		mails, options, err := c.mails()
		if err != nil {
			return nil, nil, err
		}
		ready("email", mails.Close)
		handle(worker, "email", breaker.Guard(providers, always[email.Message]("email"), mails.Send), options...)
	}
	if c.AIProvider != "" {
		models, err := ai.New(ai.Config{
			Provider: c.AIProvider, BaseURL: c.AIBaseURL, APIKey: c.AIAPIKey, APIVersion: c.AIAPIVersion, Timeout: c.AITimeout,
		})
		if err != nil {
			return nil, nil, err
		}
		ready("ai", func() { models.Close() })
		handleResult(worker, "ai", breaker.GuardResult(providers, always[ai.Request]("ai"), models.Send), queue.Timeout(2*c.AITimeout), queue.RepeatUnknown())
	}
	if c.StripeKey != "" {
		payments, err := payment.New(payment.Config{Key: c.StripeKey, URL: c.StripeURL, Timeout: c.StripeTimeout})
		if err != nil {
			return nil, nil, err
		}
		ready("payment", func() { payments.Close() })
		handleResult(worker, "payment", breaker.GuardResult(providers, always[payment.Payload]("payment"), payments.Send), queue.Timeout(2*c.StripeTimeout), queue.RepeatUnknown())
	}
	return kinds, stop, nil
}

// breaker is nil where there is to be none.
func (c config) breaker(hold breaker.Hold) (*breaker.Breaker, error) {
	if c.BreakerFailures == 0 {
		return nil, nil
	}
	return breaker.New(breaker.Config{Failures: c.BreakerFailures, Pause: c.BreakerPause, Hold: hold})
}

// always is the key of a kind that has one provider.
func always[P any](key string) func(clients.Call, P) string {
	return func(clients.Call, P) string { return key }
}

// mailer is what the providers of email have in common.
type mailer interface {
	Send(context.Context, clients.Call, email.Message) error
	Close()
}

// mails makes the client of the provider, and says how its calls are to be run.
func (c config) mails() (mailer, []queue.HandlerOption, error) {
	switch c.emailProvider() {
	case sesProvider:
		mails, err := c.ses()
		return mails, []queue.HandlerOption{queue.Timeout(2 * c.SESTimeout)}, err
	case resendProvider:
		mails, err := email.NewResend(email.ResendConfig{APIKey: c.ResendAPIKey, URL: c.ResendURL, Timeout: c.ResendTimeout})
		return mails, []queue.HandlerOption{queue.Timeout(2 * c.ResendTimeout), queue.RepeatUnknown()}, err
	}
	mails, err := c.smtp()
	return mails, []queue.HandlerOption{queue.Timeout(2 * c.SMTPTimeout)}, err
}

func (c config) ses() (*email.SES, error) {
	return email.NewSES(email.SESConfig{
		Region: c.SESRegion, AccessKeyID: c.SESAccessKeyID, SecretAccessKey: c.SESSecretAccessKey, SessionToken: c.SESSessionToken,
		Endpoint: c.SESEndpoint, Timeout: c.SESTimeout,
	})
}

func (c config) smtp() (*email.Sender, error) {
	host, portText, err := net.SplitHostPort(c.SMTPAddr)
	if err != nil {
		return nil, fmt.Errorf("HEADGATE_SMTP_ADDR: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, fmt.Errorf("HEADGATE_SMTP_ADDR: port %q is not a number", portText)
	}
	return email.New(email.Config{
		Host: host, Port: port, Username: c.SMTPUsername, Password: c.SMTPPassword, TLS: c.SMTPTLS, Timeout: c.SMTPTimeout,
	})
}

// handle joins a client to the queue: the one thing that both need to know is
// which job a call is made for.
func handle[T any](worker *queue.Worker, kind string, send func(context.Context, clients.Call, T) error, options ...queue.HandlerOption) {
	queue.Handle(worker, kind, func(ctx context.Context, payload T) error { return send(ctx, callOf(ctx), payload) }, options...)
}

// handleResult does so for clients that answer something, which becomes the
// job's result. What a call really cost is settled also when it failed.
func handleResult[T, R any](worker *queue.Worker, kind string, send func(context.Context, clients.Call, T) (R, error), options ...queue.HandlerOption) {
	queue.HandleResult(worker, kind, func(ctx context.Context, payload T) (R, error) {
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

func callOf(ctx context.Context) clients.Call {
	job, _ := queue.Current(ctx)
	return clients.Call{
		Job: job.ID, Tenant: job.Tenant, Attempt: job.Attempt, IdempotencyKey: job.IdempotencyKey, First: job.First,
	}
}
