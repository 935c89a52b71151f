package payloads

import (
	"encoding/json"
	"errors"
	"testing"
)

// TestCheck: all mistakes of a payload are told at once, each with its field within the payload.
func TestCheck(t *testing.T) {
	tests := []struct{ kind, payload, want string }{
		{"webhook", `{"url":"https://example.com/"}`, ""},
		{"webhook", `{"boody":1,"ulr":"x","method":"connect"}`, "boody: unknown field; did you mean \"body\"?\nulr: unknown field; did you mean \"url\"?\n" +
			"url: it is empty\nmethod: it must be in capitals, at most 32 long, and not CONNECT or TRACE"},
		{"webhook", `{"url":7,"text":"x","body":"x"}`, "url: must be a text, not a JSON number\ntext: set body or text, not both"},
		{"webhook", `[]`, "must be a JSON object"},
		{"email", `{"from":"a@example.com","to":["b@example.com"],"subject":"s","text":"t","attachments":[{"filename":"f","contents":""}]}`, `unknown field "contents"`},
		{"ai", `{"modle":"x"}`, "model: it is missing\nmessages: it is missing or empty"},
		{"payment", `{"action":"refund","amuont":5,"payment_itent":"pi_1"}`, "amuont: unknown field; did you mean \"amount\"?\npayment_itent: unknown field; did you mean \"payment_intent\"?"},
		{"payment", `{"action":"refund","amount":0}`, "payment_intent: it is missing, but refund requires it\namount: 0 is not above 0"},
		{"mine", `{"anything":1}`, ""},
	}
	for _, test := range tests {
		got := ""
		if err := errors.Join(Check(test.kind, json.RawMessage(test.payload))...); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s %s:\n%s\nwant\n%s", test.kind, test.payload, got, test.want)
		}
	}
}
