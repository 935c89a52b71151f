package payment

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// Config configures a [Sender].
type Config struct {
	// Key is the secret key of the account, sk_… or rk_…. It is required. A restricted key needs
	// permission to write PaymentIntents and, for refunds, Charges.
	Key string

	// URL is the address of Stripe's API. "" means Stripe's own. It must be https, except on this
	// machine, because the key is sent to it.
	URL string

	// Timeout limits a call, from dialling to the end of the answer. 0 means 80 s, as in Stripe's
	// own libraries, because banks can be slow.
	Timeout time.Duration

	// MaxIdle is the max number of idle connections; more can be open while in use. 0 means 64.
	MaxIdle int
}

// Sender makes calls for one account. It reuses connections.
type Sender struct {
	config Config
	stripe *stripe.Client
	line   *shared.Line
	now    func() time.Time
}

// Result is what a call did at Stripe.
type Result struct {
	ID       string `json:"id"`               // pi_… of a PaymentIntent, re_… of a refund
	Status   string `json:"status"`           // Stripe's status: succeeded, requires_capture, pending, …
	Charge   string `json:"charge,omitempty"` // ch_…; "": none so far
	Amount   int64  `json:"amount"`           // in the smallest unit
	Currency string `json:"currency"`

	// Replayed means that an earlier attempt, whose answer was lost, had done it.
	Replayed bool `json:"replayed,omitempty"`

	// Request is the id of the request in Stripe's own log.
	Request string `json:"request,omitempty"`
}

const (
	maxKey    = 255 // characters of an idempotency key
	maxAnswer = 1 << 20
)

// New returns a Sender without connecting. Its error names all invalid fields.
func New(config Config) (*Sender, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("payment: "+format, args...)) }
	switch {
	case config.Key == "":
		wrong("key: it is missing: set the secret key of the Stripe account")
	case strings.HasPrefix(config.Key, "pk_"):
		wrong("key: it is a publishable key: use a secret key, sk_… or rk_…")
	case strings.ContainsFunc(config.Key, func(c rune) bool { return c <= ' ' || c > '~' }):
		wrong("key: it has spaces or other invalid characters")
	}
	config.URL = cmp.Or(strings.TrimRight(config.URL, "/"), stripe.APIURL)
	if _, err := shared.CheckURL(config.URL); err != nil {
		wrong("url: %w", err)
	}
	if config.Timeout < 0 {
		wrong("timeout: %v is below 0", config.Timeout)
	}
	if config.Timeout > clients.ClocksApart {
		wrong("timeout: %v is more than %v", config.Timeout, clients.ClocksApart)
	}
	if config.MaxIdle < 0 {
		wrong("max idle: %d is below 0", config.MaxIdle)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	config.Timeout = cmp.Or(config.Timeout, 80*time.Second)
	config.MaxIdle = cmp.Or(config.MaxIdle, 64)

	line := &shared.Line{Transport: shared.New(config.MaxIdle, shared.Dialer()), MaxAnswer: maxAnswer}
	backends := stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(config.URL),
		HTTPClient: &http.Client{
			Transport: line,
			// The library treats every status below 400 as a success.
			CheckRedirect: shared.Stay,
		},
		MaxNetworkRetries: stripe.Int64(0), // the queue retries
		EnableTelemetry:   new(false),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull}, // it would log Stripe's answers
	})
	return &Sender{
		config: config, line: line, now: time.Now,
		stripe: stripe.NewClient(config.Key, stripe.WithBackends(backends)),
	}, nil
}

// Close closes idle connections. Calls in flight continue, and the Sender stays usable.
func (s *Sender) Close() { s.line.CloseIdleConnections() }

// Send makes the call. If the error is nil, Stripe executed the action, and the Result says what
// it did; otherwise the Result is zero. For errors see the table at [Sender.outcome]; those with
// an answer of Stripe wrap a [*stripe.Error] without secrets.
//
// call.IdempotencyKey is required, and must be the same for all attempts. call.First should be
// set: without it, only the first attempt is sent.
//
// If ctx is cancelled before the request was sent, the error wraps ctx's. If it is cancelled
// later, the outcome is unknown, as after a lost connection. An unknown outcome may be repeated
// with the same key: register the handler with queue.RepeatUnknown.
func (s *Sender) Send(ctx context.Context, call clients.Call, payload Payload) (Result, error) {
	if err := payload.Validate(); err != nil {
		return Result{}, clients.Permanent(clients.NotCalled(err))
	}
	key := idempotencyKey(call)
	if key == "" {
		return Result{}, clients.Permanent(clients.NotCalled(errors.New("idempotency key: it is missing: without it, a repeat would be a second payment")))
	}
	if err := call.CheckKey(s.now(), "Stripe", find(call)); err != nil {
		return Result{}, err
	}
	// The cause distinguishes a timeout from a shutdown of the worker.
	limited, cancel := context.WithTimeoutCause(ctx, s.config.Timeout, fmt.Errorf("gave up after %v", s.config.Timeout))
	defer cancel()
	if call.OwnOnly && payload.PaymentIntent != "" {
		if err := s.owned(ctx, limited, call, payload.PaymentIntent); err != nil {
			return Result{}, err
		}
	}
	seen := &shared.Call{}
	result, err := s.do(seen.Watch(limited), call, key, payload)
	if err == nil && seen.Status()/100 == 2 && result.ID != "" {
		result.Replayed = seen.Header("Idempotent-Replayed") == "true"
		result.Request = s.clean(seen.Header("Request-Id"))
		return s.finished(payload.Action, result)
	}
	if seen.Status() == 0 {
		// If even one byte was written, treat it as sent, because it is about money.
		return Result{}, s.lost(ctx, limited, seen.Began(), err)
	}
	return Result{}, s.outcome(seen, err, call)
}

// owned returns an error unless a PaymentIntent was created by a call of the same tenant. It is read
// from Stripe before each such call, so it is right however old the payment is.
func (s *Sender) owned(ctx, limited context.Context, call clients.Call, id string) error {
	seen := &shared.Call{}
	intent, err := s.stripe.V1PaymentIntents.Retrieve(seen.Watch(limited), id, nil)
	switch status := seen.Status(); {
	case err == nil && (tenantIn(call) == "" || intent.Metadata[metadataTenant] != tenantIn(call)):
		return clients.Permanent(clients.NotCalled(fmt.Errorf("payment_intent: it was not created by a job of tenant %s, and this job may act on no other", clients.Printable(call.Tenant, maxReason))))
	case err == nil:
		return nil
	case status == 0:
		return s.lost(ctx, limited, false, err)
	case status/100 == 2 || status/100 == 5: // nothing was done
		return clients.Retryable(clients.NotCalled(fmt.Errorf("look up whose payment it is: no usable answer from stripe: %d%s", status, s.request(seen))))
	}
	return s.outcome(seen, err, call)
}

// tenantIn returns the tenant as metadata has it: escaped, or by its hash if that is too long; "" for
// none.
func tenantIn(call clients.Call) string {
	tenant := clients.EscapeHeader(call.Tenant)
	if len(tenant) > maxValue {
		sum := sha256.Sum256([]byte(tenant))
		return "sha256-" + hex.EncodeToString(sum[:])
	}
	return tenant
}

// idempotencyKey returns the job's key, escaped for a header. A key that is too long for Stripe
// is replaced by its hash.
func idempotencyKey(call clients.Call) string {
	for name, value := range call.Headers() {
		if name == clients.HeaderIdempotencyKey {
			if len(value) > maxKey {
				sum := sha256.Sum256([]byte(value))
				return "headgate-" + hex.EncodeToString(sum[:])
			}
			return value
		}
	}
	return ""
}

// do makes the request of an action.
func (s *Sender) do(ctx context.Context, call clients.Call, key string, p Payload) (Result, error) {
	params := stripe.Params{IdempotencyKey: &key, Headers: http.Header{}}
	for name, value := range call.Headers() {
		if name != clients.HeaderIdempotencyKey {
			params.Headers.Set(name, value)
		}
	}
	var (
		intent *stripe.PaymentIntent
		err    error
	)
	switch p.Action {
	case Create, CreateAndConfirm:
		create := &stripe.PaymentIntentCreateParams{
			Params: params, Amount: p.Amount, Currency: &p.Currency, Metadata: metadata(call, p),
			Customer: optional(p.Customer), PaymentMethod: optional(p.PaymentMethod), CaptureMethod: optional(p.CaptureMethod),
			Description: optional(p.Description), ReceiptEmail: optional(p.ReceiptEmail),
			StatementDescriptorSuffix: optional(p.StatementDescriptorSuffix), ReturnURL: optional(p.ReturnURL),
		}
		if p.PaymentMethodTypes != nil { // the library would send an empty list
			create.PaymentMethodTypes = stripe.StringSlice(p.PaymentMethodTypes)
		}
		if p.Action == CreateAndConfirm {
			create.Confirm = new(true)
			if p.OffSession {
				create.OffSession = new(true)
			}
			if p.ReturnURL == "" && p.PaymentMethodTypes == nil {
				// Stripe refuses to confirm without a return_url if one of the dashboard's payment
				// methods may need it.
				create.AutomaticPaymentMethods = &stripe.PaymentIntentCreateAutomaticPaymentMethodsParams{
					Enabled: new(true), AllowRedirects: stripe.String("never"),
				}
			}
		}
		intent, err = s.stripe.V1PaymentIntents.Create(ctx, create)
	case Confirm:
		confirm := &stripe.PaymentIntentConfirmParams{
			Params: params, PaymentMethod: optional(p.PaymentMethod), CaptureMethod: optional(p.CaptureMethod),
			ReceiptEmail: optional(p.ReceiptEmail), ReturnURL: optional(p.ReturnURL),
		}
		if p.OffSession {
			confirm.OffSession = new(true)
		}
		intent, err = s.stripe.V1PaymentIntents.Confirm(ctx, p.PaymentIntent, confirm)
	case Capture:
		intent, err = s.stripe.V1PaymentIntents.Capture(ctx, p.PaymentIntent, &stripe.PaymentIntentCaptureParams{
			Params: params, AmountToCapture: p.AmountToCapture,
			StatementDescriptorSuffix: optional(p.StatementDescriptorSuffix), Metadata: emptyIsNil(p.Metadata),
		})
	case Refund:
		var refund *stripe.Refund
		refund, err = s.stripe.V1Refunds.Create(ctx, &stripe.RefundCreateParams{
			Params: params, PaymentIntent: &p.PaymentIntent, Amount: p.Amount, Reason: optional(p.Reason), Metadata: metadata(call, p),
		})
		if err != nil || refund == nil {
			return Result{}, err
		}
		result := Result{ID: refund.ID, Status: string(refund.Status), Amount: refund.Amount, Currency: string(refund.Currency)}
		if refund.Charge != nil {
			result.Charge = refund.Charge.ID
		}
		return result, nil
	}
	if err != nil || intent == nil {
		return Result{}, err
	}
	result := Result{ID: intent.ID, Status: string(intent.Status), Amount: intent.Amount, Currency: string(intent.Currency)}
	if p.Action == Capture {
		result.Amount = intent.AmountReceived
	}
	if intent.LatestCharge != nil {
		result.Charge = intent.LatestCharge.ID
	}
	return result, nil
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// metadata returns the payload's metadata with the job's id, by which a payment can be found, and
// with its tenant.
func metadata(call clients.Call, p Payload) map[string]string {
	with := map[string]string{}
	if job := clients.EscapeHeader(call.Job); job != "" && len(job) <= maxValue {
		with[metadataJob] = job
	}
	if tenant := tenantIn(call); tenant != "" {
		with[metadataTenant] = tenant
	}
	maps.Copy(with, p.Metadata)
	return emptyIsNil(with)
}

// emptyIsNil keeps an empty map from being sent: Stripe would delete all metadata.
func emptyIsNil(metadata map[string]string) map[string]string {
	if len(metadata) == 0 {
		return nil
	}
	return metadata
}
