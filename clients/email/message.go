package email

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/mail"
	"net/textproto"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Message is one mail, and the payload of an email job. Addresses can have a name, as in
// "Ann <ann@example.com>".
type Message struct {
	From    string    `json:"from"`
	To      Addresses `json:"to,omitempty"`
	CC      Addresses `json:"cc,omitempty"`
	BCC     Addresses `json:"bcc,omitempty"` // hidden from other recipients
	ReplyTo Addresses `json:"reply_to,omitempty"`
	Subject string    `json:"subject"` // Resend requires the field

	// Text and HTML are two forms of the body. Without both, it is empty.
	Text string `json:"text,omitempty"`
	HTML string `json:"html,omitempty"`

	// Headers are additional headers. They cannot replace those of the mail itself.
	Headers     map[string]string `json:"headers,omitempty"`
	Attachments []Attachment      `json:"attachments,omitempty"`
}

// Addresses is a list of addresses. In JSON it can also be a single string.
type Addresses []string

// UnmarshalJSON reads a string or a list of strings.
func (a *Addresses) UnmarshalJSON(data []byte) error {
	var list []string
	if err := json.Unmarshal(data, &list); err == nil {
		*a = list
		return nil
	}
	var one string
	if err := json.Unmarshal(data, &one); err != nil {
		return errors.New("must be an address or a list of addresses")
	}
	*a = Addresses{one}
	return nil
}

// Attachment is a file attached to a mail.
type Attachment struct {
	Filename    string `json:"filename"`
	ContentType string `json:"content_type,omitempty"` // "": by the extension of the name
	Content     []byte `json:"content"`                // base64 in JSON
}

const (
	maxRecipients = 1000
	maxHeader     = 900 // bytes; a line of mail has at most 998
)

// Validate returns all errors of the message, joined, or nil.
func (m Message) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	check := func(field, text string) {
		if _, err := parseAddress(text); err != nil {
			wrong("%s: %w", field, err)
		}
	}
	check("from", m.From)
	for field, list := range m.lists() {
		for _, text := range list {
			check(field, text)
		}
	}
	switch n := len(m.To) + len(m.CC) + len(m.BCC); {
	case n == 0:
		wrong("to: there are no recipients")
	case n > maxRecipients:
		wrong("to: %d recipients; the maximum is %d", n, maxRecipients)
	}
	if reason := lineProblem(m.Subject); reason != "" {
		wrong("subject: %s", reason)
	}
	seen := map[string]bool{}
	for name, value := range m.Headers {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !fieldName(name):
			wrong("headers: a name is empty, longer than 76, or has characters other than printable ASCII without ':'")
		case reserved(canonical):
			wrong("headers: %s is reserved", canonical)
		case seen[canonical]:
			wrong("headers: %s: duplicate header", canonical)
		case lineProblem(value) != "":
			wrong("headers: %s: %s", canonical, lineProblem(value))
		}
		seen[canonical] = true
	}
	for i, file := range m.Attachments {
		if file.Filename == "" || len(file.Filename) > 255 || lineProblem(file.Filename) != "" {
			wrong("attachments[%d]: filename: it is empty, longer than 255 bytes, or has control characters", i)
		}
		if kind := file.ContentType; kind != "" {
			_, _, err := mime.ParseMediaType(kind)
			if err != nil || len(kind) > 200 || !ascii(kind) || lineProblem(kind) != "" {
				wrong("attachments[%d]: content_type: it is not a media type such as text/plain", i)
			}
		}
	}
	return errors.Join(errs...)
}

// SenderDomain returns the domain of the sender, in lower case; "" if it is not an address.
func (m Message) SenderDomain() string {
	address, err := parseAddress(m.From)
	if err != nil {
		return ""
	}
	return strings.ToLower(address.Address[strings.LastIndexByte(address.Address, '@')+1:])
}

// lists iterates over the lists of addresses and the names of their fields.
func (m Message) lists() func(yield func(field string, list Addresses) bool) {
	return func(yield func(string, Addresses) bool) {
		_ = yield("to", m.To) && yield("cc", m.CC) && yield("bcc", m.BCC) && yield("reply_to", m.ReplyTo)
	}
}

// parseAddress parses one address. It also refuses addresses that net/mail accepts but mail
// servers or headers do not.
func parseAddress(text string) (*mail.Address, error) {
	if text == "" {
		return nil, errors.New("it is empty")
	}
	if reason := lineProblem(text); reason != "" {
		return nil, errors.New(reason)
	}
	address, err := mail.ParseAddress(text)
	if err != nil {
		return nil, fmt.Errorf("%.60q is not an address", text)
	}
	at := strings.LastIndexByte(address.Address, '@')
	if len(address.Address) > 254 || strings.ContainsAny(address.Address[at:], " <>()") || strings.ContainsFunc(address.Address, unicode.IsControl) {
		return nil, fmt.Errorf("%.60q is not an address", text)
	}
	address.Name = oneSpace(address.Name)
	return address, nil
}

// lineProblem returns why a text cannot be one line of a mail, or "".
func lineProblem(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "it is not UTF-8"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "it has control characters"
	case len(text) > maxHeader:
		return fmt.Sprintf("%d bytes; the maximum is %d", len(text), maxHeader)
	}
	return ""
}

// fieldName reports whether a text can be the name of a header (RFC 5322, 2.2).
func fieldName(text string) bool {
	return text != "" && len(text) <= 76 && !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || c == ':' })
}

// reserved reports whether a header is set from other fields of the message, from the call, or
// by mail servers, or selects settings of the account.
func reserved(canonical string) bool {
	switch canonical {
	case "From", "To", "Cc", "Bcc", "Reply-To", "Sender", "Subject", "Date", "Message-Id",
		"Mime-Version", "Return-Path", "Received", "Dkim-Signature", "Idempotency-Key":
		return true
	}
	// X-SES headers select identities and settings of SES, which only the owner of the account may
	// do. A mail server can be SES, too.
	for _, prefix := range []string{"Content-", "Resent-", "Arc-", "Headgate-", "X-Ses-"} {
		if strings.HasPrefix(canonical, prefix) {
			return true
		}
	}
	return false
}
