package payment

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// Config says which Stripe account pays and how it is reached.
type Config struct {
	// Key is the secret key of the account, sk_… or rk_…; required. A restricted
	// key needs to write PaymentIntents, and for refunds Charges.
	Key string

	// URL is where Stripe's API is. "" means Stripe's own; without https it can be
	// on this machine alone, for the key goes over the line.
	URL string

	// Timeout bounds a call from dialling to the end of its answer. 0 means 80 s,
	// as in Stripe's own libraries: banks take their time.
	Timeout time.Duration

	// MaxIdle is how many connections are kept for the next calls; more may be
	// open while they are in use. 0 means 64.
	MaxIdle int
}

// Sender makes calls for one account. It keeps connections for later ones.
type Sender struct {
	config    Config
	stripe    *stripe.Client
	transport *http.Transport
	now       func() time.Time
}

// Result is what Stripe did.
type Result struct {
	ID       string `json:"id"`               // pi_… of a PaymentIntent, re_… of a refund
	Status   string `json:"status"`           // as Stripe calls it: succeeded, requires_capture, pending, …
	Charge   string `json:"charge,omitempty"` // ch_…; "" while there is none
	Amount   int64  `json:"amount"`           // in the smallest unit
	Currency string `json:"currency"`

	// Replayed tells that an earlier attempt had done it, whose answer was lost.
	Replayed bool `json:"replayed,omitempty"`

	// Request is the id of the request in Stripe's own log.
	Request string `json:"request,omitempty"`
}

const (
	maxKey    = 255 // characters of an idempotency key
	maxAnswer = 1 << 20
)

// New makes a Sender; nothing is dialled yet. The error names every field that
// is wrong.
func New(config Config) (*Sender, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("payment: "+format, args...)) }
	switch {
	case config.Key == "":
		wrong("key: it is missing; want the secret key of the Stripe account")
	case strings.HasPrefix(config.Key, "pk_"):
		wrong("key: that is the publishable key; want the secret one, sk_… or rk_…")
	case strings.ContainsFunc(config.Key, func(c rune) bool { return c <= ' ' || c > '~' }):
		wrong("key: it has spaces, or characters that no key has")
	}
	config.URL = cmp.Or(strings.TrimRight(config.URL, "/"), stripe.APIURL)
	u, err := url.Parse(config.URL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		wrong("url: it is not one such as %s", stripe.APIURL)
	case u.Scheme == "http" && !shared.Loopback(u.Hostname()):
		wrong("url: http is for this machine alone; want https, for the key goes over the line")
	case u.Scheme != "http" && u.Scheme != "https":
		wrong("url: it is neither http nor https")
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

	transport := shared.New(config.MaxIdle)
	backends := stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(config.URL),
		HTTPClient: &http.Client{
			Transport: &wire{transport},
			// To the library everything below 400 is a success.
			CheckRedirect: shared.Stay,
		},
		MaxNetworkRetries: stripe.Int64(0), // the queue owns retrying
		EnableTelemetry:   new(false),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull}, // it would log what Stripe answered
	})
	return &Sender{
		config: config, transport: transport, now: time.Now,
		stripe: stripe.NewClient(config.Key, stripe.WithBackends(backends)),
	}, nil
}

// Close closes the connections that wait for the next call. Calls under way go
// on; the Sender stays usable.
func (s *Sender) Close() { s.transport.CloseIdleConnections() }

// Send makes the call. nil means that Stripe did what was asked for; what it did
// is in the Result, which is zero otherwise. For errors see the table at
// [outcome]; those with an answer of Stripe's hold its [*stripe.Error], without
// what was secret in it.
//
// call.IdempotencyKey is required, and the same for all attempts. call.First
// should be set: without it an attempt after the first is not sent.
//
// When ctx is cancelled before the request was sent, the error wraps ctx's.
// Cancelled later, the outcome is unknown, as after a lost connection. An unknown
// outcome may be repeated with the same key: register the handler with
// queue.RepeatUnknown.
func (s *Sender) Send(ctx context.Context, call clients.Call, payload Payload) (Result, error) {
	if err := payload.Validate(); err != nil {
		return Result{}, clients.Permanent(clients.NotCalled(err))
	}
	key := idempotencyKey(call)
	if key == "" {
		return Result{}, clients.Permanent(clients.NotCalled(errors.New("idempotency key: it is missing, and without it a repeat would be a second payment")))
	}
	if err := call.CheckKey(s.now(), "Stripe", find(call)); err != nil {
		return Result{}, err
	}
	// Its own cause tells the end of the time from the end of the worker.
	limited, cancel := context.WithTimeoutCause(ctx, s.config.Timeout, fmt.Errorf("gave up after %v", s.config.Timeout))
	defer cancel()
	seen := &progress{}
	result, err := s.do(seen.watch(limited), call, key, payload)
	if err == nil && seen.status()/100 == 2 && result.ID != "" {
		result.Replayed = seen.header("Idempotent-Replayed") == "true"
		result.Request = s.clean(seen.header("Request-Id"))
		return s.finished(payload.Action, result)
	}
	if seen.status() == 0 {
		// In doubt it was sent: for money a single byte is enough.
		return Result{}, s.lost(ctx, limited, seen.Began(), err)
	}
	return Result{}, s.outcome(seen, err, call)
}

// idempotencyKey is the job's, as a header can hold it. One that is too long for
// Stripe is replaced by one that stands for it.
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
		if p.PaymentMethodTypes != nil { // an empty list would be sent as one
			create.PaymentMethodTypes = stripe.StringSlice(p.PaymentMethodTypes)
		}
		if p.Action == CreateAndConfirm {
			create.Confirm = new(true)
			if p.OffSession {
				create.OffSession = new(true)
			}
			if p.ReturnURL == "" && p.PaymentMethodTypes == nil {
				// Stripe refuses to confirm without a return_url when one of the
				// dashboard's payment methods might need it.
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

// metadata is the payload's, and the job, by which a person finds a payment.
func metadata(call clients.Call, p Payload) map[string]string {
	if job := clients.EscapeHeader(call.Job); job != "" && len(job) <= 500 {
		with := map[string]string{metadataJob: job}
		maps.Copy(with, p.Metadata)
		return with
	}
	return emptyIsNil(p.Metadata)
}

// emptyIsNil keeps an empty map from being sent: to Stripe it means that all
// metadata is to be deleted.
func emptyIsNil(metadata map[string]string) map[string]string {
	if len(metadata) == 0 {
		return nil
	}
	return metadata
}

// wire is the library's way to the network. It writes down how the call went, of
// which the library's own errors tell too little.
type wire struct{ transport *http.Transport }

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	clients.NeverRepeat(r)
	response, err := w.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if seen, ok := r.Context().Value(progressKey{}).(*progress); ok {
		seen.answered(response)
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, maxAnswer), response.Body}
	return response, nil
}
