package main

import (
	"cmp"
	"context"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/webhook"
	"github.com/headgate/headgate/internal/credentials"
	"github.com/headgate/headgate/queue"
)

// webhooks says how webhooks are called.
func (c config) webhooks(store *credentials.Store) webhook.Config {
	return webhook.Config{
		Timeout: c.WebhookTimeout, AllowPrivate: c.WebhookAllowPrivate, Secrets: signing(store), MaxRetryAfter: c.WebhookMaxRetryAfter,
		RetryNotFound: cmp.Or(c.WebhookRetryNotFound, -1), // to the client 0 means its default
		Quota:         func(ctx context.Context, quota clients.Quota) { passOn(ctx, quota, queue.QuotaOfEndpoint) },
	}
}
