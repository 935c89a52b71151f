// Package payloads checks the payloads of the kinds for which Headgate has handlers, and
// estimates their costs. It accepts any payload of another kind.
package payloads

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"

	"github.com/headgate/headgate/clients/ai"
	"github.com/headgate/headgate/clients/email"
	"github.com/headgate/headgate/clients/payment"
	"github.com/headgate/headgate/clients/webhook"
	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/queue/validation"
)

// Check returns the reasons why the kind's own handler would reject the payload for good. Each
// is a [validation.Error] with the field within the payload, if it is about one. Check returns
// nil if there are none, or if Headgate has no handler for the kind.
func Check(kind string, payload json.RawMessage) []error {
	switch kind {
	case "webhook":
		return checkFields(payload, &webhook.Request{})
	case "email":
		return checkFields(payload, &email.Message{})
	case "ai":
		return checkWhole(payload, new(ai.Request))
	case "payment":
		return checkWhole(payload, &payment.Payload{})
	}
	return nil
}

type validator interface{ Validate() error }

// checkFields checks a payload that is a plain struct: what can be read of it is checked beside
// the fields that cannot.
func checkFields(payload json.RawMessage, value validator) []error {
	var all []error
	seen := map[string]bool{}
	err := strictjson.Decode(payload, value)
	if fields := strictjson.FieldErrors(err); len(fields) > 0 {
		for _, wrong := range fields {
			seen[wrong.Field] = true
			all = append(all, validation.Field(check.Printable(wrong.Field, 60), wrong.Reason))
		}
	} else if err != nil {
		return []error{err}
	} else if err := decodeStrictly(payload, value); err != nil { // fields of fields
		all = append(all, err)
	}
	for _, err := range reasons(value.Validate()) {
		if wrong, ok := errors.AsType[*validation.Error](err); !ok || !seen[wrong.Field] {
			all = append(all, err)
		}
	}
	return all
}

// checkWhole checks a payload that reads itself.
func checkWhole(payload json.RawMessage, value validator) []error {
	if err := decodeStrictly(payload, value); err != nil {
		return reasons(err)
	}
	return reasons(value.Validate())
}

func decodeStrictly(payload json.RawMessage, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		if len(strictjson.FieldErrors(err)) > 0 {
			return err
		}
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// named is the beginning of an error of a client's Validate that is about a field.
var named = regexp.MustCompile(`^([a-z_]+(?:\[[0-9]+\])?(?:\.[a-z_]+)*): `)

// reasons returns the errors that were joined, with their fields.
func reasons(err error) (all []error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			all = append(all, reasons(err)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	text := err.Error()
	if field := named.FindStringSubmatch(text); field != nil {
		return []error{validation.Field(field[1], text[len(field[0]):])}
	}
	return []error{err}
}

// PrivateHost returns the host that a webhook calls if it is certainly not a public internet
// address, see [webhook.Request.PrivateHost]; "" for others.
func PrivateHost(kind string, payload json.RawMessage) string {
	var r webhook.Request
	if kind != "webhook" || json.Unmarshal(payload, &r) != nil {
		return ""
	}
	return r.PrivateHost()
}

// SenderDomain returns the domain from which a job sends mail, in lower case; "" if it sends none.
func SenderDomain(kind string, payload json.RawMessage) string {
	var m email.Message
	if kind != "email" || json.Unmarshal(payload, &m) != nil {
		return ""
	}
	return m.SenderDomain()
}

// Costs estimates how much a job takes of limits with a unit. It returns nil if the kind has
// no estimate.
func Costs(kind string, payload json.RawMessage) map[string]int64 {
	switch kind {
	case "ai":
		return ai.Request(payload).Costs()
	case "email":
		var m email.Message
		if json.Unmarshal(payload, &m) == nil {
			return m.Costs()
		}
	}
	return nil
}
