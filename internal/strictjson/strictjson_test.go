package strictjson

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/check"
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
	members, err = Members([]byte(`{"ammount": 5, "amount": 6, "amount": 7, "x": 8, "currency": 1}`), known)
	if fields := FieldErrors(err); len(fields) != 3 || fields[0].Field != "ammount" || fields[1].Field != "amount" || fields[2].Field != "x" || len(members) != 2 || string(members["amount"]) != "6" {
		t.Errorf("three mistakes: %v; %s", err, members)
	}
	_, err = Members([]byte(`{"amount":5`+strings.Repeat(`,"amount":5`, 100_000)+`}`), nil)
	if fields := FieldErrors(err); len(fields) != check.MaxErrors+1 || fields[check.MaxErrors-1].Reason != "duplicate field" || fields[check.MaxErrors].Reason != check.AndMore {
		t.Errorf("100,000 mistakes: %d, %.200v", len(fields), err)
	}
	long := strings.Repeat("a", check.MaxTenant)
	if _, err := Members([]byte(`{"`+long+`a":5}`), []string{long}); FieldErrors(err)[0].Reason != "unknown field" {
		t.Errorf("a long name is compared: %v", err)
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

// TestDecode: all invalid fields are reported, and the others are read.
func TestDecode(t *testing.T) {
	type inner struct {
		A int `json:"a"`
	}
	type ending struct {
		Until *string `json:"until"`
	}
	type body struct {
		ending
		Name  string          `json:"name"`
		N     *int64          `json:"n"`
		Costs map[string]int  `json:"costs"`
		Inner inner           `json:"inner"`
		Raw   json.RawMessage `json:"raw,omitempty"`
	}
	var got body
	if err := Decode([]byte(`{"until":"x","name":"n","n":null,"costs":{"a":1},"inner":{"a":2},"raw":[1]}`), &got); err != nil || *got.Until != "x" || got.Name != "n" || got.Inner.A != 2 || string(got.Raw) != "[1]" {
		t.Errorf("%+v, %v", got, err)
	}
	got = body{}
	err := Decode([]byte(`{"until":1,"nmae":"n","name":7,"n":1.5,"costs":{"a":"b"},"inner":{"a":"c"},"raw":true,"raw":1}`), &got)
	want := []string{
		`nmae: unknown field; did you mean "name"?`, "raw: duplicate field", "until: must be a text, not a JSON number", "name: must be a text, not a JSON number",
		"n: must be a whole number, not a JSON number 1.5", "costs: must be a whole number, not a JSON string", "inner.a: must be a whole number, not a JSON string",
	}
	var said []string
	for _, field := range FieldErrors(err) {
		said = append(said, field.Error())
	}
	if !slices.Equal(said, want) || string(got.Raw) != "true" {
		t.Errorf("%q; want %q", said, want)
	}
	for text, want := range map[string]error{`[]`: ErrNotObject, `{} {}`: ErrTrailing, `{"n":1`: io.EOF} {
		if err := Decode([]byte(text), &got); !errors.Is(err, want) || FieldErrors(err) != nil {
			t.Errorf("%s: %v; want %v", text, err, want)
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
