package email

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// ResendConfig configures a [Resend].
type ResendConfig struct {
	// APIKey is the API key of the team, re_…. It is required.
	APIKey string

	// URL is the address of Resend's API. "" means Resend's own. It must be https, except on this
	// machine.
	URL string

	// Timeout limits the sending of a message, from dialling to the end of the answer. 0 means
	// 60 s.
	Timeout time.Duration

	// MaxIdle is the max number of idle connections; more can be open while in use. 0 means 256.
	MaxIdle int

	// Quota gets the account's rate limit from each answer that reports it, before Send returns. It is called with
	// Send's ctx, concurrently. nil means that it is only kept for [Resend.Quotas].
	Quota func(ctx context.Context, quota clients.Quota)
}

// Resend sends mail with the API of Resend. It reuses connections.
//
// Every attempt has the job's idempotency key, and within 24 hours Resend sends only one mail per
// key. Attempts must be identical for that, so the headers about the call are in the request, not
// in the mail. An attempt is not sent if Resend may have forgotten the key; see
// [clients.Call.CheckKey].
type Resend struct {
	line    *shared.Line
	url     string
	apiKey  string
	timeout time.Duration
	now     func() time.Time
	quota   atomic.Pointer[clients.Quota] // nil: not known
	onQuota func(context.Context, clients.Quota)
}

const (
	maxResendRecipients = 50       // in to
	maxResendFiles      = 40 << 20 // bytes of all attachments in base64
	maxResendKey        = 256
)

// NewResend returns a sender without connecting. Its error names all invalid fields.
func NewResend(config ResendConfig) (*Resend, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("email: resend: "+format, args...)) }
	if config.APIKey == "" || strings.ContainsFunc(config.APIKey, func(c rune) bool { return c <= ' ' || c > '~' }) {
		wrong("api key: it is empty, or has spaces or other invalid characters")
	}
	config.URL = strings.TrimRight(cmp.Or(config.URL, "https://api.resend.com"), "/")
	if _, err := shared.CheckURL(config.URL); err != nil {
		wrong("url: %w", err)
	}
	if config.Timeout < 0 || config.MaxIdle < 0 {
		wrong("times and numbers must not be negative")
	}
	if config.Timeout > clients.ClocksApart {
		wrong("timeout: %v is more than %v", config.Timeout, clients.ClocksApart)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Resend{
		line:    newLine(cmp.Or(config.MaxIdle, 256)),
		url:     config.URL + "/emails",
		apiKey:  config.APIKey,
		timeout: cmp.Or(config.Timeout, time.Minute),
		now:     time.Now,
		onQuota: config.Quota,
	}, nil
}

// Close closes idle connections. Messages in flight continue, and the sender stays usable.
func (s *Resend) Close() { s.line.CloseIdleConnections() }

// Send sends the message. If the error is nil, Resend has accepted it for every recipient, now
// or in an earlier attempt; otherwise see the tables at resendOutcome for answers and at lost for
// calls without an answer.
//
// If ctx is cancelled before the message was sent, the error wraps ctx's. If it is cancelled
// later, the outcome is unknown, as after a lost connection.
func (s *Resend) Send(ctx context.Context, call clients.Call, m Message) error {
	body, err := resendBody(m)
	if err != nil {
		return clients.Permanent(clients.NotCalled(err))
	}
	key := resendKey(call)
	advice := fmt.Sprintf("Look in Resend's log for the request with idempotency key %s; to send the mail again, enqueue a new job", clients.Printable(key, maxResendKey))
	if err := call.CheckKey(s.now(), "Resend", advice); err != nil {
		return err
	}
	// The cause distinguishes a timeout from a shutdown of the worker.
	limited, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("gave up after %v", s.timeout))
	defer cancel()
	seen := &shared.Call{}
	r, err := http.NewRequestWithContext(seen.Watch(limited), http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return clients.Permanent(clients.NotCalled(errors.New("the request cannot be made")))
	}
	r.Header.Set("Authorization", "Bearer "+s.apiKey)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "Headgate") // Resend refuses calls without one
	for name, value := range call.Headers() {
		r.Header.Set(name, value)
	}
	if key != "" {
		r.Header.Set(clients.HeaderIdempotencyKey, key)
	}
	response, err := s.line.Do(r)
	if err != nil {
		return lost(ctx, limited, "Resend", seen.Sent(), seen.Tried(), err, without(innermost(err).Error(), s.apiKey))
	}
	defer response.Body.Close()
	// The body of a 2xx is not needed, but a connection can be reused only after reading it.
	content, _ := io.ReadAll(response.Body)
	if quota := resendQuota(response.Header, s.now()); quota != nil {
		s.quota.Store(quota)
		if s.onQuota != nil {
			s.onQuota(ctx, *quota)
		}
	}
	if response.StatusCode/100 == 2 {
		return nil
	}
	return resendOutcome(s.now(), call, advice, response, resendProblem(content, s.apiKey))
}

// resendKey returns the idempotency key of the job. A key that is too long for Resend is
// replaced by its hash.
func resendKey(call clients.Call) string {
	call.IdempotencyKey = cmp.Or(call.IdempotencyKey, call.Job)
	for name, key := range call.Headers() {
		if name != clients.HeaderIdempotencyKey {
			continue
		}
		if len(key) > maxResendKey {
			sum := sha256.Sum256([]byte(key))
			return hex.EncodeToString(sum[:])
		}
		return key
	}
	return ""
}

// resendBody returns the message in Resend's format, whose fields are those of a [Message]
// (https://resend.com/docs/api-reference/emails/send-email).
func resendBody(m Message) ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	switch n := len(m.To); {
	case n == 0:
		return nil, errors.New("to: it is missing: Resend requires a recipient in to, besides those in cc and bcc")
	case n > maxResendRecipients:
		return nil, fmt.Errorf("to: %d recipients; the maximum of Resend is %d", n, maxResendRecipients)
	}
	// Resend counts each recipient as a mail, so an address that is there twice can cost two.
	seen := map[string]bool{}
	once := func(list Addresses) (own Addresses) {
		for _, text := range list {
			// Validate has parsed them all.
			if address, err := parseAddress(text); err == nil && !seen[address.Address] {
				seen[address.Address] = true
				own = append(own, text)
			}
		}
		return own
	}
	m.To, m.CC, m.BCC, m.Subject = once(m.To), once(m.CC), once(m.BCC), oneSpace(m.Subject)
	size := 0
	for _, file := range m.Attachments {
		size += (len(file.Content) + 2) / 3 * 4
	}
	if size > maxResendFiles {
		return nil, fmt.Errorf("attachments: %d bytes in base64; the maximum of Resend is %d", size, maxResendFiles)
	}
	return json.Marshal(m)
}
