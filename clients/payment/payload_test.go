package payment

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestPayload(t *testing.T) {
	const charge = `"action":"create_and_confirm","amount":1999,"currency":"usd","payment_method":"pm_1"`
	for payload, want := range map[string]string{ // want: "" or what the error begins with
		`{` + charge + `}`: "",
		`{` + charge + `,"customer":"cus_1","off_session":true,"metadata":{"order":"7"},"capture_method":"manual"}`: "",
		`{"action":"create","amount":1,"currency":"jpy","payment_method_types":["card"]}`:                           "",
		`{"action":"confirm","payment_intent":"pi_1","return_url":"https://example.com/back"}`:                      "",
		`{"action":"capture","payment_intent":"pi_1"}`:                                                              "",
		`{"action":"capture","payment_intent":"pi_1","amount_to_capture":5}`:                                        "",
		`{"action":"refund","payment_intent":"pi_1"}`:                                                               "",
		`{"action":"refund","payment_intent":"pi_1","amount":5,"reason":"duplicate"}`:                               "",

		`{` + charge + `,"payment_method_types":[]}`:                   "payment_method_types: must be a list",
		`{"action":"create","amount":5120,"currency":"kwd"}`:           "",
		`{"action":"create","amount":5124,"currency":"kwd"}`:           "", // Stripe says so, and may stop to
		`{"action":"create","amount":5,"currency":"xyz"}`:              "", // and which currencies there are
		`{"action":"refund","payment_intent":"pi_1","reason":"bored"}`: "",
		`{` + charge + `,"capture_method":"next_week"}`:                "",
		`{}`:                                   "action: it is not one of",
		`{"action":"cancel"}`:                  "action: it is not one of",
		`[]`:                                   "a payment must be a JSON object",
		`null`:                                 "a payment must be a JSON object",
		`{"action":"create","currency":"usd"}`: "amount: it is missing",
		`{"action":"create","amount":0,"currency":"usd"}`:                                  "amount: 0 is not above 0",
		`{"action":"create","amount":-5,"currency":"usd"}`:                                 "amount: -5 is not above 0",
		`{"action":"create","amount":1000000000000,"currency":"usd"}`:                      "amount: 1000000000000 has more",
		`{"action":"create","amount":19.99,"currency":"usd"}`:                              "amount: must be a whole number",
		`{"action":"create","amount":5.0,"currency":"usd"}`:                                "amount: must be a whole number",
		`{"action":"create","amount":1e3,"currency":"usd"}`:                                "amount: must be a whole number",
		`{"action":"create","amount":"5","currency":"usd"}`:                                "amount: must be a whole number",
		`{"action":"create","amount":99999999999999999999,"currency":"usd"}`:               "amount: must be a whole number",
		`{"action":"create","amount":5,"amount":500,"currency":"usd"}`:                     "amount: duplicate field",
		`{"action":"create","Amount":5,"currency":"usd"}`:                                  `Amount: unknown field; did you mean "amount"?`,
		`{"action":"create","amount":5,"currency":"usd","coupon":"x"}`:                     "coupon: unknown field",
		`{"action":"refund","payment_intent":"pi_1","amount":null}`:                        "amount: it is null",
		`{"action":"refund","payment_intent":"pi_1","amount":0}`:                           "amount: 0 is not above 0",
		`{"action":"refund","amount":5}`:                                                   "payment_intent: it is missing",
		`{"action":"refund","payment_intent":"pi_1","reason":"I was bored"}`:               "reason: it is not a name",
		`{"action":"create","amount":5}`:                                                   "currency: it is missing",
		`{"action":"create","amount":5,"currency":"USD"}`:                                  "currency: must be three lower-case letters such as usd, not \"USD\"",
		`{"action":"create","amount":5,"currency":"euro"}`:                                 "currency: must be three",
		`{"action":"create","amount":5,"currency":"us"}`:                                   "currency: must be three",
		`{"action":"create","amount":5,"currency":"u$d"}`:                                  "currency: must be three",
		`{"action":"confirm"}`:                                                             "payment_intent: it is missing",
		`{"action":"capture","payment_intent":""}`:                                         "payment_intent: it is missing",
		`{"action":"capture","payment_intent":"pi_1/../../customers"}`:                     "payment_intent: it is not a Stripe id",
		`{"action":"capture","payment_intent":"pi_1_secret_abc"}`:                          "payment_intent: it is a client secret",
		`{"action":"capture","payment_intent":"pi_1","amount":5}`:                          "amount: not allowed with capture",
		`{"action":"capture","payment_intent":"pi_1","amount_to_capture":1.5}`:             "amount_to_capture: must be a whole number",
		`{"action":"capture","payment_intent":"pi_1","currency":"usd"}`:                    "currency: not allowed with capture",
		`{"action":"create_and_confirm","amount":5,"currency":"usd"}`:                      "payment_method: it is missing",
		`{` + charge + `,"payment_intent":"pi_1"}`:                                         "payment_intent: not allowed with create_and_confirm",
		`{` + charge + `,"customer":"cus 1"}`:                                              "customer: it is not a Stripe id",
		`{` + charge + `,"customer":7}`:                                                    "customer: must be a text, not number",
		`{` + charge + `,"off_session":"yes"}`:                                             "off_session: must be true or false",
		`{` + charge + `,"payment_method_types":"card"}`:                                   "payment_method_types: must be a list",
		`{` + charge + `,"payment_method_types":["card "]}`:                                "payment_method_types: must be a list",
		`{` + charge + `,"capture_method":"later on"}`:                                     "capture_method: it is not a name",
		`{` + charge + `,"return_url":"back"}`:                                             "return_url: it is not a URL",
		`{` + charge + `,"receipt_email":"you"}`:                                           "receipt_email: it has no @",
		`{` + charge + `,"description":"a\u0000b"}`:                                        "description: it has control",
		`{` + charge + `,"statement_descriptor_suffix":"` + strings.Repeat("x", 23) + `"}`: "statement_descriptor_suffix: it has more than 22",
		`{` + charge + `,"metadata":{"n":7}}`:                                              "metadata",
		`{` + charge + `,"metadata":{"headgate_tenant":"x"}}`:                              "metadata: headgate_tenant is reserved",
		`{` + charge + `,"metadata":{"headgate_job":"x"}}`:                                 "metadata: headgate_job is reserved",
		`{` + charge + `,"metadata":{"a[b]":"x"}}`:                                         "metadata: a key is",
		`{` + charge + `,"metadata":{"a":"` + strings.Repeat("x", 501) + `"}}`:             "metadata: the value of",
		`{` + charge + `} {}`:                                                              "invalid character",
	} {
		var p Payload
		err := json.Unmarshal([]byte(payload), &p)
		if err == nil {
			err = p.Validate()
		}
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", payload, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%s: %v; want %s…", payload, err, want)
		}
	}
}

// Everything that is wrong is said at once.
func TestCheckSaysAll(t *testing.T) {
	err := Payload{Action: Create, Amount: new(int64(-1)), Currency: "xx", PaymentIntent: "pi_1"}.Validate()
	if n := strings.Count(err.Error(), "\n") + 1; n != 3 {
		t.Errorf("%d: %v", n, err)
	}
}

func FuzzPayload(f *testing.F) {
	f.Add([]byte(`{"action":"create","amount":5,"currency":"usd","metadata":{"a":"b"}}`))
	f.Add([]byte(`{"action":"refund","payment_intent":"pi_1","amount":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Payload
		if json.Unmarshal(data, &p) != nil || p.Validate() != nil {
			return
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var again Payload
		if err := json.Unmarshal(text, &again); err != nil || again.Validate() != nil {
			t.Fatalf("%s came back as %v, %v", text, err, again.Validate())
		}
		if p.Amount != nil && *p.Amount < 1 || p.AmountToCapture != nil && *p.AmountToCapture < 1 {
			t.Fatalf("%s was taken", data)
		}
	})
}
