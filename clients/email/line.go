package email

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

const maxAnswer = 64 << 10

func newLine(maxIdle int) *shared.Line {
	return &shared.Line{Transport: shared.New(maxIdle, shared.Dialer()), MaxAnswer: maxAnswer}
}

// lost returns what a call without an answer means:
//
//	it was sent                                       unknown
//	the worker is shutting down                       ctx's error
//	no connection was requested                       retryable, not called
//	the worker lacks files or ports                   postponed for a second
//	no address, no connection, no TLS, or a broken
//	connection or a timeout before it was sent        unreachable
func lost(ctx, limited context.Context, provider string, sent, tried bool, err error, reason string) error {
	reason = clients.Printable(shared.Cause(limited, errors.New(reason)).Error(), maxReason)
	if !tried && !sent && ctx.Err() == nil {
		return clients.Retryable(clients.NotCalled(fmt.Errorf("%s: %s", provider, reason)))
	}
	return shared.Lost(ctx, provider, sent, err, reason)
}

// without removes secrets from a provider's text: some repeat what they were sent.
func without(text string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return text
}
