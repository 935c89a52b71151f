package sandbox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/mail"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// SESConfig configures an [SES]. The zero SESConfig accepts all mails.
type SESConfig struct {
	// The limits of Config are in recipients, and Account is the sending rate; Answer is not
	// used.
	Config

	// Daily is the max number of recipients in any 24 hours. 0 means no limit.
	Daily int

	// AccessKeyID is the key that must sign calls; signatures are not verified. "" means any.
	AccessKeyID string

	// Senders are the verified domains and addresses. None means all.
	Senders []string
}

// SES simulates the part of version 2 of the API of Amazon SES that sends mail and returns the
// account's quota, with SES's bodies and headers. The tenant is the header Headgate-Tenant of the
// mail or, without it, the domain of its sender. A call arrives when its headers were read.
//
// As in SES, limits count recipients, a mail is accepted as a whole if there is any room, there
// are no idempotency keys, and refusals do not say how long to wait.
type SES struct {
	mailAPI
	config SESConfig
	daily  quota
}

// NewSES starts a provider. It returns errors of the network. Close stops it.
func NewSES(config SESConfig) (*SES, error) {
	s := &SES{config: config, daily: quota{most: config.Daily, span: 24 * time.Hour}}
	var err error
	if s.HTTP, err = listen(config.Config); err != nil {
		return nil, err
	}
	s.serve(s)
	return s, nil
}

// The errors of SendEmail and the common errors of Amazon's services, by their names without
// Exception (https://docs.aws.amazon.com/ses/latest/APIReference-V2/API_SendEmail.html).
var sesErrors = map[string]apiError{
	"AccountSuspended":          {400, "AccountSuspendedException", "Account is suspended."},
	"BadRequest":                {400, "BadRequestException", "The input you provided is invalid."},
	"LimitExceeded":             {400, "LimitExceededException", "There are too many instances of the specified resource type."},
	"MailFromDomainNotVerified": {400, "MailFromDomainNotVerifiedException", "The sending domain is not verified."},
	"MessageRejected":           {400, "MessageRejected", "The message can't be sent because it contains invalid content."},
	"NotFound":                  {404, "NotFoundException", "Configuration set <none> does not exist."},
	"SendingPaused":             {400, "SendingPausedException", "Sending paused for this account. For more information, please check the inbox of the email address associated with your AWS account."},
	"TooManyRequests":           {429, "TooManyRequestsException", "Maximum sending rate exceeded."},
	"DailyQuota":                {429, "TooManyRequestsException", "Daily message quota exceeded."},
	"Throttling":                {400, "ThrottlingException", "Rate exceeded"},
	"AccessDenied":              {403, "AccessDeniedException", "User is not authorized to perform: ses:SendEmail"},
	"ExpiredToken":              {403, "ExpiredTokenException", "The security token included in the request is expired"},
	"InvalidSignature":          {403, "InvalidSignatureException", "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method."},
	"UnrecognizedClient":        {403, "UnrecognizedClientException", "The security token included in the request is invalid."},
	"InternalFailure":           {500, "InternalFailure", ""},
	"ServiceUnavailable":        {503, "ServiceUnavailable", ""},
}

// FailAs makes the next n calls within their limits fail with an error of SES, by its name
// without Exception, such as "SendingPaused". "DailyQuota" is the error of the daily quota. It
// panics for an unknown name.
func (s *SES) FailAs(n int, name string) {
	refusal, known := sesErrors[name]
	if !known {
		panic("sandbox: no error of SES is named " + name)
	}
	s.failAs(n, refusal)
}

const maxMailBody = 64 << 20 // SES's max is 40 MB, here in base64

// ServeHTTP handles one call.
func (s *SES) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	w.Header().Set("X-Amzn-Requestid", uuid.NewString())
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMailBody))
	if err != nil {
		s.refuse(w, apiError{http.StatusRequestEntityTooLarge, "RequestEntityTooLargeException", ""})
		return
	}
	if refusal := s.stranger(r.Header.Get("Authorization")); refusal.status != 0 {
		s.note(s.now(at), Call{}, refusal.status, false)
		s.refuse(w, refusal)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "POST /v2/email/outbound-emails":
		s.send(w, r, at, body)
	case "GET /v2/email/account":
		s.account(w)
	default:
		s.refuse(w, apiError{http.StatusNotFound, "UnknownOperationException", ""})
	}
}

// stranger returns the refusal of an unknown caller.
func (s *SES) stranger(authorization string) apiError {
	_, credential, signed := strings.Cut(authorization, "AWS4-HMAC-SHA256 Credential=")
	if !signed {
		return apiError{http.StatusForbidden, "MissingAuthenticationTokenException", "Missing Authentication Token"}
	}
	if id, _, _ := strings.Cut(credential, "/"); s.config.AccessKeyID != "" && id != s.config.AccessKeyID {
		return sesErrors["UnrecognizedClient"]
	}
	return apiError{}
}

// sesMail has the used fields of the body of SendEmail.
type sesMail struct {
	FromEmailAddress string
	Destination      struct{ ToAddresses, CcAddresses, BccAddresses []string }
	Content          struct {
		Raw    *struct{ Data []byte }
		Simple *struct{ Subject struct{ Data string } }
	}
}

func (s *SES) send(w http.ResponseWriter, r *http.Request, at time.Time, body []byte) {
	c, recipients, refusal := s.read(body)
	if refusal.status != 0 {
		s.note(s.now(at), c, refusal.status, false)
		s.refuse(w, refusal)
		return
	}
	s.mail.Lock()
	v := s.admit(at, c, recipients, protocol{ok: http.StatusOK, throttled: http.StatusTooManyRequests}, &s.daily)
	s.mail.Unlock()
	if !s.linger(r.Context(), v.visit) {
		panic(http.ErrAbortHandler)
	}
	switch {
	case v.over != nil:
		s.refuse(w, sesErrors["DailyQuota"])
	case v.rejected:
		s.refuse(w, sesErrors["TooManyRequests"])
	case v.dropped, v.struck && v.status == NoAnswer:
		panic(http.ErrAbortHandler)
	case v.struck:
		s.refuse(w, v.fault(apiError{code: "InternalFailure"}))
	default:
		writeJSON(w, http.StatusOK, map[string]string{"MessageId": "0100" + uuid.NewString() + "-000000"})
	}
}

// read validates a mail like SES.
func (s *SES) read(body []byte) (c Call, recipients int, refusal apiError) {
	bad := func(format string, args ...any) (Call, int, apiError) {
		return c, 0, apiError{http.StatusBadRequest, "BadRequestException", fmt.Sprintf(format, args...)}
	}
	var m sesMail
	if err := json.Unmarshal(body, &m); err != nil {
		return c, 0, apiError{http.StatusBadRequest, "SerializationException", ""}
	}
	from := m.FromEmailAddress
	switch {
	case m.Content.Raw != nil:
		message, err := mail.ReadMessage(io.LimitReader(bytes.NewReader(m.Content.Raw.Data), maxHeaders))
		if err != nil {
			return bad("Invalid raw message content.")
		}
		c = callOf(message.Header.Get)
		from = cmp.Or(from, message.Header.Get("From"))
	case m.Content.Simple == nil:
		return bad("Content is missing.")
	}
	address, err := mail.ParseAddress(from)
	if err != nil {
		return bad("Missing final '@domain'")
	}
	_, domain, _ := strings.Cut(strings.ToLower(address.Address), "@")
	c.Tenant = cmp.Or(c.Tenant, clip(domain))
	for _, list := range [][]string{m.Destination.ToAddresses, m.Destination.CcAddresses, m.Destination.BccAddresses} {
		for _, to := range list {
			if problem := addressProblem(to); problem != "" {
				return bad("%s", problem)
			}
			recipients++
		}
	}
	if recipients == 0 {
		return bad("Missing required header 'To'.")
	}
	if recipients > 50 {
		return bad("Recipient count exceeds 50.")
	}
	verified := func(sender string) bool {
		return strings.EqualFold(sender, domain) || strings.EqualFold(sender, address.Address)
	}
	if len(s.config.Senders) > 0 && !slices.ContainsFunc(s.config.Senders, verified) {
		return c, 0, apiError{http.StatusBadRequest, "MessageRejected",
			"Email address is not verified. The following identities failed the check in region US-EAST-1: " + address.Address}
	}
	return c, recipients, apiError{}
}

// addressProblem returns SES's error for an address, or "".
func addressProblem(to string) string {
	if _, err := mail.ParseAddress(to); err != nil {
		return "Missing final '@domain'"
	}
	if strings.ContainsFunc(to, func(c rune) bool { return c > '~' }) {
		return "Local address contains control or whitespace"
	}
	return ""
}

// account serves the sending limits. Without a limit, the rate is a large number and the quota
// is -1, as with SES.
func (s *SES) account(w http.ResponseWriter) {
	s.mail.Lock()
	defer s.mail.Unlock()
	daily := -1
	if s.daily.most > 0 {
		daily = s.daily.most
	}
	s.Provider.mu.Lock()
	limit, now := s.Provider.account.limit, s.clock(time.Now())
	s.Provider.mu.Unlock()
	rate := limit.Rate
	if limit.unlimited() {
		rate = 10_000
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"DedicatedIpAutoWarmupEnabled": false,
		"EnforcementStatus":            "HEALTHY",
		"ProductionAccessEnabled":      true,
		"SendQuota":                    map[string]any{"Max24HourSend": daily, "MaxSendRate": rate, "SentLast24Hours": s.daily.used(now)},
		"SendingEnabled":               s.as.code != sesErrors["SendingPaused"].code && s.as.code != sesErrors["AccountSuspended"].code,
	})
}

func (s *SES) refuse(w http.ResponseWriter, refusal apiError) {
	w.Header().Set("X-Amzn-Errortype", refusal.code)
	body := map[string]string{}
	if refusal.message != "" {
		body["message"] = refusal.message
	}
	writeJSON(w, refusal.status, body)
}
