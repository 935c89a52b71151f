package sandbox

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

type stripeReply struct {
	status int
	header http.Header
	body   map[string]any
}

func (r stripeReply) text(path ...string) string {
	var value any = r.body
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	text, _ := value.(string)
	return text
}

// ask makes a request as no library would repeat it.
func ask(t *testing.T, s *Stripe, method, path, key, form string) (stripeReply, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer sk_test_1")
	if key != "" {
		r.Header["idempotency-key"] = []string{key}
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return stripeReply{}, err
	}
	defer answer.Body.Close()
	reply := stripeReply{status: answer.StatusCode, header: answer.Header}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &reply.body); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return reply, nil
}

func newStripe(t *testing.T, config ...Config) *Stripe {
	t.Helper()
	s, err := NewStripe(config...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return s
}

const aCharge = "amount=500&currency=usd&payment_method=pm_card_visa&confirm=true"

func TestStripeKeys(t *testing.T) {
	s := newStripe(t)
	first, err := ask(t, s, "POST", "/v1/payment_intents", "k", aCharge)
	if err != nil || first.status != 200 || first.text("status") != "succeeded" || first.header.Get("Idempotent-Replayed") != "" {
		t.Fatalf("%+v, %v", first, err)
	}
	again, _ := ask(t, s, "POST", "/v1/payment_intents", "k", aCharge)
	if again.header.Get("Idempotent-Replayed") != "true" || again.text("id") != first.text("id") ||
		again.header.Get("Original-Request") != first.header.Get("Request-Id") || again.header.Get("Idempotency-Key") != "k" {
		t.Errorf("%+v", again)
	}
	other, _ := ask(t, s, "POST", "/v1/payment_intents", "k", aCharge+"&customer=cus_1")
	if other.status != 400 || other.text("error", "type") != "idempotency_error" {
		t.Errorf("%+v", other)
	}
	// Parameters that are refused leave the key unused.
	if bad, _ := ask(t, s, "POST", "/v1/payment_intents", "k2", "amount=x&currency=usd"); bad.status != 400 || bad.text("error", "code") != "parameter_invalid_integer" {
		t.Errorf("%+v", bad)
	}
	if good, _ := ask(t, s, "POST", "/v1/payment_intents", "k2", aCharge); good.status != 200 {
		t.Errorf("%+v", good)
	}
	// Without a key each is another.
	for range 2 {
		if reply, _ := ask(t, s, "POST", "/v1/payment_intents", "", aCharge); reply.status != 200 {
			t.Errorf("%+v", reply)
		}
	}
	if charges := s.Charges(); charges["k"] != 1 || charges["k2"] != 1 || charges[""] != 2 || s.Doubles() != 1 {
		t.Errorf("%v, %d doubles", charges, s.Doubles())
	}
	s.ForgetKeys()
	if late, _ := ask(t, s, "POST", "/v1/payment_intents", "k", aCharge); late.text("id") == first.text("id") || s.Doubles() != 2 {
		t.Errorf("%+v, %d doubles", late, s.Doubles())
	}
}

func TestStripeFaults(t *testing.T) {
	s := newStripe(t)
	for fault, want := range map[StripeFault]struct {
		status  int // 0: no answer
		charges int // afterwards
		later   int // status of a repeat
	}{
		StripeFine:             {200, 1, 200},
		StripeCutBefore:        {0, 0, 200},
		StripeCutAfter:         {0, 1, 200},
		StripeErrorBefore:      {503, 0, 200},
		StripeErrorAfter:       {500, 1, 500},
		StripeLockTimeout:      {429, 0, 200},
		StripeEndpointRate:     {429, 0, 200},
		StripeEndpointBusy:     {429, 0, 200},
		StripeAccountBusy:      {429, 0, 200},
		StripeResourceSpecific: {429, 0, 200},
	} {
		key := "key:" + string(fault)
		s.Inject(func(int) StripeFault { return fault })
		reply, err := ask(t, s, "POST", "/v1/payment_intents", key, aCharge)
		if reply.status != want.status || (err != nil) != (want.status == 0) || s.Charges()[key] != want.charges {
			t.Errorf("%s: %d, %v, %d charges", fault, reply.status, err, s.Charges()[key])
		}
		s.Inject(nil)
		reply, err = ask(t, s, "POST", "/v1/payment_intents", key, aCharge)
		if err != nil || reply.status != want.later || s.Charges()[key] != 1 || (reply.header.Get("Idempotent-Replayed") == "true") != (want.charges == 1) {
			t.Errorf("%s, again: %+v, %v, %d charges", fault, reply, err, s.Charges()[key])
		}
	}
	if s.Doubles() != 0 || s.InFlight() != 0 {
		t.Errorf("%d doubles, %d in flight", s.Doubles(), s.InFlight())
	}
}

// The faults that all providers have: nothing was done.
func TestStripeProviderFaults(t *testing.T) {
	s := newStripe(t)
	s.Drop(1)
	if reply, err := ask(t, s, "POST", "/v1/payment_intents", "k", aCharge); err == nil {
		t.Errorf("%+v", reply)
	}
	s.Fail(1, 502)
	if reply, _ := ask(t, s, "POST", "/v1/payment_intents", "k", aCharge); reply.status != 502 {
		t.Errorf("%+v", reply)
	}
	s.Slow(time.Millisecond)
	if reply, _ := ask(t, s, "POST", "/v1/payment_intents", "k", aCharge); reply.status != 200 || reply.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("%+v", reply)
	}
}

func TestStripeAnswers(t *testing.T) {
	s := newStripe(t, Config{Account: Limit{}})
	created, _ := ask(t, s, "POST", "/v1/payment_intents", "", "amount=500&currency=USD&metadata[order]=7")
	id := created.text("id")
	if created.text("metadata", "order") != "7" || created.text("currency") != "usd" || !strings.HasPrefix(created.text("client_secret"), id+"_secret_") {
		t.Errorf("%+v", created)
	}
	at := "/v1/payment_intents/" + id
	for _, tt := range []struct {
		method, path, form string
		status             int
		code               string // or the status of the object
	}{
		{"GET", at, "", 200, "requires_payment_method"},
		{"POST", at + "/confirm", "", 400, "payment_intent_unexpected_state"},
		{"POST", at + "/capture", "", 400, "payment_intent_unexpected_state"},
		{"POST", "/v1/refunds", "payment_intent=" + id, 400, "payment_intent_unexpected_state"},
		{"POST", at + "/confirm", "payment_method=card", 400, "resource_missing"},
		{"POST", at + "/confirm", "payment_method=pm_card_visa_chargeDeclined", 402, "card_declined"},
		{"POST", at + "/confirm", "payment_method=pm_card_authenticationRequired", 200, "requires_action"},
		{"POST", at + "/confirm", "payment_method=pm_card_authenticationRequired&off_session=true", 402, "authentication_required"},
		{"POST", at + "/confirm", "payment_method=pm_card_visa", 200, "succeeded"},
		{"POST", at + "/confirm", "payment_method=pm_card_visa", 400, "payment_intent_unexpected_state"},
		{"POST", "/v1/refunds", "payment_intent=" + id + "&amount=501", 400, ""},
		{"POST", "/v1/refunds", "payment_intent=" + id + "&amount=0", 400, "parameter_invalid_integer"},
		{"POST", "/v1/refunds", "payment_intent=" + id, 200, "succeeded"},
		{"POST", "/v1/refunds", "payment_intent=" + id, 400, "charge_already_refunded"},
		{"POST", "/v1/refunds", "", 400, "parameter_missing"},
		{"POST", "/v1/payment_intents", "currency=usd", 400, "parameter_missing"},
		{"POST", "/v1/payment_intents", "amount=1", 400, "parameter_missing"},
		{"GET", "/v1/payment_intents/pi_none", "", 404, "resource_missing"},
		{"GET", "/v1/payment_intents", "", 404, ""},
		{"DELETE", at, "", 404, ""},
		{"POST", at + "/cancel", "", 404, ""},
		{"POST", "/", "", 404, ""},
	} {
		reply, err := ask(t, s, tt.method, tt.path, "", tt.form)
		got := reply.text("error", "code")
		if reply.status == 200 {
			got = reply.text("status")
		}
		if err != nil || reply.status != tt.status || got != tt.code || !strings.HasPrefix(reply.header.Get("Request-Id"), "req_") {
			t.Errorf("%s %s %s: %+v, %v", tt.method, tt.path, tt.form, reply, err)
		}
	}
	s.SetAccountLimit(Limit{Burst: 1})
	ask(t, s, "GET", at, "", "")
	if limited, _ := ask(t, s, "GET", at, "", ""); limited.status != 429 || limited.header.Get("Stripe-Rate-Limited-Reason") != "global-rate" || limited.header.Get("Retry-After") != "" {
		t.Errorf("%+v", limited)
	}
}
