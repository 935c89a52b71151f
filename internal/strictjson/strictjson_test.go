package strictjson

import (
	"encoding/json"
	"errors"
	"io"
	"testing"
)

func TestMembers(t *testing.T) {
	known := []string{"amount", "currency"}
	members, err := Members([]byte(` {"amount": 5, "currency": {"a": 1, "a": 2}} `), known)
	if err != nil || string(members["amount"]) != "5" || string(members["currency"]) != `{"a": 1, "a": 2}` {
		t.Errorf("%s, %v", members, err)
	}
	if members, err := Members([]byte(`{"x": null}`), nil); err != nil || string(members["x"]) != "null" {
		t.Errorf("with all names allowed: %s, %v", members, err)
	}
	for text, want := range map[string]string{
		`{"ammount": 5}`:            `ammount: unknown field; did you mean "amount"?`,
		`{"Amount": 5}`:             `Amount: unknown field; did you mean "amount"?`,
		`{"zzzzzzzzz\n": 5}`:        "zzzzzzzzz : unknown field",
		`{"amount": 5, "amount":6}`: "amount: duplicate field",
	} {
		_, err := Members([]byte(text), known)
		if field, ok := errors.AsType[*FieldError](err); !ok || field.Error() != want {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
	for text, want := range map[string]error{
		`[]`: ErrNotObject, `"amount"`: ErrNotObject, `null`: ErrNotObject,
		`{} {}`: ErrTrailing, `{}]`: ErrTrailing, `{},`: ErrTrailing,
		``: io.EOF, `{"amount": 5`: io.EOF,
	} {
		if _, err := Members([]byte(text), known); !errors.Is(err, want) {
			t.Errorf("%s: %v; want %v", text, err, want)
		}
	}
	for _, text := range []string{`{amount: 5}`, `{"amount" 5}`, `{"amount": x}`, `{"amount": 5,}`, `{"amount": 5]`} {
		if _, err := Members([]byte(text), known); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

// What Members takes is JSON, and encoding/json reads the same fields from it.
func FuzzMembers(f *testing.F) {
	f.Add(`{"a": [1, {"b": "c"}], "d": null}`)
	f.Add(`{"a": 1, "a": 2}`)
	f.Fuzz(func(t *testing.T, text string) {
		members, err := Members([]byte(text), nil)
		if err != nil {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &want); err != nil || len(want) != len(members) {
			t.Errorf("%q: %d members, %d in encoding/json, %v", text, len(members), len(want), err)
		}
	})
}
