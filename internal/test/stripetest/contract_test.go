package stripetest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stripe/stripe-mock/embedded"
	"github.com/stripe/stripe-mock/server"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/payment"
	"github.com/headgate/headgate/clients/sandbox"
)

// mock is Stripe as its API's description has it: it refuses parameters that the
// API does not take, and remembers nothing.
func mock(t *testing.T) (url string, bodies func() []string) {
	t.Helper()
	spec, err := server.LoadSpec(embedded.OpenAPISpec, "")
	if err != nil {
		t.Fatal(err)
	}
	fixtures, err := server.LoadFixtures(embedded.OpenAPIFixtures, "")
	if err != nil {
		t.Fatal(err)
	}
	quiet(t)
	stub, err := server.NewStubServer(fixtures, spec, false, false)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var sent []string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		sent = append(sent, r.URL.Path+" "+string(body))
		mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		stub.HandleRequest(w, r)
	}))
	t.Cleanup(web.Close)
	return web.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(sent)
	}
}

// quiet keeps stripe-mock from printing every request.
func quiet(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = null
	t.Cleanup(func() { os.Stdout = stdout; null.Close() })
}

// Every field of every action is a parameter that Stripe takes.
func TestParameters(t *testing.T) {
	url, bodies := mock(t)
	sender, err := payment.New(payment.Config{Key: "sk_test_123", URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	for name, text := range map[string]string{
		"create": `{"action":"create","amount":1999,"currency":"usd","customer":"cus_1","payment_method":"pm_1","payment_method_types":["card"],
			"capture_method":"manual","description":"d","receipt_email":"a@example.com","statement_descriptor_suffix":"s","metadata":{"order":"7"}}`,
		"create_and_confirm": `{"action":"create_and_confirm","amount":1999,"currency":"usd","customer":"cus_1","payment_method":"pm_1","off_session":true}`,
		"with types and a return": `{"action":"create_and_confirm","amount":1999,"currency":"usd","payment_method":"pm_1","payment_method_types":["card"],
			"return_url":"https://example.com/back"}`,
		"confirm": `{"action":"confirm","payment_intent":"pi_1","payment_method":"pm_1","capture_method":"automatic_async","off_session":true,
			"return_url":"https://example.com/back","receipt_email":"a@example.com"}`,
		"capture": `{"action":"capture","payment_intent":"pi_1","amount_to_capture":5,"statement_descriptor_suffix":"s","metadata":{"order":"7"}}`,
		"refund":  `{"action":"refund","payment_intent":"pi_1","amount":5,"reason":"duplicate","metadata":{"order":"7"}}`,
	} {
		var payload payment.Payload
		if err := json.Unmarshal([]byte(text), &payload); err != nil {
			t.Fatal(err)
		}
		result, err := sender.Send(t.Context(), clients.Call{Job: "018f", Tenant: "acme", Attempt: 1, IdempotencyKey: name}, payload)
		switch {
		case err == nil && result.ID != "":
		case err != nil && strings.Contains(err.Error(), "requires_"):
			// Its PaymentIntent is always the same one, which nobody has confirmed.
		default:
			t.Errorf("%s: %+v, %v", name, result, err)
		}
	}
	if got := bodies(); len(got) != 6 {
		t.Errorf("%d requests: %q", len(got), got)
	}
}

// The mock does refuse what is no parameter; otherwise the test above says
// nothing.
func TestMockRefuses(t *testing.T) {
	url, _ := mock(t)
	response := post(t, url+"/v1/payment_intents", "amount=5&currency=usd&bogus=1")
	if response.status != http.StatusBadRequest {
		t.Errorf("%d %s", response.status, response.body)
	}
}

// What the sandbox shows of an object is a part of what Stripe shows of it, in
// the same types.
func TestSandboxObjects(t *testing.T) {
	url, _ := mock(t)
	played, err := sandbox.NewStripe()
	if err != nil {
		t.Fatal(err)
	}
	defer played.Close()
	intent := post(t, played.URL()+"/v1/payment_intents", "amount=5&currency=usd&payment_method=pm_card_visa&confirm=true").object(t)
	refund := post(t, played.URL()+"/v1/refunds", "payment_intent="+intent["id"].(string)).object(t)
	for _, pair := range [][2]map[string]any{
		{intent, post(t, url+"/v1/payment_intents", "amount=5&currency=usd").object(t)},
		{refund, post(t, url+"/v1/refunds", "payment_intent=pi_1").object(t)},
	} {
		ours, theirs := pair[0], pair[1]
		for _, field := range slices.Sorted(maps.Keys(ours)) {
			their, ok := theirs[field]
			if !ok {
				t.Errorf("%v: Stripe has no %s", ours["object"], field)
				continue
			}
			if a, b := jsonType(ours[field]), jsonType(their); a != b && a != "null" && b != "null" {
				t.Errorf("%v: %s is %s; Stripe's is %s", ours["object"], field, a, b)
			}
		}
	}
}

func jsonType(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case string:
		return "text"
	case float64:
		return "number"
	case bool:
		return "bool"
	case []any:
		return "list"
	}
	return "object"
}

type response struct {
	status int
	body   []byte
}

func (r response) object(t *testing.T) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(r.body, &object); err != nil || r.status != http.StatusOK {
		t.Fatalf("%d %s: %v", r.status, r.body, err)
	}
	return object
}

func post(t *testing.T, url, form string) response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer sk_test_123")
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{answer.StatusCode, body}
}
