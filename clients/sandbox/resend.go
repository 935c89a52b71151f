package sandbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ResendConfig configures a [Resend]. The zero ResendConfig accepts all mails.
type ResendConfig struct {
	// The limits of Config are in requests, and Account is the rate of the team; Answer is not
	// used.
	Config

	// Daily and Monthly are the max numbers of recipients in any 24 hours and in any 30 days. 0
	// means no limit.
	Daily, Monthly int

	// APIKey is the required key of calls. "" means any.
	APIKey string

	// Domains are the verified ones. None means all.
	Domains []string
}

// Resend simulates the part of Resend's API that sends mail, with Resend's bodies and headers.
// The tenant is the header Headgate-Tenant or, without it, the domain of the mail's sender. A
// call arrives when its headers were read.
//
// Idempotency keys work as documented at
// https://resend.com/docs/dashboard/emails/idempotency-keys: within 24 hours the same request
// gets the first answer and is sent only once. Another request with the key is refused, and so is
// one that arrives while the first is in progress.
type Resend struct {
	mailAPI
	config     ResendConfig
	day, month quota
	keys       map[string]*resendKey
	order      []string // of the keys, oldest first
}

type resendKey struct {
	at   time.Time
	body [sha256.Size]byte
	id   string // "": still in progress
}

// NewResend starts a provider. It returns errors of the network. Close stops it.
func NewResend(config ResendConfig) (*Resend, error) {
	s := &Resend{
		config: config, keys: map[string]*resendKey{},
		day:   quota{most: config.Daily, span: 24 * time.Hour},
		month: quota{most: config.Monthly, span: 30 * 24 * time.Hour},
	}
	var err error
	if s.HTTP, err = listen(config.Config); err != nil {
		return nil, err
	}
	s.serve(s)
	return s, nil
}

// Resend's errors by name (https://resend.com/docs/api-reference/errors).
var resendErrors = map[string]apiError{
	"missing_api_key":                {401, "missing_api_key", "Missing API key in the authorization header."},
	"restricted_api_key":             {401, "restricted_api_key", "This API key is restricted to only send emails."},
	"invalid_api_key":                {403, "invalid_api_key", "API key is invalid."},
	"validation_error":               {403, "validation_error", "The example.com domain is not verified. Please, add and verify your domain."},
	"not_found":                      {404, "not_found", "The requested endpoint does not exist."},
	"method_not_allowed":             {405, "method_not_allowed", "Method is not allowed for the requested path."},
	"invalid_idempotency_key":        {400, "invalid_idempotency_key", "The key must be between 1-256 chars."},
	"invalid_idempotent_request":     {409, "invalid_idempotent_request", "Same idempotency key used with a different request payload."},
	"concurrent_idempotent_requests": {409, "concurrent_idempotent_requests", "Same idempotency key used while original request is still in progress."},
	"missing_required_field":         {422, "missing_required_field", "The request body is missing one or more required fields."},
	"invalid_attachment":             {422, "invalid_attachment", "Attachment must have either a `content` or `path`."},
	"invalid_from_address":           {422, "invalid_from_address", "Invalid `from` field. The email address needs to follow the `email@example.com` or `Name <email@example.com>` format."},
	"invalid_parameter":              {422, "invalid_parameter", "The parameter is invalid."},
	"daily_quota_exceeded":           {429, "daily_quota_exceeded", "You have reached your daily email sending quota."},
	"monthly_quota_exceeded":         {429, "monthly_quota_exceeded", "You have reached your monthly email sending quota."},
	"rate_limit_exceeded":            {429, "rate_limit_exceeded", "Too many requests. Please limit the number of requests per second. Or contact support to increase rate limit."},
	"security_error":                 {451, "security_error", "We may have found a security issue with the request."},
	"application_error":              {500, "application_error", "An unexpected error occurred."},
	"internal_server_error":          {500, "internal_server_error", "An unexpected error occurred."},
}

// FailAs makes the next n calls within their limits fail with an error of Resend, by its name. It
// panics for an unknown name.
func (s *Resend) FailAs(n int, name string) {
	refusal, known := resendErrors[name]
	if !known {
		panic("sandbox: no error of Resend is named " + name)
	}
	s.failAs(n, refusal)
}

// ServeHTTP handles one call.
func (s *Resend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	c := callOf(r.Header.Get)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMailBody))
	if err != nil {
		s.refuse(w, apiError{http.StatusRequestEntityTooLarge, "validation_error", "The request is too large."})
		return
	}
	refusal := s.stranger(r)
	var from string
	var recipients int
	if refusal.status == 0 {
		from, recipients, refusal = s.read(body)
	}
	_, domain, _ := strings.Cut(from, "@")
	c.Tenant = cmp.Or(c.Tenant, clip(domain))
	if refusal.status == 0 && len(r.Header.Get("Idempotency-Key")) > 256 {
		refusal = resendErrors["invalid_idempotency_key"]
	}
	if refusal.status != 0 {
		s.note(s.now(at), c, refusal.status, false)
		s.refuse(w, refusal)
		return
	}
	s.send(w, r, at, c, body, recipients)
}

func (s *Resend) stranger(r *http.Request) apiError {
	key, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case !bearer || key == "":
		return resendErrors["missing_api_key"]
	case s.config.APIKey != "" && key != s.config.APIKey:
		return resendErrors["invalid_api_key"]
	case r.URL.Path != "/emails":
		return resendErrors["not_found"]
	case r.Method != http.MethodPost:
		return resendErrors["method_not_allowed"]
	}
	return apiError{}
}

// read validates a mail like Resend.
func (s *Resend) read(body []byte) (from string, recipients int, refusal apiError) {
	var m struct {
		From        string   `json:"from"`
		To          []string `json:"to"`
		CC          []string `json:"cc"`
		BCC         []string `json:"bcc"`
		Text        *string  `json:"text"`
		HTML        *string  `json:"html"`
		Attachments []struct {
			Content []byte `json:"content"`
			Path    string `json:"path"`
		} `json:"attachments"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return "", 0, apiError{http.StatusBadRequest, "validation_error", "The request body is not valid JSON."}
	}
	address, err := mail.ParseAddress(m.From)
	if err != nil {
		return "", 0, resendErrors["invalid_from_address"]
	}
	from = strings.ToLower(address.Address)
	if len(m.To) == 0 || m.Text == nil && m.HTML == nil {
		return from, 0, resendErrors["missing_required_field"]
	}
	recipients = len(m.To) + len(m.CC) + len(m.BCC)
	if len(m.To) > 50 {
		return from, 0, apiError{http.StatusUnprocessableEntity, "validation_error", "The `to` field must have at most 50 items."}
	}
	for _, file := range m.Attachments {
		if file.Content == nil && file.Path == "" {
			return from, 0, resendErrors["invalid_attachment"]
		}
	}
	_, domain, _ := strings.Cut(from, "@")
	if own := s.config.Domains; len(own) > 0 && !slices.ContainsFunc(own, func(name string) bool { return strings.EqualFold(name, domain) }) {
		return from, 0, apiError{http.StatusForbidden, "validation_error", "The " + domain + " domain is not verified. Please, add and verify your domain."}
	}
	return from, recipients, apiError{}
}

func (s *Resend) send(w http.ResponseWriter, r *http.Request, at time.Time, c Call, body []byte, recipients int) {
	codes := protocol{ok: http.StatusOK, throttled: http.StatusTooManyRequests}
	name, sum := r.Header.Get("Idempotency-Key"), sha256.Sum256(body)

	s.mail.Lock()
	at = s.now(at)
	s.forget(at)
	var v mailVisit
	answer, refusal := "", apiError{}
	key := s.keys[name]
	switch {
	case key == nil:
		if v = s.admit(at, c, 1, codes, &s.day, &s.month); !v.rejected && !v.struck {
			// A mail is one request, and is charged to the quotas once per recipient.
			s.day.use(at, recipients-1)
			s.month.use(at, recipients-1)
			if answer = uuid.NewString(); name != "" {
				key = &resendKey{at: at, body: sum}
				s.keys[name] = key
				s.order = append(s.order, name)
			}
		}
	case key.body != sum:
		refusal = resendErrors["invalid_idempotent_request"]
	case key.id == "":
		refusal = resendErrors["concurrent_idempotent_requests"]
	default:
		// A replay is charged as a call, but sends no mail.
		v.visit, answer, key = s.arrive(at, c, codes), key.id, nil
		v.as = s.as
	}
	if refusal.status != 0 {
		s.note(at, c, refusal.status, false)
	}
	left := s.left(at)
	s.mail.Unlock()

	s.headers(w.Header(), left, v.wait)
	lingered := s.linger(r.Context(), v.visit)
	if key != nil && answer != "" && refusal.status == 0 {
		s.mail.Lock()
		key.id = answer
		s.mail.Unlock()
	}
	switch {
	case !lingered, v.dropped, v.struck && v.status == NoAnswer:
		panic(http.ErrAbortHandler)
	case refusal.status != 0:
		s.refuse(w, refusal)
	case v.over == &s.month:
		s.refuse(w, resendErrors["monthly_quota_exceeded"])
	case v.over != nil:
		s.refuse(w, resendErrors["daily_quota_exceeded"])
	case v.rejected:
		s.refuse(w, resendErrors["rate_limit_exceeded"])
	case v.struck:
		s.refuse(w, v.fault(resendErrors["application_error"]))
	default:
		writeJSON(w, http.StatusOK, map[string]string{"id": answer})
	}
}

// forget drops keys after a day, like Resend.
func (s *Resend) forget(now time.Time) {
	for len(s.order) > 0 && now.Sub(s.keys[s.order[0]].at) >= 24*time.Hour {
		delete(s.keys, s.order[0])
		s.order = s.order[1:]
	}
}

// left returns how many calls the team may make now; -1: no limit.
func (s *Resend) left(now time.Time) int {
	s.Provider.mu.Lock()
	defer s.Provider.mu.Unlock()
	account := &s.Provider.account
	if account.limit.unlimited() {
		return -1
	}
	return max(int(float64(account.limit.Burst)-account.drained(now)), 0)
}

func (s *Resend) headers(h http.Header, left int, wait time.Duration) {
	if left < 0 {
		return
	}
	seconds := strconv.FormatFloat(max(math.Ceil(wait.Seconds()), 1), 'f', 0, 64)
	h.Set("Ratelimit-Limit", strconv.Itoa(s.config.Account.normal().Burst))
	h.Set("Ratelimit-Remaining", strconv.Itoa(left))
	h.Set("Ratelimit-Reset", seconds)
	if wait > 0 {
		h.Set("Retry-After", seconds)
	}
}

func (s *Resend) refuse(w http.ResponseWriter, refusal apiError) {
	writeJSON(w, refusal.status, map[string]any{"statusCode": refusal.status, "message": refusal.message, "name": refusal.code})
}
