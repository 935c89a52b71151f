package sandbox

import (
	"cmp"
	"crypto/rand"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// stripeIntent is a PaymentIntent in the format of Stripe's API.
type stripeIntent struct {
	ID               string            `json:"id"`
	Object           string            `json:"object"`
	Amount           int64             `json:"amount"`
	AmountCapturable int64             `json:"amount_capturable"`
	AmountReceived   int64             `json:"amount_received"`
	CaptureMethod    string            `json:"capture_method"`
	ClientSecret     string            `json:"client_secret"`
	Confirmation     string            `json:"confirmation_method"`
	Created          int64             `json:"created"`
	Currency         string            `json:"currency"`
	Customer         *string           `json:"customer"`
	Description      *string           `json:"description"`
	LastError        any               `json:"last_payment_error"`
	LatestCharge     *string           `json:"latest_charge"`
	Livemode         bool              `json:"livemode"`
	Metadata         map[string]string `json:"metadata"`
	NextAction       any               `json:"next_action"`
	PaymentMethod    *string           `json:"payment_method"`
	MethodTypes      []string          `json:"payment_method_types"`
	Status           string            `json:"status"`

	refunded int64
}

// stripeDeclines are Stripe's failing test payment methods, with their code and decline code, if
// any (https://docs.stripe.com/testing).
var stripeDeclines = map[string][2]string{
	"pm_card_visa_chargeDeclined":                      {"card_declined", "generic_decline"},
	"pm_card_visa_chargeDeclinedInsufficientFunds":     {"card_declined", "insufficient_funds"},
	"pm_card_visa_chargeDeclinedLostCard":              {"card_declined", "lost_card"},
	"pm_card_visa_chargeDeclinedStolenCard":            {"card_declined", "stolen_card"},
	"pm_card_visa_chargeDeclinedVelocityLimitExceeded": {"card_declined", "card_velocity_exceeded"},
	"pm_card_chargeDeclinedExpiredCard":                {"expired_card", ""},
	"pm_card_chargeDeclinedIncorrectCvc":               {"incorrect_cvc", ""},
	"pm_card_chargeDeclinedProcessingError":            {"processing_error", ""},
	"pm_card_radarBlock":                               {"card_declined", "fraudulent"},
}

// needsCustomer is the test payment method that requires authentication.
const needsCustomer = "pm_card_authenticationRequired"

const intentsPath = "/v1/payment_intents"

// intentOf returns the id of the PaymentIntent of a request; "" for a new one.
func intentOf(r *http.Request, form url.Values) string {
	if rest, ok := strings.CutPrefix(r.URL.Path, intentsPath+"/"); ok {
		id, _, _ := strings.Cut(rest, "/")
		return id
	}
	return form.Get("payment_intent")
}

// work executes a request.
func (s *Stripe) work(r *http.Request, form url.Values, said Call) stripeAnswer {
	s.stripe.Lock()
	defer s.stripe.Unlock()
	_, verb, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, intentsPath+"/"), "/")
	id := intentOf(r, form)
	known := r.Method == http.MethodPost && (r.URL.Path == intentsPath || r.URL.Path == "/v1/refunds" || verb == "confirm" || verb == "capture") ||
		r.Method == http.MethodGet && id != "" && verb == ""
	if !known || !strings.HasPrefix(r.URL.Path, "/v1/") {
		return stripeError(http.StatusNotFound, "invalid_request_error", "", "", "Unrecognized request URL ("+r.Method+": "+r.URL.Path+").")
	}
	if r.URL.Path == intentsPath {
		return s.create(form, said)
	}
	intent := s.intents[id]
	if intent == nil {
		if id == "" {
			return missing("payment_intent")
		}
		return stripeError(http.StatusNotFound, "invalid_request_error", "resource_missing", "intent", "No such payment_intent: '"+id+"'")
	}
	switch {
	case r.URL.Path == "/v1/refunds":
		return s.refund(intent, form, said)
	case verb == "confirm":
		return s.confirm(intent, form, said)
	case verb == "capture":
		return s.capture(intent, form, said)
	}
	return fine(intent)
}

func (s *Stripe) create(form url.Values, said Call) stripeAnswer {
	amount, refusal, bad := amountOf(form, "amount", true)
	if bad {
		return refusal
	}
	currency := form.Get("currency")
	switch {
	case currency == "":
		return missing("currency")
	case len(currency) != 3:
		return stripeError(http.StatusBadRequest, "invalid_request_error", "", "currency", "Invalid currency: "+currency+".")
	}
	intent := &stripeIntent{
		ID: "pi_3" + rand.Text()[:23], Object: "payment_intent", Amount: amount, Currency: strings.ToLower(currency),
		CaptureMethod: cmp.Or(form.Get("capture_method"), "automatic_async"), Confirmation: "automatic", Created: time.Now().Unix(),
		Customer: given(form, "customer"), Description: given(form, "description"),
		Metadata: metadataOf(form), MethodTypes: []string{"card"}, Status: "requires_payment_method",
	}
	intent.ClientSecret = intent.ID + "_secret_" + rand.Text()
	if refusal, bad := intent.takeMethod(form); bad {
		return refusal
	}
	s.intents[intent.ID] = intent
	if form.Get("confirm") != "true" {
		return fine(intent)
	}
	return s.confirm(intent, form, said)
}

// takeMethod sets the payment method that a request names.
func (i *stripeIntent) takeMethod(form url.Values) (stripeAnswer, bool) {
	method := given(form, "payment_method")
	switch {
	case method == nil:
		return stripeAnswer{}, false
	case !strings.HasPrefix(*method, "pm_"):
		return stripeError(http.StatusBadRequest, "invalid_request_error", "resource_missing", "payment_method", "No such PaymentMethod: '"+*method+"'"), true
	}
	i.PaymentMethod = method
	if i.Status == "requires_payment_method" {
		i.Status = "requires_confirmation"
	}
	return stripeAnswer{}, false
}

func (s *Stripe) confirm(intent *stripeIntent, form url.Values, said Call) stripeAnswer {
	switch intent.Status {
	case "requires_payment_method", "requires_confirmation", "requires_action":
	default:
		return unexpected(intent, "confirm")
	}
	if refusal, bad := intent.takeMethod(form); bad {
		return refusal
	}
	if intent.PaymentMethod == nil {
		return unexpected(intent, "confirm")
	}
	method := *intent.PaymentMethod
	codes, declined := stripeDeclines[method]
	if method == needsCustomer {
		if form.Get("off_session") != "true" {
			intent.Status = "requires_action"
			intent.NextAction = map[string]any{"type": "use_stripe_sdk"}
			return fine(intent)
		}
		codes, declined = [2]string{"authentication_required", "authentication_required"}, true
	}
	charge := "ch_3" + rand.Text()[:23]
	if declined {
		intent.Status, intent.PaymentMethod, intent.LatestCharge = "requires_payment_method", nil, &charge
		answer := stripeError(http.StatusPaymentRequired, "card_error", codes[0], "", "Your card was declined.")
		body := answer.body.(map[string]any)["error"].(map[string]any)
		body["charge"] = charge
		if codes[1] != "" {
			body["decline_code"] = codes[1]
		}
		copied := *intent
		body["payment_intent"] = copied
		answer.keep = true
		return answer
	}
	intent.LatestCharge = &charge
	if intent.CaptureMethod == "manual" {
		intent.Status, intent.AmountCapturable = "requires_capture", intent.Amount
		return fine(intent)
	}
	s.received(intent, intent.Amount, said)
	return fine(intent)
}

func (s *Stripe) capture(intent *stripeIntent, form url.Values, said Call) stripeAnswer {
	if intent.Status != "requires_capture" {
		return unexpected(intent, "capture")
	}
	amount, refusal, bad := amountOf(form, "amount_to_capture", false)
	switch {
	case bad:
		return refusal
	case amount == 0:
		amount = intent.AmountCapturable
	case amount > intent.AmountCapturable:
		return stripeError(http.StatusBadRequest, "invalid_request_error", "amount_too_large", "amount_to_capture", "The amount is greater than what can be captured.")
	}
	intent.AmountCapturable = 0
	s.received(intent, amount, said)
	return fine(intent)
}

func (s *Stripe) received(intent *stripeIntent, amount int64, said Call) {
	intent.Status, intent.AmountReceived = "succeeded", amount
	s.enter(StripeEntry{Charge: *intent.LatestCharge, Amount: amount}, intent, said)
}

// enter adds what has happened to an intent to the ledger.
func (s *Stripe) enter(entry StripeEntry, intent *stripeIntent, said Call) {
	entry.At, entry.Intent, entry.Currency = time.Now(), intent.ID, intent.Currency
	entry.Key, entry.Job, entry.Tenant = said.Key, said.Job, said.Tenant
	if intent.Customer != nil {
		entry.Customer = *intent.Customer
	}
	s.ledger = append(s.ledger, entry)
}

func (s *Stripe) refund(intent *stripeIntent, form url.Values, said Call) stripeAnswer {
	amount, refusal, bad := amountOf(form, "amount", false)
	left := intent.AmountReceived - intent.refunded
	switch {
	case bad:
		return refusal
	case intent.AmountReceived == 0:
		return stripeError(http.StatusBadRequest, "invalid_request_error", "payment_intent_unexpected_state", "payment_intent", "This PaymentIntent does not have a successful charge to refund.")
	case left == 0:
		return stripeError(http.StatusBadRequest, "invalid_request_error", "charge_already_refunded", "", "Charge "+*intent.LatestCharge+" has already been refunded.")
	case amount == 0:
		amount = left
	case amount > left:
		return stripeError(http.StatusBadRequest, "invalid_request_error", "", "amount", "The refund is greater than what is left of the charge.")
	}
	intent.refunded += amount
	id := "re_3" + rand.Text()[:23]
	s.enter(StripeEntry{Refund: true, Charge: id, Amount: amount}, intent, said)
	return stripeAnswer{status: http.StatusOK, keep: true, header: map[string]string{}, body: map[string]any{
		"id": id, "object": "refund", "amount": amount, "charge": intent.LatestCharge, "created": time.Now().Unix(),
		"currency": intent.Currency, "metadata": metadataOf(form), "payment_intent": intent.ID,
		"reason": given(form, "reason"), "status": "succeeded",
	}}
}

// fine returns an answer with a copy of the intent, which later changes do not affect.
func fine(intent *stripeIntent) stripeAnswer {
	return stripeAnswer{status: http.StatusOK, body: *intent, header: map[string]string{}, keep: true}
}

func missing(param string) stripeAnswer {
	return stripeError(http.StatusBadRequest, "invalid_request_error", "parameter_missing", param, "Missing required param: "+param+".")
}

func unexpected(intent *stripeIntent, verb string) stripeAnswer {
	answer := stripeError(http.StatusBadRequest, "invalid_request_error", "payment_intent_unexpected_state", "",
		"You cannot "+verb+" this PaymentIntent because it has a status of "+intent.Status+".")
	copied := *intent
	answer.body.(map[string]any)["error"].(map[string]any)["payment_intent"] = copied
	answer.keep = true
	return answer
}

// amountOf returns an amount parameter; 0 if it is missing.
func amountOf(form url.Values, name string, needed bool) (amount int64, refusal stripeAnswer, bad bool) {
	text := form.Get(name)
	if text == "" {
		if needed {
			return 0, missing(name), true
		}
		return 0, stripeAnswer{}, false
	}
	amount, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return 0, stripeError(http.StatusBadRequest, "invalid_request_error", "parameter_invalid_integer", name, "Invalid integer: "+text), true
	case amount < 1:
		return 0, stripeError(http.StatusBadRequest, "invalid_request_error", "parameter_invalid_integer", name, "This value must be greater than or equal to 1."), true
	}
	return amount, stripeAnswer{}, false
}

func given(form url.Values, name string) *string {
	if value := form.Get(name); value != "" {
		return &value
	}
	return nil
}

func metadataOf(form url.Values) map[string]string {
	metadata := map[string]string{}
	for name, values := range form {
		if key, ok := strings.CutPrefix(name, "metadata["); ok && len(values) > 0 {
			metadata[strings.TrimSuffix(key, "]")] = values[0]
		}
	}
	return metadata
}
