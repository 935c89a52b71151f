package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/email"
	"github.com/headgate/headgate/clients/webhook"
	"github.com/headgate/headgate/queue"
)

// handlers registers what this worker can send, a line a kind, and returns the
// kinds and what closes their connections.
func handlers(worker *queue.Worker, c config) (kinds []string, stop func(), err error) {
	webhooks := webhook.New(webhook.Config{Timeout: c.WebhookTimeout, AllowPrivate: c.WebhookAllowPrivate})
	stop = webhooks.Close
	// A receiver can tell a repeated webhook by its idempotency key.
	handle(worker, "webhook", webhooks.Send, queue.Timeout(2*c.WebhookTimeout), queue.RepeatUnknown())
	kinds = append(kinds, "webhook")

	if c.SMTPAddr != "" {
		host, portText, err := net.SplitHostPort(c.SMTPAddr)
		if err != nil {
			return nil, nil, fmt.Errorf("HEADGATE_SMTP_ADDR: %w", err)
		}
		port, err := strconv.Atoi(portText)
		if err != nil {
			return nil, nil, fmt.Errorf("HEADGATE_SMTP_ADDR: port %q is not a number", portText)
		}
		mails, err := email.New(email.Config{
			Host: host, Port: port, Username: c.SMTPUsername, Password: c.SMTPPassword, TLS: c.SMTPTLS, Timeout: c.SMTPTimeout,
		})
		if err != nil {
			return nil, nil, err
		}
		handle(worker, "email", mails.Send, queue.Timeout(2*c.SMTPTimeout))
		kinds = append(kinds, "email")
		stop = func() { webhooks.Close(); mails.Close() }
	}
	return kinds, stop, nil
}

// handle joins a client to the queue: the one thing that both need to know is
// which job a call is made for.
func handle[T any](worker *queue.Worker, kind string, send func(context.Context, clients.Call, T) error, options ...queue.HandlerOption) {
	queue.Handle(worker, kind, func(ctx context.Context, payload T) error {
		job, _ := queue.Current(ctx)
		return send(ctx, clients.Call{
			Job: job.ID, Tenant: job.Tenant, Attempt: job.Attempt, IdempotencyKey: job.IdempotencyKey,
		}, payload)
	}, options...)
}
