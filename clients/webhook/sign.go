package webhook

import (
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

// Bounds of Standard Webhooks for the bytes of a secret, and ours for how many
// sign one call: more than a rotation needs, and few enough for a header.
const (
	minSecret  = 24
	maxSecret  = 64
	maxSecrets = 8
)

const secretPrefix = "whsec_"

// CheckSecret tells what is wrong with a signing secret, or nil: it is "whsec_"
// (which may be left out) and the base64 of 24 to 64 bytes. The text does not
// repeat it.
func CheckSecret(secret string) error {
	_, err := newSigner(secret)
	return err
}

func newSigner(secret string) (*standardwebhooks.Webhook, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	switch {
	case strings.HasPrefix(secret, "whsk_"), strings.HasPrefix(secret, "whpk_"):
		return nil, errors.New("it is a key for asymmetric signatures, which are not made")
	case err != nil:
		return nil, errors.New("it is not whsec_ and base64, with its padding")
	case len(key) < minSecret, len(key) > maxSecret:
		return nil, fmt.Errorf("its %d bytes are not within %d to %d", len(key), minSecret, maxSecret)
	}
	return standardwebhooks.NewWebhookRaw(key)
}

// sign adds the headers of Standard Webhooks, a signature for each secret of the
// tenant. Calls of a tenant without secrets stay as they are. A call that should
// be signed and cannot be is never sent.
func (s *Sender) sign(ctx context.Context, r *http.Request, call clients.Call, body []byte) error {
	if s.config.Secrets == nil {
		return nil
	}
	// What is wrong with secrets is for an operator to mend, so the job is kept
	// for as long as it has attempts.
	secrets, err := s.config.Secrets(ctx, call.Tenant)
	if err != nil {
		return clients.Retryable(clients.NotCalled(fmt.Errorf("signing secrets: %w", &printable{err, clients.Printable(err.Error(), maxReason)})))
	}
	if len(secrets) == 0 {
		return nil
	}
	if len(secrets) > maxSecrets {
		return clients.Retryable(clients.NotCalled(fmt.Errorf("signing secrets: %d are more than %d", len(secrets), maxSecrets)))
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
			return clients.Retryable(clients.NotCalled(fmt.Errorf("signing secrets: number %d does not sign", i+1)))
		}
	}
	r.Header.Set(standardwebhooks.HeaderWebhookID, id)
	r.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	r.Header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}

// messageID is the same for all attempts of a job. It has no dot, which divides
// what is signed: with one, a part of an id could pass for a timestamp.
func messageID(call clients.Call) string {
	id := call.IdempotencyKey
	if id == "" {
		id = call.Job
	}
	return strings.ReplaceAll(clients.EscapeHeader(id), ".", "%2E")
}
