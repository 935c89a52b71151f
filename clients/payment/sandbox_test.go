package payment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/outcomes"
	"github.com/headgate/headgate/internal/test/silent"
	"github.com/headgate/headgate/internal/test/until"
)

func newSandbox(t testing.TB, config ...sandbox.Config) *sandbox.Stripe {
	t.Helper()
	provider, err := sandbox.NewStripe(config...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { provider.Close() })
	return provider
}

// next is a call for another job.
func next(n int) clients.Call {
	return clients.Call{Job: fmt.Sprint("job-", n), Tenant: "acme", Attempt: 1, IdempotencyKey: fmt.Sprint("acme:", n)}
}

func TestActions(t *testing.T) {
	provider := newSandbox(t, sandbox.Config{Password: secretKey})
	s := newSender(t, provider.URL())
	n := 0
	send := func(p Payload) Result {
		t.Helper()
		n++
		result, err := s.Send(t.Context(), next(n), p)
		if err != nil {
			t.Fatalf("%s: %v", p.Action, err)
		}
		return result
	}
	created := send(Payload{Action: Create, Amount: new(int64(500)), Currency: "eur", Customer: "cus_1", CaptureMethod: "manual", Metadata: map[string]string{"order": "7"}})
	if created.Status != "requires_payment_method" || created.Amount != 500 || created.Currency != "eur" || created.Charge != "" {
		t.Errorf("created: %+v", created)
	}
	confirmed := send(Payload{Action: Confirm, PaymentIntent: created.ID, PaymentMethod: "pm_card_visa", OffSession: true})
	if confirmed.Status != "requires_capture" || confirmed.Charge == "" || confirmed.ID != created.ID {
		t.Errorf("confirmed: %+v", confirmed)
	}
	captured := send(Payload{Action: Capture, PaymentIntent: created.ID, AmountToCapture: new(int64(300))})
	if captured.Status != "succeeded" || captured.Amount != 300 {
		t.Errorf("captured: %+v", captured)
	}
	part := send(Payload{Action: Refund, PaymentIntent: created.ID, Amount: new(int64(100)), Reason: "requested_by_customer"})
	rest := send(Payload{Action: Refund, PaymentIntent: created.ID})
	if part.Amount != 100 || rest.Amount != 200 || rest.Charge != captured.Charge || rest.Status != "succeeded" {
		t.Errorf("refunded: %+v, %+v", part, rest)
	}
	if _, err := s.Send(t.Context(), next(99), Payload{Action: Refund, PaymentIntent: created.ID}); outcomes.Of(err) != "permanent" || !strings.Contains(err.Error(), "charge_already_refunded") {
		t.Errorf("refunded again: %v", err)
	}
	ledger := provider.Ledger()
	if len(ledger) != 3 || ledger[0].Amount != 300 || ledger[0].Customer != "cus_1" || ledger[0].Job != "job-3" || ledger[0].Refund || !ledger[1].Refund {
		t.Errorf("%+v", ledger)
	}
	raw, err := json.Marshal(created)
	if err != nil || strings.Contains(string(raw), "secret") {
		t.Errorf("%s, %v", raw, err)
	}
}

// The headers of a call, and the job in the metadata.
func TestCallIsCarried(t *testing.T) {
	provider := newSandbox(t)
	s := newSender(t, provider.URL())
	late := call
	late.Attempt, late.First = 3, time.Now().Add(-time.Hour)
	result, err := s.Send(t.Context(), late, charge())
	if err != nil {
		t.Fatal(err)
	}
	if got := provider.Calls()[0]; got.Tenant != "acme" || got.Job != "018f" || got.Attempt != "3" || got.Key != call.IdempotencyKey {
		t.Errorf("%+v", got)
	}
	intent, err := sdk(provider.URL()).V1PaymentIntents.Retrieve(t.Context(), result.ID, nil)
	if err != nil || intent.Metadata["headgate_job"] != "018f" {
		t.Errorf("%v, %v", intent.Metadata, err)
	}
	long := clients.Call{Job: "1", IdempotencyKey: strings.Repeat("ü", 200)}
	if _, err := s.Send(t.Context(), long, charge()); err != nil {
		t.Error(err)
	}
	if key := provider.Calls()[2].Key; len(key) > 255 || key != idempotencyKey(long) {
		t.Errorf("%d characters: %s", len(key), key)
	}
}

// TestPaymentsOfOthers: a call that may act only on its tenant's own payments acts on no others, of
// other tenants or of nobody.
func TestPaymentsOfOthers(t *testing.T) {
	provider := newSandbox(t)
	s := newSender(t, provider.URL())
	of := func(tenant string, n int) clients.Call {
		return clients.Call{Job: fmt.Sprint("job-", n), Tenant: tenant, Attempt: 1, IdempotencyKey: fmt.Sprint(tenant, n), OwnOnly: true}
	}
	long := strings.Repeat("ü", 300)
	for _, tenant := range []string{"acme", long} {
		paid, err := s.Send(t.Context(), of(tenant, 1), charge())
		if err != nil {
			t.Fatal(err)
		}
		for _, action := range []string{Refund, Capture, Confirm} {
			_, err = s.Send(t.Context(), of("globex", 2), Payload{Action: action, PaymentIntent: paid.ID})
			if outcomes.Of(err) != "permanent" || !strings.Contains(err.Error(), "was not created by a job of tenant globex") {
				t.Errorf("%s by another tenant: %v", action, err)
			}
		}
		if _, err = s.Send(t.Context(), of(tenant, 4), Payload{Action: Refund, PaymentIntent: paid.ID}); err != nil {
			t.Errorf("its own: %v", err)
		}
	}
	outside, err := sdk(provider.URL()).V1PaymentIntents.Create(t.Context(), &stripe.PaymentIntentCreateParams{
		Amount: new(int64(5)), Currency: new("usd"), PaymentMethod: new("pm_card_visa"), Confirm: new(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"acme", ""} {
		if _, err = s.Send(t.Context(), of(tenant, 5), Payload{Action: Refund, PaymentIntent: outside.ID}); outcomes.Of(err) != "permanent" {
			t.Errorf("a payment that no job made, refunded by %q: %v", tenant, err)
		}
	}
	// If the payment cannot be looked up, nothing is done, and the job is tried again.
	for status, want := range map[int]string{200: "retryable", 500: "retryable", 503: "retryable", 429: "account throttled", 404: "permanent", 0: "retryable"} {
		var posted atomic.Bool
		failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				posted.Store(true)
			}
			if status == 0 {
				panic(http.ErrAbortHandler)
			}
			if status == http.StatusOK {
				w.Header().Set("Content-Length", "5000") // the answer is cut off
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"error":{"type":"api_error"}}`))
		}))
		t.Cleanup(failing.Close)
		if _, err := newSender(t, failing.URL).Send(t.Context(), of("acme", 6), Payload{Action: Refund, PaymentIntent: "pi_1"}); outcomes.Of(err) != want || posted.Load() {
			t.Errorf("%d at the lookup: %s: %v; want %s, and no refund: %v", status, outcomes.Of(err), err, want, posted.Load())
		}
	}
	if ledger := provider.Ledger(); len(ledger) != 5 {
		t.Errorf("%d entries; want 3 charges and 2 refunds: %+v", len(ledger), ledger)
	}
}

func TestWithoutIdempotencyKey(t *testing.T) {
	provider := newSandbox(t)
	_, err := newSender(t, provider.URL()).Send(t.Context(), clients.Call{Job: "1", Attempt: 1}, charge())
	if outcomes.Of(err) != "permanent" || len(provider.Calls()) != 0 {
		t.Errorf("%s: %v", outcomes.Of(err), err)
	}
}

// When Stripe may have forgotten the key, nothing is sent.
func TestKeyLife(t *testing.T) {
	provider := newSandbox(t)
	s := newSender(t, provider.URL())
	now := time.Now()
	for name, tt := range map[string]struct {
		attempt int
		first   time.Time
		want    string
	}{
		"first":                     {1, time.Time{}, "ok"},
		"no attempt is named":       {0, time.Time{}, "ok"},
		"first, told so":            {1, now, "ok"},
		"nobody knows":              {2, time.Time{}, "undecided"},
		"an hour":                   {2, now.Add(-time.Hour), "ok"},
		"almost":                    {2, now.Add(-clients.KeyLife + time.Minute), "ok"},
		"too late":                  {2, now.Add(-clients.KeyLife - time.Minute), "undecided"},
		"a crashed first attempt":   {1, now.Add(-25 * time.Hour), "undecided"},
		"clocks a little apart":     {2, now.Add(time.Minute), "ok"},
		"clocks that say nothing":   {2, now.Add(clients.ClocksApart + time.Minute), "retryable"},
		"before there was a Stripe": {2, time.Unix(1, 0), "undecided"},
	} {
		before := len(provider.Calls())
		c := clients.Call{Job: name, Attempt: tt.attempt, First: tt.first, IdempotencyKey: name}
		_, err := s.Send(t.Context(), c, charge())
		if outcomes.Of(err) != tt.want || (len(provider.Calls()) > before) != (tt.want == "ok") {
			t.Errorf("%s: %s, %d calls: %v", name, outcomes.Of(err), len(provider.Calls())-before, err)
		}
		if tt.want == "undecided" && (!strings.HasPrefix(err.Error(), "unknown: a person has to decide: ") || !strings.Contains(err.Error(), "not sent")) {
			t.Errorf("%s: %q", name, err)
		}
	}
}

// What would happen without it: the sandbox, which has forgotten the key, makes
// a second charge, and counts it.
func TestForgottenKeyIsADouble(t *testing.T) {
	provider := newSandbox(t)
	s := newSender(t, provider.URL())
	for range 2 {
		if _, err := s.Send(t.Context(), call, charge()); err != nil {
			t.Fatal(err)
		}
		provider.ForgetKeys()
	}
	if provider.Doubles() != 1 || provider.Charges()[call.IdempotencyKey] != 2 {
		t.Errorf("%d doubles, %v", provider.Doubles(), provider.Charges())
	}
}

func TestIdempotency(t *testing.T) {
	provider := newSandbox(t)
	s := newSender(t, provider.URL())
	first, err := s.Send(t.Context(), call, charge())
	if err != nil || first.Replayed {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := s.Send(t.Context(), call, charge())
	if err != nil || !again.Replayed || again.ID != first.ID || again.Charge != first.Charge {
		t.Errorf("%+v, %v", again, err)
	}
	other := charge()
	other.Amount = new(int64(2000))
	if _, err := s.Send(t.Context(), call, other); outcomes.Of(err) != "permanent" || !strings.Contains(err.Error(), "BELONGS TO ANOTHER CALL") {
		t.Errorf("%s: %v", outcomes.Of(err), err)
	}
	if provider.Doubles() != 0 || len(provider.Ledger()) != 1 {
		t.Errorf("%+v", provider.Ledger())
	}
	// A decline is kept, too.
	declined := charge()
	declined.PaymentMethod = "pm_card_visa_chargeDeclinedInsufficientFunds"
	for range 2 {
		if _, err := s.Send(t.Context(), next(1), declined); outcomes.Of(err) != "permanent" || !strings.Contains(err.Error(), "insufficient_funds") {
			t.Errorf("%s: %v", outcomes.Of(err), err)
		}
	}
}

// Two requests at once with one key, and with one PaymentIntent.
func TestInFlight(t *testing.T) {
	provider := newSandbox(t)
	s := newSender(t, provider.URL())
	created, err := s.Send(t.Context(), next(1), Payload{Action: Create, Amount: new(int64(5)), Currency: "usd", PaymentMethod: "pm_1"})
	if err != nil {
		t.Fatal(err)
	}
	confirm := Payload{Action: Confirm, PaymentIntent: created.ID}
	release := provider.Hang()
	defer release()
	done := make(chan error)
	go func() {
		_, err := s.Send(context.Background(), next(2), confirm)
		done <- err
	}()
	until.Done(t, "the sandbox works on it", func() bool { return provider.InFlight() > 0 })
	for n, want := range map[int]string{2: "idempotency_key_in_use", 3: "lock_timeout"} {
		if _, err := s.Send(t.Context(), next(n), confirm); outcomes.Of(err) != "postponed" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, want %s: %v", outcomes.Of(err), want, err)
		}
	}
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAccountLimit(t *testing.T) {
	provider := newSandbox(t, sandbox.Config{Account: sandbox.Limit{Rate: 0.1, Burst: 1}})
	s := newSender(t, provider.URL())
	if _, err := s.Send(t.Context(), next(1), charge()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // refusals are not kept for a key
		if _, err := s.Send(t.Context(), next(2), charge()); outcomes.Of(err) != "account throttled" || !strings.Contains(err.Error(), "global-rate") {
			t.Errorf("%s: %v", outcomes.Of(err), err)
		}
	}
	provider.SetAccountLimit(sandbox.Limit{})
	if result, err := s.Send(t.Context(), next(2), charge()); err != nil || result.Replayed {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestWrongKey(t *testing.T) {
	provider := newSandbox(t, sandbox.Config{Password: "sk_test_another"})
	_, err := newSender(t, provider.URL()).Send(t.Context(), call, charge())
	if outcomes.Of(err) != "account exhausted" || strings.Contains(err.Error(), secretKey) {
		t.Errorf("%s: %v", outcomes.Of(err), err)
	}
}

// sdk is Stripe's library as its users use it.
func sdk(url string) *stripe.Client {
	return stripe.NewClient(secretKey, stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: &url, MaxNetworkRetries: stripe.Int64(0), LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	})))
}

// The library reads the sandbox's answers as it reads Stripe's.
func TestLibraryReadsTheSandbox(t *testing.T) {
	provider := newSandbox(t)
	client := sdk(provider.URL())
	create := func(key string, amount int64, method string) error {
		_, err := client.V1PaymentIntents.Create(t.Context(), &stripe.PaymentIntentCreateParams{
			Params: stripe.Params{IdempotencyKey: &key}, Amount: &amount, Currency: stripe.String("usd"),
			PaymentMethod: &method, Confirm: new(true), OffSession: new(true),
		})
		return err
	}
	fault := func(f sandbox.StripeFault) { provider.Inject(func(int) sandbox.StripeFault { return f }) }
	check := func(name string, err error, status int, code stripe.ErrorCode, want any) {
		t.Helper()
		answer, ok := errors.AsType[*stripe.Error](err)
		if !ok || answer.HTTPStatusCode != status || answer.Code != code || fmt.Sprintf("%T", answer.Err) != fmt.Sprintf("%T", want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for method, code := range map[string]stripe.ErrorCode{
		"pm_card_visa_chargeDeclined": stripe.ErrorCodeCardDeclined, "pm_card_chargeDeclinedExpiredCard": stripe.ErrorCodeExpiredCard,
		"pm_card_chargeDeclinedIncorrectCvc": stripe.ErrorCodeIncorrectCVC, "pm_card_authenticationRequired": stripe.ErrorCodeAuthenticationRequired,
	} {
		err := create(method, 5, method)
		check(method, err, 402, code, &stripe.CardError{})
		if answer, ok := errors.AsType[*stripe.Error](err); ok && (answer.PaymentIntent == nil || answer.PaymentIntent.Status != stripe.PaymentIntentStatusRequiresPaymentMethod) {
			t.Errorf("%s: %+v", method, answer)
		}
	}
	check("invalid", create("1", 5, "card"), 400, stripe.ErrorCodeResourceMissing, &stripe.InvalidRequestError{})
	if err := create("2", 5, "pm_1"); err != nil {
		t.Error(err)
	}
	check("another's key", create("2", 6, "pm_1"), 400, "", &stripe.IdempotencyError{})
	fault(sandbox.StripeEndpointRate)
	err := create("3", 5, "pm_1")
	check("rate", err, 429, stripe.ErrorCodeRateLimit, &stripe.InvalidRequestError{})
	if answer, ok := errors.AsType[*stripe.Error](err); ok && answer.LastResponse.Header.Get("Stripe-Rate-Limited-Reason") != "endpoint-rate" {
		t.Error(answer.LastResponse.Header)
	}
	fault(sandbox.StripeLockTimeout)
	check("lock", create("3", 5, "pm_1"), 429, stripe.ErrorCodeLockTimeout, &stripe.InvalidRequestError{})
	fault(sandbox.StripeErrorBefore)
	check("before", create("3", 5, "pm_1"), 503, "", &stripe.APIError{})
	fault(sandbox.StripeErrorAfter)
	check("after", create("3", 5, "pm_1"), 500, "", &stripe.APIError{})
	fault(sandbox.StripeFine)
	check("kept", create("3", 5, "pm_1"), 500, "", &stripe.APIError{})
	if n := provider.Charges()["3"]; n != 1 {
		t.Errorf("%d charges of a request that was answered with 500", n)
	}
	_, err = client.V1PaymentIntents.Retrieve(t.Context(), "pi_none", nil)
	check("no such intent", err, 404, stripe.ErrorCodeResourceMissing, &stripe.InvalidRequestError{})
}

// A thousand charges, with the connection cut before and after the work, errors
// before and after it, limits and locks; repeated as a queue does.
func TestThousandCharges(t *testing.T) {
	const charges, together = 1000, 16
	provider := newSandbox(t, sandbox.Config{Password: secretKey})
	provider.Inject(func(n int) sandbox.StripeFault {
		switch n % 20 {
		case 1, 2, 3:
			return sandbox.StripeCutBefore
		case 5, 6, 7:
			return sandbox.StripeCutAfter
		case 9:
			return sandbox.StripeErrorBefore
		case 11:
			return sandbox.StripeLockTimeout
		case 13:
			return sandbox.StripeEndpointBusy
		}
		if n%100 == 17 {
			return sandbox.StripeErrorAfter
		}
		return sandbox.StripeFine
	})
	s := newSender(t, provider.URL())

	var mu sync.Mutex
	ends := map[string]string{} // of a job: ok, or the error
	seen := map[string]int{}
	jobs := make(chan int)
	var workers sync.WaitGroup
	for range together {
		workers.Go(func() {
			for n := range jobs {
				c := next(n)
				for {
					if c.First.IsZero() {
						c.First = time.Now()
					}
					_, err := s.Send(context.Background(), c, charge())
					mu.Lock()
					seen[outcomes.Of(err)]++
					mu.Unlock()
					switch outcomes.Of(err) {
					case "postponed", "account throttled":
						continue // no attempt is spent
					case "unknown", "retryable":
						c.Attempt++
						continue
					}
					end := "ok"
					if err != nil {
						end = err.Error()
					}
					mu.Lock()
					ends[c.Job] = end
					mu.Unlock()
					break
				}
			}
		})
	}
	for n := range charges {
		jobs <- n
	}
	close(jobs)
	workers.Wait()

	if provider.Doubles() != 0 {
		t.Errorf("%d charges were made twice", provider.Doubles())
	}
	charged := map[string]bool{}
	for _, entry := range provider.Ledger() {
		charged[entry.Job] = true
	}
	ok, listed := 0, 0
	for n := range charges {
		job := next(n).Job
		switch end := ends[job]; {
		case end == "ok" && charged[job]:
			ok++
		case strings.HasPrefix(end, "unknown: a person has to decide: ") && strings.Contains(end, job):
			listed++
		default:
			t.Errorf("%s: charged %v, and ended as %q", job, charged[job], end)
		}
	}
	if ok+listed != charges || listed == 0 || seen["unknown"] == 0 || seen["postponed"] == 0 || seen["account throttled"] == 0 {
		t.Errorf("%d charged, %d listed, %v", ok, listed, seen)
	}
	t.Logf("%d charged, %d listed as unknown; %d requests; answers by outcome: %v, of %v", ok, listed, len(provider.Calls()), seen, slices.Sorted(maps.Keys(seen)))
}

// net/http would send a request with an Idempotency-Key again on its own when a
// kept connection breaks.
func TestNothingIsRepeated(t *testing.T) {
	provider := newSandbox(t)
	s := newSender(t, provider.URL())
	if _, err := s.Send(t.Context(), next(1), charge()); err != nil { // leaves a connection
		t.Fatal(err)
	}
	provider.Drop(1)
	if _, err := s.Send(t.Context(), next(2), charge()); outcomes.Of(err) != "unknown" {
		t.Errorf("%s: %v", outcomes.Of(err), err)
	}
	if calls := provider.Calls(); len(calls) != 2 {
		t.Errorf("%d requests for two calls", len(calls))
	}
}

func TestNew(t *testing.T) {
	for name, config := range map[string]Config{
		"no key":        {},
		"published key": {Key: "pk_test_canary"},
		"key":           {Key: "sk_test canary\n"},
		"url":           {Key: "sk_1", URL: "stripe"},
		"ftp":           {Key: "sk_1", URL: "ftp://127.0.0.1"},
		"clear text":    {Key: "sk_1", URL: "http://stripe.example.com"},
		"password":      {Key: "sk_1", URL: "https://canary@example.com"},
		"timeout":       {Key: "sk_1", Timeout: -1},
		"long timeout":  {Key: "sk_1", Timeout: time.Hour},
		"idle":          {Key: "sk_1", MaxIdle: -1},
	} {
		if _, err := New(config); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s, err := New(Config{Key: "sk_1"})
	if err != nil || s.config.URL != "https://api.stripe.com" || s.config.Timeout != 80*time.Second {
		t.Errorf("%+v, %v", s.config, err)
	}
}

func BenchmarkSend(b *testing.B) {
	provider := newSandbox(b)
	s := newSender(b, provider.URL())
	for n := 0; b.Loop(); n++ {
		if _, err := s.Send(b.Context(), next(n), charge()); err != nil {
			b.Fatal(err)
		}
	}
}

// Stripe works on although its caller gave up; the next attempt gets the answer.
func TestGaveUpTooEarly(t *testing.T) {
	var provider *sandbox.Stripe
	silent.Call(t, func(timeout time.Duration) bool {
		provider = newSandbox(t)
		release := provider.Hang()
		defer release()
		s, err := New(Config{Key: secretKey, URL: provider.URL(), Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, err = s.Send(t.Context(), call, charge())
		return outcomes.Of(err) == "unknown"
	})
	until.Done(t, "the sandbox is done with it", func() bool { return len(provider.Ledger()) > 0 && provider.InFlight() == 0 })
	again := call
	again.Attempt, again.First = 2, time.Now()
	result, err := newSender(t, provider.URL()).Send(t.Context(), again, charge())
	if err != nil || !result.Replayed || len(provider.Ledger()) != 1 {
		t.Errorf("%+v, %v, %+v", result, err, provider.Ledger())
	}
}
