package webhook

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/headgate/headgate/clients"
)

// The min and max size of a secret according to Standard Webhooks, and the max number of secrets
// per call: more than a rotation needs, and few enough for a header.
const (
	minSecret  = 24
	maxSecret  = 64
	maxSecrets = 8
)

const secretPrefix = "whsec_"

// CheckSecret returns an error if a signing secret is invalid. A secret is "whsec_", which can be
// omitted, and the base64 of 24 to 64 bytes. The text of the error does not repeat the secret.
func CheckSecret(secret string) error {
	_, err := newSigner(secret)
	return err
}

func newSigner(secret string) (*standardwebhooks.Webhook, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	switch {
	case strings.HasPrefix(secret, "whsk_"), strings.HasPrefix(secret, "whpk_"):
		return nil, errors.New("it is a key for asymmetric signatures, which are not supported")
	case err != nil:
		return nil, errors.New("it is not whsec_ and base64 with padding")
	case len(key) < minSecret, len(key) > maxSecret:
		return nil, fmt.Errorf("its %d bytes are not in the range %d to %d", len(key), minSecret, maxSecret)
	}
	return standardwebhooks.NewWebhookRaw(key)
}

// sign adds the headers of Standard Webhooks, with a signature for each secret of the tenant.
// Calls of a tenant without secrets are not signed. A call is not sent if signing it fails.
func (s *Sender) sign(ctx context.Context, r *http.Request, call clients.Call, body []byte) error {
	if s.config.Secrets == nil {
		return nil
	}
	// An operator must fix invalid secrets, so errors are retryable.
	secrets, err := s.config.Secrets(ctx, call.Tenant)
	if err != nil {
		return clients.Retryable(clients.NotCalled(fmt.Errorf("signing secrets: %w", &printable{err, clients.Printable(err.Error(), maxReason)})))
	}
	if len(secrets) == 0 {
		return nil
	}
	if len(secrets) > maxSecrets {
		return clients.Retryable(clients.NotCalled(fmt.Errorf("signing secrets: %d; the maximum is %d", len(secrets), maxSecrets)))
	}
	id := messageID(call)
	if id == "" {
		return clients.Permanent(clients.NotCalled(errors.New("webhook-id: the call has neither an idempotency key nor a job")))
	}
	now := time.Now()
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		signer, err := newSigner(secret)
		if err != nil {
			return clients.Retryable(clients.NotCalled(fmt.Errorf("signing secrets: number %d: %w", i+1, err)))
		}
		if signatures[i], err = signer.Sign(id, now, body); err != nil {
			return clients.Retryable(clients.NotCalled(fmt.Errorf("signing secrets: number %d failed to sign", i+1)))
		}
	}
	r.Header.Set(standardwebhooks.HeaderWebhookID, id)
	r.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	r.Header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}

// messageID returns the same id for all attempts of a job. It has no dot, because dots separate
// the signed parts: a part of an id could otherwise be taken for a timestamp.
func messageID(call clients.Call) string {
	id := cmp.Or(call.IdempotencyKey, call.Job)
	return strings.ReplaceAll(clients.EscapeHeader(id), ".", "%2E")
}
