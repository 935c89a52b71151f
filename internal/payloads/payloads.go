// Package payloads checks the payloads of the kinds for which Headgate has handlers, and
// estimates their costs. It accepts any payload of another kind.
package payloads

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/headgate/headgate/clients/ai"
	"github.com/headgate/headgate/clients/email"
	"github.com/headgate/headgate/clients/payment"
	"github.com/headgate/headgate/clients/webhook"
)

// Check returns the reasons why the kind's own handler would reject the payload for good. It
// returns nil if there are none, or if Headgate has no handler for the kind.
func Check(kind string, payload json.RawMessage) []error {
	var value interface{ Validate() error }
	switch kind {
	case "webhook":
		value = &webhook.Request{}
	case "email":
		value = &email.Message{}
	case "ai":
		value = &ai.Request{}
	case "payment":
		value = &payment.Payload{}
	default:
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil {
		return []error{errors.New(strings.TrimPrefix(err.Error(), "json: "))}
	}
	err := value.Validate()
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
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

// Costs estimates how much a job takes of limits with a unit. It returns nil if the kind has
// no estimate.
func Costs(kind string, payload json.RawMessage) map[string]int64 {
	switch kind {
	case "ai":
		return ai.Estimate(ai.Request(payload))
	case "email":
		var m email.Message
		if json.Unmarshal(payload, &m) == nil {
			return email.Estimate(m)
		}
	}
	return nil
}
