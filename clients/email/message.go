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

// Message is one mail, and the payload of an email job. Addresses are as in
// mail, with or without a name: "Ann <ann@example.com>".
type Message struct {
	From    string    `json:"from"`
	To      Addresses `json:"to,omitempty"`
	CC      Addresses `json:"cc,omitempty"`
	BCC     Addresses `json:"bcc,omitempty"` // not to be seen in the mail
	ReplyTo Addresses `json:"reply_to,omitempty"`
	Subject string    `json:"subject,omitempty"`

	// Text and HTML are two forms of one body. Without either it is empty.
	Text string `json:"text,omitempty"`
	HTML string `json:"html,omitempty"`

	// Headers are added to the mail's own, which they cannot replace.
	Headers     map[string]string `json:"headers,omitempty"`
	Attachments []Attachment      `json:"attachments,omitempty"`
}

// Addresses is a list of addresses; in JSON a single one may stand for itself.
type Addresses []string

// UnmarshalJSON takes a string or a list of strings.
func (a *Addresses) UnmarshalJSON(data []byte) error {
	var list []string
	if err := json.Unmarshal(data, &list); err == nil {
		*a = list
		return nil
	}
	var one string
	if err := json.Unmarshal(data, &one); err != nil {
		return errors.New("an address, or a list of them, is wanted")
	}
	*a = Addresses{one}
	return nil
}

// Attachment is a file that goes with a mail.
type Attachment struct {
	Filename    string `json:"filename"`
	ContentType string `json:"content_type,omitempty"` // "": by the end of the name
	Content     []byte `json:"content"`                // base64 in JSON
}

const (
	maxRecipients = 1000
	maxHeader     = 900 // bytes; a line of mail has at most 998
)

// Validate reports everything that makes the message unusable, joined, or nil.
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
		wrong("to: nobody would get it")
	case n > maxRecipients:
		wrong("to: %d recipients are more than %d", n, maxRecipients)
	}
	if reason := lineProblem(m.Subject); reason != "" {
		wrong("subject: %s", reason)
	}
	seen := map[string]bool{}
	for name, value := range m.Headers {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !fieldName(name):
			wrong("headers: a name is empty, longer than 76, or not of printable ASCII without ':'")
		case reserved(canonical):
			wrong("headers: %s is not the message's to set", canonical)
		case seen[canonical]:
			wrong("headers: %s stands there twice", canonical)
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
				wrong("attachments[%d]: content_type: it is not one", i)
			}
		}
	}
	return errors.Join(errs...)
}

// lists are the lists of addresses, by the name of their field.
func (m Message) lists() func(yield func(field string, list Addresses) bool) {
	return func(yield func(string, Addresses) bool) {
		_ = yield("to", m.To) && yield("cc", m.CC) && yield("bcc", m.BCC) && yield("reply_to", m.ReplyTo)
	}
}

// parseAddress reads one address. What net/mail would take, and a mail server
// or the line that it is written on would not, is refused.
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

// lineProblem says why text cannot stand on one line of a mail, or "".
func lineProblem(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "it is not UTF-8"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "it has control characters"
	case len(text) > maxHeader:
		return fmt.Sprintf("%d bytes are more than %d", len(text), maxHeader)
	}
	return ""
}

// fieldName tells whether text can be the name of a header (RFC 5322, 2.2).
func fieldName(text string) bool {
	return text != "" && len(text) <= 76 && !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || c == ':' })
}

// reserved tells whether a header is made from the message's other fields, or
// by mail servers on its way, or from the call.
func reserved(canonical string) bool {
	switch canonical {
	case "From", "To", "Cc", "Bcc", "Reply-To", "Sender", "Subject", "Date", "Message-Id",
		"Mime-Version", "Return-Path", "Received", "Dkim-Signature", "Idempotency-Key":
		return true
	}
	for _, prefix := range []string{"Content-", "Resent-", "Arc-", "Headgate-"} {
		if strings.HasPrefix(canonical, prefix) {
			return true
		}
	}
	return false
}
