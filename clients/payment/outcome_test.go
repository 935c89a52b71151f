package payment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/internal/test/outcomes"
	"github.com/headgate/headgate/internal/test/silent"
)

// secretKey is the canary: it must be in no error.
const secretKey = "sk_test_canary_51Hk9vYq2TzZ"

var call = clients.Call{Job: "018f", Tenant: "acme", Attempt: 1, IdempotencyKey: "acme:order-7"}

func charge() Payload {
	return Payload{Action: CreateAndConfirm, Amount: new(int64(1999)), Currency: "usd", Customer: "cus_1", PaymentMethod: "pm_card_visa"}
}

func newSender(t testing.TB, url string) *Sender {
	t.Helper()
	s, err := New(Config{Key: secretKey, URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// answering is a Stripe that always says the same.
func answering(t testing.TB, status int, header, body string) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for line := range strings.Lines(header) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			w.Header().Set(name, value)
		}
		w.Header().Set("Request-Id", "req_1")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	return server
}

func failure(kind, code, more string) string {
	return fmt.Sprintf(`{"error":{"type":%q,"code":%q,"message":"Because of %s."%s}}`, kind, code, secretKey, more)
}

// The pages of https://docs.stripe.com that the rows are from, as of API version
// 2026-03-25.dahlia, and files of stripe-go v85.0.0.
const (
	lowLevel    = "/error-low-level"         // categories of errors, what may be repeated
	idempotency = "/api/idempotent_requests" // what is kept for a key
	rateLimits  = "/rate-limits"             // 429, its reasons, object lock timeouts
	codes       = "/error-codes"             // code
	declines    = "/declines/codes"          // decline_code
	apiErrors   = "/api/errors"              // statuses and types
	lifecycle   = "/payments/paymentintents/lifecycle"
	refunds     = "/refunds"
	library     = "stripe.go: shouldRetry" // 409, Stripe-Should-Retry, 5xx
	libraryErr  = "stripe.go: ResponseToError"
	transport   = "RFC 9110, 15" // answers of others in between
)

func TestOutcome(t *testing.T) {
	const invalid, card, idem, api = "invalid_request_error", "card_error", "idempotency_error", "api_error"
	intent := func(status string) string {
		return `{"id":"pi_1","object":"payment_intent","amount":1999,"currency":"usd","client_secret":"pi_1_secret_canary","latest_charge":"ch_1","status":"` + status + `"}`
	}
	secret := `,"payment_intent":` + intent("requires_payment_method")
	refund := func(status string) string {
		return `{"id":"re_1","object":"refund","amount":1999,"currency":"usd","status":"` + status + `"}`
	}
	aRefund := Payload{Action: Refund, PaymentIntent: "pi_1"}
	tests := []struct {
		name    string
		source  string
		status  int
		header  string
		body    string
		payload Payload // zero: a charge
		attempt int     // 0: the first
		unsure  bool
		want    string
		after   time.Duration // when throttled or postponed; of a postponed one 0 means clients.AccessPause
		says    string
	}{
		{name: "succeeded", source: lifecycle, status: 200, body: intent("succeeded"), want: "ok"},
		{name: "processing", source: lifecycle, status: 200, body: intent("processing"), want: "ok"},
		{name: "authorized", source: lifecycle, status: 200, body: intent("requires_capture"), want: "ok"},
		{name: "replayed", source: idempotency, status: 200, header: "Idempotent-Replayed: true", body: intent("succeeded"), want: "ok"},
		{name: "customer has to act", source: lifecycle, status: 200, body: intent("requires_action"), want: "permanent", says: "pi_1 is requires_action: the customer must act"},
		{name: "cancelled meanwhile", source: lifecycle, status: 200, body: intent("canceled"), want: "permanent", says: "pi_1 is canceled"},
		{name: "refund pending", source: refunds, status: 200, body: refund("pending"), payload: aRefund, want: "ok"},
		{name: "refund failed", source: refunds, status: 200, body: refund("failed"), payload: aRefund, want: "permanent", says: "re_1 is failed"},

		{name: "declined", source: declines, status: 402, body: failure(card, "card_declined", `,"decline_code":"insufficient_funds"`+secret), want: "permanent", says: "card_declined insufficient_funds"},
		{name: "expired card", source: codes, status: 402, body: failure(card, "expired_card", secret), want: "permanent", says: "expired_card"},
		{name: "declined for now", source: declines, status: 402, body: failure(card, "processing_error", `,"decline_code":"try_again_later"`), want: "permanent", says: "try_again_later"},
		{name: "authentication required", source: codes, status: 402, body: failure(card, "authentication_required", `,"decline_code":"authentication_required"`), want: "permanent", says: "authentication_required"},

		{name: "parameter missing", source: codes, status: 400, body: failure(invalid, "parameter_missing", `,"param":"currency"`), want: "permanent", says: "parameter_missing, currency"},
		{name: "amount too small", source: codes, status: 400, body: failure(invalid, "amount_too_small", ""), want: "permanent", says: "amount_too_small"},
		{name: "wrong state", source: codes, status: 400, body: failure(invalid, "payment_intent_unexpected_state", secret), want: "permanent", says: "payment_intent_unexpected_state"},
		{name: "already refunded", source: codes, status: 400, body: failure(invalid, "charge_already_refunded", ""), payload: aRefund, want: "permanent", says: "charge_already_refunded"},
		{name: "no such intent", source: codes, status: 404, body: failure(invalid, "resource_missing", `,"param":"intent"`), want: "permanent", says: "resource_missing, intent"},
		{name: "a dependency failed", source: apiErrors, status: 424, body: failure(api, "", ""), want: "permanent", says: "424"},
		{name: "400, asked to repeat", source: library, status: 400, header: "Stripe-Should-Retry: true", body: failure(invalid, "", ""), want: "retryable"},
		{name: "402, asked not to repeat", source: library, status: 402, header: "Stripe-Should-Retry: false", body: failure(card, "card_declined", ""), want: "permanent"},

		{name: "key of another call", source: idempotency, status: 400, body: failure(idem, "", ""), want: "permanent", says: "BELONGS TO ANOTHER CALL"},
		{name: "key of another call, or of an earlier attempt", source: idempotency, status: 400, body: failure(idem, "", ""), attempt: 3, want: "undecided", says: "metadata headgate_job = 018f"},
		{name: "key of another call, or of a worker that died", source: idempotency, status: 400, body: failure(idem, "", ""), unsure: true, want: "undecided", says: "may have taken effect"},
		{name: "key in use", source: codes, status: 409, body: failure(idem, "idempotency_key_in_use", ""), want: "postponed", after: objectPause},
		{name: "key in use, as 400", source: codes, status: 400, body: failure(idem, "idempotency_key_in_use", ""), want: "postponed", after: objectPause},
		{name: "conflict", source: library, status: 409, body: failure(invalid, "", ""), want: "postponed", after: objectPause},

		{name: "no key", source: apiErrors, status: 401, body: failure(invalid, "", ""), want: "account exhausted", after: time.Minute, says: "its jobs wait"},
		{name: "expired key", source: codes, status: 401, body: failure(invalid, "api_key_expired", ""), want: "account exhausted", after: time.Minute},
		{name: "restricted key", source: apiErrors, status: 403, body: failure(invalid, "", ""), want: "postponed", says: "has no permission"},

		{name: "global rate", source: rateLimits, status: 429, header: "Stripe-Rate-Limited-Reason: global-rate\nStripe-Should-Retry: false", body: failure(invalid, "rate_limit", ""), want: "account throttled", says: "for global-rate"},
		{name: "global concurrency", source: rateLimits, status: 429, header: "Stripe-Rate-Limited-Reason: global-concurrency", body: failure(invalid, "rate_limit", ""), want: "account throttled"},
		{name: "endpoint rate", source: rateLimits, status: 429, header: "Stripe-Rate-Limited-Reason: endpoint-rate", body: failure(invalid, "rate_limit", ""), want: "account throttled"},
		{name: "endpoint concurrency", source: rateLimits, status: 429, header: "Stripe-Rate-Limited-Reason: endpoint-concurrency", body: failure(invalid, "rate_limit", ""), want: "account throttled"},
		{name: "of one object", source: rateLimits, status: 429, header: "Stripe-Rate-Limited-Reason: resource-specific", body: failure(invalid, "rate_limit", ""), want: "postponed", after: objectPause},
		{name: "no reason", source: rateLimits, status: 429, body: failure(invalid, "rate_limit", ""), want: "account throttled"},
		{name: "with Retry-After", source: "RFC 9110, 10.2.3", status: 429, header: "Retry-After: 7", body: failure(invalid, "rate_limit", ""), want: "account throttled", after: 7 * time.Second},
		{name: "lock", source: rateLimits, status: 429, header: "Stripe-Should-Retry: true", body: failure(invalid, "lock_timeout", ""), want: "postponed", after: objectPause, says: "lock_timeout"},
		{name: "lock, with Retry-After", source: rateLimits, status: 429, header: "Retry-After: 7", body: failure(invalid, "lock_timeout", ""), want: "postponed", after: 7 * time.Second},
		{name: "lock, as 400", source: codes, status: 400, body: failure(invalid, "lock_timeout", ""), want: "postponed", after: objectPause},
		{name: "429 of another", source: transport, status: 429, header: "Retry-After: 3", body: "<html>", want: "account throttled", after: 3 * time.Second},

		{name: "500", source: lowLevel, status: 500, body: failure(api, "", ""), want: "unknown"},
		{name: "503", source: apiErrors, status: 503, body: failure(api, "", ""), want: "unknown"},
		{name: "500, asked to repeat", source: library, status: 500, header: "Stripe-Should-Retry: true\nIdempotent-Replayed: true", body: failure(api, "", ""), want: "unknown"},
		{name: "500, final", source: library, status: 500, header: "Stripe-Should-Retry: false", body: failure(api, "", ""), want: "undecided", says: "unknown: a person has to decide: "},
		{name: "500, kept", source: idempotency, status: 500, header: "Idempotent-Replayed: true", body: failure(api, "", ""), want: "undecided", says: "metadata headgate_job = 018f"},
		{name: "502 of another", source: transport, status: 502, body: "<html>bad gateway " + secretKey, want: "unknown"},

		{name: "200, cut off", source: libraryErr, status: 200, header: "Content-Length: 5000", body: intent("succeeded")[:40], want: "unknown"},
		{name: "200 of another", source: libraryErr, status: 200, body: `{"welcome":"portal"}`, want: "unknown"},
		{name: "redirect", source: transport, status: 302, header: "Location: https://example.com/" + secretKey, body: intent("succeeded"), want: "retryable"},
		{name: "403 of another", source: transport, status: 403, body: "<html>" + secretKey, want: "retryable"},
		{name: "400 without an error", source: libraryErr, status: 400, body: `{"key":"` + secretKey + `"}`, want: "retryable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			payload := tt.payload
			if payload.Action == "" {
				payload = charge()
			}
			s := newSender(t, answering(t, tt.status, tt.header, tt.body).URL)
			now := time.Now()
			s.now = func() time.Time { return now }
			call := call
			call.Attempt, call.First, call.Unsure = cmp.Or(tt.attempt, 1), now, tt.unsure
			result, err := s.Send(t.Context(), call, payload)
			if got := outcomes.Of(err); got != tt.want {
				t.Fatalf("%s; want %s (%s): %v", got, tt.want, tt.source, err)
			}
			if err == nil {
				if result.ID == "" || result.Replayed != strings.Contains(tt.header, "Replayed") || result.Request != "req_1" {
					t.Errorf("%+v", result)
				}
				return
			}
			if result != (Result{}) {
				t.Errorf("%+v with %v", result, err)
			}
			if throttled, ok := errors.AsType[*clients.ThrottledError](err); ok && throttled.After != tt.after {
				t.Errorf("after %v; want %v", throttled.After, tt.after)
			}
			if exhausted, ok := errors.AsType[*clients.ExhaustedError](err); ok && exhausted.After != tt.after {
				t.Errorf("for %v; want %v", exhausted.After, tt.after)
			}
			if postponed, ok := errors.AsType[*clients.PostponedError](err); ok && postponed.Until.Sub(now) != cmp.Or(tt.after, clients.AccessPause) {
				t.Errorf("postponed for %v; want %v", postponed.Until.Sub(now), cmp.Or(tt.after, clients.AccessPause))
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q does not say %q", err, tt.says)
			}
			// Also in what the library's error would print, and in the errors below.
			for below := err; below != nil; below = errors.Unwrap(below) {
				text := fmt.Sprintf("%v %+v", below, below)
				for _, canary := range []string{secretKey, "secret_canary"} {
					if strings.Contains(text, canary) {
						t.Errorf("%T gives %s away: %s", below, canary, text)
					}
				}
				if strings.ContainsAny(below.Error(), "\n\r") {
					t.Errorf("more than a line: %q", below)
				}
			}
		})
	}
}

// A caller may still ask for the library's error.
func TestLibraryError(t *testing.T) {
	body := failure("card_error", "card_declined", `,"decline_code":"lost_card","charge":"ch_1"`)
	_, err := newSender(t, answering(t, 402, "", body).URL).Send(t.Context(), call, charge())
	answer, ok := errors.AsType[*stripe.Error](err)
	if !ok || answer.Code != stripe.ErrorCodeCardDeclined || answer.DeclineCode != stripe.DeclineCodeLostCard ||
		answer.HTTPStatusCode != 402 || answer.RequestID != "req_1" || answer.ChargeID != "ch_1" || answer.Type != stripe.ErrorTypeCard {
		t.Errorf("%+v", answer)
	}
}

func TestNotSent(t *testing.T) {
	const nobody = "http://127.0.0.1:1"
	_, err := newSender(t, nobody).Send(t.Context(), call, charge())
	if outcomes.Of(err) != "retryable" {
		t.Errorf("refused: %s: %v", outcomes.Of(err), err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = newSender(t, nobody).Send(ended, call, charge())
	if outcomes.Of(err) != "error" || !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %s: %v", outcomes.Of(err), err)
	}
	// A listener that speaks no TLS: the handshake is no request.
	plain := answering(t, 200, "", "")
	_, err = newSender(t, strings.Replace(plain.URL, "http:", "https:", 1)).Send(t.Context(), call, charge())
	if outcomes.Of(err) != "retryable" {
		t.Errorf("no TLS: %s: %v", outcomes.Of(err), err)
	}
}

// silentServer takes requests and says nothing until it is closed.
func silentServer(t *testing.T) (url string, got <-chan struct{}) {
	arrived := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if silent.Whole(r) { // only then the server notices that the caller went away
			arrived <- struct{}{}
		}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	return server.URL, arrived
}

func TestTimeout(t *testing.T) {
	silent.Call(t, func(timeout time.Duration) bool {
		url, got := silentServer(t)
		s, err := New(Config{Key: secretKey, URL: url, Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, err = s.Send(t.Context(), call, charge())
		if len(got) > 0 && outcomes.Of(err) != "unknown" || !strings.Contains(err.Error(), "gave up after "+timeout.String()) {
			t.Errorf("%s: %v", outcomes.Of(err), err)
		}
		return outcomes.Of(err) == "unknown"
	})
}

func TestWorkerEnds(t *testing.T) {
	url, got := silentServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-got; cancel() }()
	_, err := newSender(t, url).Send(ctx, call, charge())
	if outcomes.Of(err) != "unknown" || errors.Is(err, context.Canceled) {
		t.Errorf("%s: %v", outcomes.Of(err), err)
	}
}
