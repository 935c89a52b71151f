package payment

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/strictjson"
)

// The actions of a [Payload].
const (
	Create           = "create"             // a PaymentIntent to be confirmed by someone else
	Confirm          = "confirm"            // an existing PaymentIntent
	CreateAndConfirm = "create_and_confirm" // both in one call: a charge
	Capture          = "capture"            // an authorized payment
	Refund           = "refund"             // the rest of a payment, or a part
)

// Payload is one call to Stripe, and the payload of a payment job. The fields other than Action
// are those of Stripe's request bodies. Each is allowed only with some actions.
type Payload struct {
	// Action is create, confirm, create_and_confirm, capture or refund.
	Action string `json:"action"`

	// Amount is in the currency's smallest unit: 1999 is 19.99 USD or 1999 JPY. It is required for
	// create and create_and_confirm. For refund, nil means the whole rest.
	Amount *int64 `json:"amount,omitempty"`

	// AmountToCapture, for capture, is also in the smallest unit. nil means the whole amount; if
	// it is less, the rest is released.
	AmountToCapture *int64 `json:"amount_to_capture,omitempty"`

	Currency           string   `json:"currency,omitempty"`             // such as usd; create*
	Customer           string   `json:"customer,omitempty"`             // create*
	PaymentMethod      string   `json:"payment_method,omitempty"`       // create*, confirm
	PaymentMethodTypes []string `json:"payment_method_types,omitempty"` // create*; nil: as set in the dashboard
	PaymentIntent      string   `json:"payment_intent,omitempty"`       // confirm, capture, refund

	// CaptureMethod is automatic, automatic_async or manual (authorize now, capture
	// later); "" means Stripe's default. create*, confirm
	CaptureMethod string `json:"capture_method,omitempty"`

	// OffSession means that the customer is not present to authenticate: a payment that requires
	// it is declined. create_and_confirm, confirm
	OffSession bool `json:"off_session,omitempty"`

	// ReturnURL is for payment methods that redirect the customer. "" means that
	// create_and_confirm uses none of these. create_and_confirm, confirm
	ReturnURL string `json:"return_url,omitempty"`

	Description               string            `json:"description,omitempty"`                 // create*
	ReceiptEmail              string            `json:"receipt_email,omitempty"`               // create*, confirm
	StatementDescriptorSuffix string            `json:"statement_descriptor_suffix,omitempty"` // create*, capture
	Reason                    string            `json:"reason,omitempty"`                      // refund: duplicate, fraudulent, requested_by_customer
	Metadata                  map[string]string `json:"metadata,omitempty"`                    // all but confirm
}

// The required and the optional fields of each action.
var actions = map[string]struct{ needs, may []string }{
	Create: {
		[]string{"amount", "currency"},
		[]string{"customer", "payment_method", "payment_method_types", "capture_method", "description", "receipt_email", "statement_descriptor_suffix", "metadata"},
	},
	CreateAndConfirm: {
		[]string{"amount", "currency", "payment_method"},
		[]string{"customer", "payment_method_types", "capture_method", "off_session", "return_url", "description", "receipt_email", "statement_descriptor_suffix", "metadata"},
	},
	Confirm: {
		[]string{"payment_intent"},
		[]string{"payment_method", "capture_method", "off_session", "return_url", "receipt_email"},
	},
	Capture: {
		[]string{"payment_intent"},
		[]string{"amount_to_capture", "statement_descriptor_suffix", "metadata"},
	},
	Refund: {
		[]string{"payment_intent"},
		[]string{"amount", "reason", "metadata"},
	},
}

const (
	maxAmount   = 999_999_999_999 // twelve digits, Stripe's max of all currencies
	maxText     = 1000            // characters
	maxSuffix   = 22              // characters, the max of a statement
	maxMetadata = 48              // Stripe's 50 without the two below
	maxValue    = 500             // characters of a value, Stripe's maximum

	// Headgate's own metadata: the job and the tenant that created an object.
	metadataJob    = "headgate_job"
	metadataTenant = "headgate_tenant"
)

// UnmarshalJSON reads an object with fields of a Payload. It refuses unknown, duplicate and null
// fields, so that a misspelled field does not result in another payment.
func (p *Payload) UnmarshalJSON(data []byte) error {
	members, err := strictjson.Members(data, append(slices.Sorted(maps.Keys(p.present())), "action"))
	if errors.Is(err, strictjson.ErrNotObject) {
		return errors.New("a payment must be a JSON object")
	}
	if err != nil {
		return err
	}
	for name, value := range members {
		if string(value) == "null" {
			return fmt.Errorf("%s: it is null: set a value or remove the field", name)
		}
	}
	type plain Payload // without this method
	var value plain
	if err := json.Unmarshal(data, &value); err != nil {
		wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
		switch {
		case ok && strings.HasPrefix(wrong.Field, "amount"):
			return fmt.Errorf("%s: must be a whole number of the smallest unit, such as 1999 for 19.99, not %.30s", wrong.Field, wrong.Value)
		case ok:
			return fmt.Errorf("%s: must be %s, not %.30s", wrong.Field, strictjson.TypeWords(wrong.Type), wrong.Value)
		}
		return err
	}
	*p = Payload(value)
	return nil
}

// present reports, for each field other than the action, whether it is set.
func (p *Payload) present() map[string]bool {
	return map[string]bool{
		"amount": p.Amount != nil, "amount_to_capture": p.AmountToCapture != nil,
		"currency": p.Currency != "", "customer": p.Customer != "",
		"payment_method": p.PaymentMethod != "", "payment_method_types": p.PaymentMethodTypes != nil,
		"payment_intent": p.PaymentIntent != "", "capture_method": p.CaptureMethod != "",
		"off_session": p.OffSession, "return_url": p.ReturnURL != "", "description": p.Description != "",
		"receipt_email": p.ReceiptEmail != "", "statement_descriptor_suffix": p.StatementDescriptorSuffix != "",
		"reason": p.Reason != "", "metadata": len(p.Metadata) > 0,
	}
}

// Validate returns all errors of the payload, joined, each with the field's name, or nil. It
// makes no requests: only Stripe knows whether a customer exists, its minimum amounts, and the
// currencies, capture methods and reasons.
func (p Payload) Validate() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf(field+": "+format, args...))
	}
	action, known := actions[p.Action]
	if !known {
		return errors.New("action: it is not one of create, confirm, create_and_confirm, capture, refund")
	}
	present := p.present()
	for _, field := range action.needs {
		if !present[field] {
			wrong(field, "it is missing, but %s requires it", p.Action)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(present)) {
		if present[field] && !slices.Contains(action.needs, field) && !slices.Contains(action.may, field) {
			wrong(field, "not allowed with %s", p.Action)
		}
	}
	amount := func(field string, value *int64) {
		switch {
		case value == nil:
		case *value < 1:
			wrong(field, "%d is not above 0", *value)
		case *value > maxAmount:
			wrong(field, "%d has more than twelve digits", *value)
		}
	}
	amount("amount", p.Amount)
	amount("amount_to_capture", p.AmountToCapture)
	if p.Currency != "" && !currency.MatchString(p.Currency) {
		wrong("currency", "must be three lower-case letters such as usd, not %.10q", p.Currency)
	}
	for field, id := range map[string]string{"customer": p.Customer, "payment_method": p.PaymentMethod, "payment_intent": p.PaymentIntent} {
		// The texts do not repeat the value, which may be a secret.
		switch {
		case strings.Contains(id, "_secret_"):
			wrong(field, "it is a client secret: use only the id before _secret_")
		case id != "" && !isID(id):
			wrong(field, "it is not a Stripe id: at most 255 letters, digits, _ and -")
		}
	}
	for field, name := range map[string]string{"capture_method": p.CaptureMethod, "reason": p.Reason} {
		if name != "" && !isID(name) {
			wrong(field, "it is not a name such as manual or duplicate: letters, digits, _ and -")
		}
	}
	if n := len(p.PaymentMethodTypes); n > 50 || n == 0 && p.PaymentMethodTypes != nil || slices.ContainsFunc(p.PaymentMethodTypes, func(name string) bool { return !isID(name) }) {
		wrong("payment_method_types", "must be a list of names such as card")
	}
	if u, err := url.Parse(p.ReturnURL); p.ReturnURL != "" && (err != nil || u.Scheme == "" || len(p.ReturnURL) > 5000) {
		wrong("return_url", "it is not a URL")
	}
	text := func(field, value string, most int) {
		switch {
		case !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
			wrong(field, "it has control characters, or is not UTF-8")
		case utf8.RuneCountInString(value) > most:
			wrong(field, "it has more than %d characters", most)
		}
	}
	text("description", p.Description, maxText)
	text("statement_descriptor_suffix", p.StatementDescriptorSuffix, maxSuffix)
	text("receipt_email", p.ReceiptEmail, 800)
	if p.ReceiptEmail != "" && !strings.Contains(p.ReceiptEmail, "@") {
		wrong("receipt_email", "it has no @")
	}
	if len(p.Metadata) > maxMetadata {
		wrong("metadata", "%d entries; the maximum is %d", len(p.Metadata), maxMetadata)
	}
	for _, key := range slices.Sorted(maps.Keys(p.Metadata)) {
		value := p.Metadata[key]
		switch {
		case key == metadataJob || key == metadataTenant:
			wrong("metadata", "%s is reserved", key)
		case key == "" || utf8.RuneCountInString(key) > 40 || !utf8.ValidString(key) || strings.ContainsAny(key, "[]") || strings.ContainsFunc(key, unicode.IsControl):
			wrong("metadata", "a key is empty, longer than 40 characters, or has brackets or control characters")
		case !utf8.ValidString(value) || utf8.RuneCountInString(value) > maxValue:
			wrong("metadata", "the value of %q has more than 500 characters, or is not UTF-8", key)
		}
	}
	return errors.Join(errs...)
}

// currency matches an ISO code in Stripe's spelling.
var currency = regexp.MustCompile(`^[a-z]{3}$`)

// isID reports whether a text can be an id. Ids become parts of paths, so they must have no
// special characters. Prefixes are not checked, because Stripe may change them.
func isID(text string) bool {
	return text != "" && len(text) <= 255 && !strings.ContainsFunc(text, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-')
	})
}
