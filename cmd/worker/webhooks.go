package main

import (
	"cmp"

	"github.com/headgate/headgate/clients/webhook"
	"github.com/headgate/headgate/internal/credentials"
)

// webhooks says how webhooks are called.
func (c config) webhooks(store *credentials.Store) webhook.Config {
	return webhook.Config{
		Timeout: c.WebhookTimeout, AllowPrivate: c.WebhookAllowPrivate, Secrets: signing(store), MaxRetryAfter: c.WebhookMaxRetryAfter,
		RetryNotFound: cmp.Or(c.WebhookRetryNotFound, -1), // to the client 0 means its default
	}
}
