package sandbox

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Stripe simulates the part of Stripe's API that makes payments: it creates, confirms, captures,
// reads and refunds PaymentIntents, with Stripe's bodies and headers. The account's limit is
// [Config].Account; a call that exceeds it is answered with 429 and the reason global-rate.
//
// Idempotency keys work as documented at https://docs.stripe.com/api/idempotent_requests: once
// execution has begun, the answer to the first request with a key is stored, and returned, with
// Idempotent-Replayed, for the same request. Another request with the key is an
// idempotency_error, and one that arrives while the first is in progress is a 409.
//
// Stripe's test payment methods for declines, such as pm_card_visa_chargeDeclined
// (https://docs.stripe.com/testing), are declined; all other ids that begin with pm_ work. A
// request whose caller disconnects is executed anyway.
type Stripe struct {
	*HTTP
	secret string

	stripe   sync.Mutex
	requests int
	fault    func(n int) StripeFault
	keys     map[string]*stripeKey
	intents  map[string]*stripeIntent
	busy     map[string]bool // PaymentIntents locked by a request
	working  int
	ledger   []StripeEntry
}

// StripeFault is a failure of one request.
type StripeFault string

const (
	StripeFine        StripeFault = ""
	StripeCutBefore   StripeFault = "cut before"   // not executed, and the connection is closed
	StripeCutAfter    StripeFault = "cut after"    // executed, and the connection is closed
	StripeErrorBefore StripeFault = "error before" // not executed, and answered with 503
	StripeErrorAfter  StripeFault = "error after"  // executed; the answer is 500, and is stored
	StripeLockTimeout StripeFault = "lock timeout" // 429: another request has locked the object

	// 429 with these reasons.
	StripeEndpointRate     StripeFault = "endpoint-rate"
	StripeEndpointBusy     StripeFault = "endpoint-concurrency"
	StripeAccountBusy      StripeFault = "global-concurrency"
	StripeResourceSpecific StripeFault = "resource-specific"
)

// StripeEntry is one movement of money.
type StripeEntry struct {
	At       time.Time
	Refund   bool // a refund
	Intent   string
	Charge   string // for a refund, its own id
	Amount   int64
	Currency string
	Customer string

	// From the headers of the request.
	Key, Job, Tenant string
}

// NewStripe starts a provider. It returns errors of the network. Without a Config, or with the
// zero one, it accepts every key and all calls. Close stops it.
func NewStripe(config ...Config) (*Stripe, error) {
	h, err := listen(one(config))
	if err != nil {
		return nil, err
	}
	s := &Stripe{
		HTTP: h, secret: one(config).Password,
		keys: map[string]*stripeKey{}, intents: map[string]*stripeIntent{}, busy: map[string]bool{},
	}
	h.serve(s)
	return s, nil
}

// Inject sets a function that returns the failure of each POST; POSTs are counted from 0 since
// the start. nil ends it.
func (s *Stripe) Inject(fault func(n int) StripeFault) {
	s.stripe.Lock()
	defer s.stripe.Unlock()
	s.fault = fault
}

// ForgetKeys drops the stored answers, as Stripe does after a day. A request with an old key is
// then a new request.
func (s *Stripe) ForgetKeys() {
	s.stripe.Lock()
	defer s.stripe.Unlock()
	maps.DeleteFunc(s.keys, func(_ string, k *stripeKey) bool { return !k.inFlight })
}

// InFlight returns the number of POSTs with a key that have no answer yet.
func (s *Stripe) InFlight() int {
	s.stripe.Lock()
	defer s.stripe.Unlock()
	return s.working
}

// Ledger returns all movements of money, in order.
func (s *Stripe) Ledger() []StripeEntry {
	s.stripe.Lock()
	defer s.stripe.Unlock()
	return append([]StripeEntry(nil), s.ledger...)
}

// Charges returns the number of charges by idempotency key; "" for requests without one.
func (s *Stripe) Charges() map[string]int {
	charges := map[string]int{}
	for _, entry := range s.Ledger() {
		if !entry.Refund {
			charges[entry.Key]++
		}
	}
	return charges
}

// Doubles returns the number of movements of money beyond the first of each job, separately for
// charges and refunds. Requests without a job are identified by their key. With a correct client
// it is 0.
func (s *Stripe) Doubles() int {
	type maker struct {
		tenant, job string
		refund      bool
	}
	doubles, seen := 0, map[maker]bool{}
	for _, entry := range s.Ledger() {
		by := maker{entry.Tenant, entry.Job, entry.Refund}
		if entry.Job == "" {
			by.job = "key " + entry.Key
		}
		if seen[by] {
			doubles++
		}
		seen[by] = true
	}
	return doubles
}

// stripeKey is the state of an idempotency key.
type stripeKey struct {
	request  string // method, path and parameters of the first request
	id       string // of the first request
	inFlight bool
	answer   stripeAnswer
}

type stripeAnswer struct {
	status int
	body   any
	header map[string]string
	keep   bool // store it for later requests with the key
}

// ServeHTTP handles one call.
func (s *Stripe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := "req_" + rand.Text()[:14]
	w.Header().Set("Request-Id", id)
	w.Header().Set("Content-Type", "application/json")
	if version := r.Header.Get("Stripe-Version"); version != "" {
		w.Header().Set("Stripe-Version", version)
	}
	said := callOf(r.Header.Get)
	if said.Key != "" {
		w.Header().Set("Idempotency-Key", said.Key)
	}
	if refusal, ok := s.unauthorized(r); ok {
		io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody))
		refusal.write(w)
		return
	}
	v := s.arrive(time.Now(), said, protocol{ok: http.StatusOK, throttled: http.StatusTooManyRequests})
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		panic(http.ErrAbortHandler) // the caller has disconnected
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		stripeError(http.StatusBadRequest, "invalid_request_error", "", "", "Invalid request body").write(w)
		return
	}
	fault := StripeFine
	if r.Method == http.MethodPost {
		fault = s.nextFault()
	}
	switch {
	case v.rejected:
		if !s.linger(r.Context(), v) {
			panic(http.ErrAbortHandler)
		}
		stripeLimited("global-rate").write(w)
		return
	case fault == StripeLockTimeout:
		stripeLocked().write(w)
		return
	case strings.Contains(string(fault), "-"):
		stripeLimited(string(fault)).write(w)
		return
	}
	// Check the key before executing anything, and lock it until there is an answer.
	taken, answer, done := s.take(id, r, form, said)
	if done {
		v.hanging = nil // only execution hangs
		s.linger(r.Context(), v)
		answer.write(w)
		return
	}
	here := s.linger(r.Context(), v)
	switch {
	case v.struck && v.status == NoAnswer, fault == StripeCutBefore:
		s.release(taken, r, stripeAnswer{})
		panic(http.ErrAbortHandler)
	case v.struck || fault == StripeErrorBefore:
		status := http.StatusServiceUnavailable
		if v.struck {
			status = v.status
		}
		answer = stripeError(status, "api_error", "", "", "Something went wrong on our side")
		answer.keep = false
	default:
		answer = s.work(r, form, said)
		if fault == StripeErrorAfter && answer.keep {
			answer = stripeError(http.StatusInternalServerError, "api_error", "", "", "An unknown error occurred")
			answer.header["Stripe-Should-Retry"] = "false"
		}
	}
	s.release(taken, r, answer)
	if fault == StripeCutAfter || !here {
		panic(http.ErrAbortHandler)
	}
	answer.write(w)
}

func (s *Stripe) nextFault() StripeFault {
	s.stripe.Lock()
	defer s.stripe.Unlock()
	n := s.requests
	s.requests++
	if s.fault == nil {
		return StripeFine
	}
	return s.fault(n)
}

func (s *Stripe) unauthorized(r *http.Request) (stripeAnswer, bool) {
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if user, _, ok := r.BasicAuth(); ok {
		key = user
	}
	switch {
	case key == "":
		return stripeError(http.StatusUnauthorized, "invalid_request_error", "", "", "You did not provide an API key"), true
	case s.secret != "" && key != s.secret:
		masked := key[:min(len(key), 8)] + "****" + key[max(len(key)-4, 0):]
		return stripeError(http.StatusUnauthorized, "invalid_request_error", "", "", "Invalid API Key provided: "+masked), true
	}
	return stripeAnswer{}, false
}

// take looks up and locks the key of a request and its PaymentIntent, until release. If it
// returns done, the request was answered and nothing is locked.
func (s *Stripe) take(id string, r *http.Request, form url.Values, said Call) (taken *stripeKey, answer stripeAnswer, done bool) {
	s.stripe.Lock()
	defer s.stripe.Unlock()
	if r.Method != http.MethodPost {
		return nil, stripeAnswer{}, false
	}
	request := r.Method + " " + r.URL.Path + "?" + form.Encode()
	name := r.Header.Get("Authorization") + "\n" + said.Key
	if known := s.keys[name]; said.Key != "" && known != nil {
		switch {
		case known.inFlight:
			return nil, stripeError(http.StatusConflict, "idempotency_error", "idempotency_key_in_use", "",
				"There is currently another in-progress request using this Idempotent Key. Please try again later."), true
		case known.request != request:
			return nil, stripeError(http.StatusBadRequest, "idempotency_error", "", "",
				"Keys for idempotent requests can only be used with the same parameters they were first used with."), true
		}
		answer := known.answer
		answer.header = maps.Clone(answer.header)
		answer.header["Idempotent-Replayed"] = "true"
		answer.header["Original-Request"] = known.id
		return nil, answer, true
	}
	intent := intentOf(r, form)
	if s.busy[intent] {
		return nil, stripeLocked(), true
	}
	if intent != "" {
		s.busy[intent] = true
	}
	s.working++
	taken = &stripeKey{request: request, id: id, inFlight: true}
	if said.Key != "" {
		s.keys[name] = taken
	}
	return taken, stripeAnswer{}, false
}

// release unlocks what take locked. If the answer is not stored, the key is as if it had never
// been used.
func (s *Stripe) release(taken *stripeKey, r *http.Request, answer stripeAnswer) {
	if taken == nil {
		return
	}
	s.stripe.Lock()
	defer s.stripe.Unlock()
	s.working--
	taken.inFlight, taken.answer = false, answer
	if !answer.keep {
		maps.DeleteFunc(s.keys, func(_ string, k *stripeKey) bool { return k == taken })
	}
	_, query, _ := strings.Cut(taken.request, "?")
	form, _ := url.ParseQuery(query) // it was encoded by this package
	delete(s.busy, intentOf(r, form))
}

func stripeError(status int, kind, code, param, message string) stripeAnswer {
	body := map[string]any{"type": kind, "message": message}
	if code != "" {
		body["code"] = code
		body["doc_url"] = "https://stripe.com/docs/error-codes/" + strings.ReplaceAll(code, "_", "-")
	}
	if param != "" {
		body["param"] = param
	}
	return stripeAnswer{status: status, body: map[string]any{"error": body}, header: map[string]string{}, keep: status >= 500}
}

func stripeLimited(reason string) stripeAnswer {
	answer := stripeError(http.StatusTooManyRequests, "invalid_request_error", "rate_limit", "",
		"Request rate limit exceeded. You can learn more about rate limits here https://stripe.com/docs/rate-limits.")
	answer.header["Stripe-Rate-Limited-Reason"] = reason
	answer.header["Stripe-Should-Retry"] = "false"
	return answer
}

func stripeLocked() stripeAnswer {
	answer := stripeError(http.StatusTooManyRequests, "invalid_request_error", "lock_timeout", "",
		"This object cannot be accessed right now because another API request or Stripe process is currently accessing it.")
	answer.header["Stripe-Should-Retry"] = "true"
	return answer
}

func (a stripeAnswer) write(w http.ResponseWriter) {
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.status)
	text, err := json.MarshalIndent(a.body, "", "  ")
	if err != nil {
		text = fmt.Appendf(nil, `{"error":{"type":"api_error","message":%q}}`, err)
	}
	w.Write(text)
}
