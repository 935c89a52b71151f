package email

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/mail"
	"strings"
	"unicode"

	gomail "github.com/wneessen/go-mail"
	"golang.org/x/net/http/httpguts"

	"github.com/headgate/headgate/clients"
)

// Message is the payload of an email job.
type Message struct {
	From        string            `json:"from"`
	To          Addresses         `json:"to,omitempty"`
	CC          Addresses         `json:"cc,omitempty"`
	BCC         Addresses         `json:"bcc,omitempty"`
	ReplyTo     string            `json:"reply_to,omitempty"`
	Subject     string            `json:"subject,omitempty"`
	Text        string            `json:"text,omitempty"`
	HTML        string            `json:"html,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Attachments []Attachment      `json:"attachments,omitempty"`
}

// Addresses is one address or a list of them.
type Addresses []string

// UnmarshalJSON reads a string or a list of strings.
func (a *Addresses) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = Addresses{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(text, &list); err != nil {
		return errors.New("want an address or a list of addresses")
	}
	*a = list
	return nil
}

// Attachment is a file in a message.
type Attachment struct {
	Filename    string `json:"filename"`
	ContentType string `json:"content_type,omitempty"` // "" : by the name's ending
	Content     []byte `json:"content"`                // base64 in JSON
}

// reserved headers are made from the message's other fields, or are ours.
var reserved = map[string]bool{
	"from": true, "to": true, "cc": true, "bcc": true, "reply-to": true, "subject": true, "date": true,
	"message-id": true, "mime-version": true, "content-type": true, "content-transfer-encoding": true, "idempotency-key": true,
}

// Validate reports every reason why the message could never be sent, or nil.
func (m Message) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	address := func(field, text string) {
		if _, err := mail.ParseAddress(text); err != nil || strings.ContainsFunc(text, unicode.IsControl) {
			wrong("%s: %.80q is not an address", field, text)
		}
	}
	address("from", m.From)
	if len(m.To)+len(m.CC)+len(m.BCC) == 0 {
		wrong("to: nobody is to get it")
	}
	for field, list := range map[string]Addresses{"to": m.To, "cc": m.CC, "bcc": m.BCC} {
		for _, text := range list {
			address(field, text)
		}
	}
	if m.ReplyTo != "" {
		address("reply_to", m.ReplyTo)
	}
	if strings.ContainsFunc(m.Subject, unicode.IsControl) {
		wrong("subject: it has control characters")
	}
	if m.Text == "" && m.HTML == "" {
		wrong("text: there is neither text nor html")
	}
	for name, value := range m.Headers {
		lower := strings.ToLower(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			wrong("headers: %.40q is not a header's name", name)
		case reserved[lower] || strings.HasPrefix(lower, "headgate-"):
			wrong("headers: %s is set by the sender", name)
		case strings.ContainsFunc(value, unicode.IsControl):
			wrong("headers: the value of %s has control characters", name)
		}
	}
	for i, file := range m.Attachments {
		if file.Filename == "" || strings.ContainsFunc(file.Filename, unicode.IsControl) || strings.ContainsAny(file.Filename, `/\`) {
			wrong("attachments[%d].filename: %.80q is not a file's name", i, file.Filename)
		}
		if strings.ContainsFunc(file.ContentType, unicode.IsControl) {
			wrong("attachments[%d].content_type: it has control characters", i)
		}
	}
	return errors.Join(errs...)
}

// encode makes the message that is sent.
func (m Message) encode(call clients.Call) (*gomail.Msg, error) {
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	err := errors.Join(msg.From(m.From), msg.To(m.To...), msg.Cc(m.CC...), msg.Bcc(m.BCC...))
	if m.ReplyTo != "" {
		err = errors.Join(err, msg.ReplyTo(m.ReplyTo))
	}
	if err != nil {
		return nil, err
	}
	msg.Subject(m.Subject)
	msg.SetDate()
	msg.SetMessageIDWithValue(m.messageID(call))
	for name, value := range m.Headers {
		msg.SetGenHeader(gomail.Header(name), value)
	}
	for name, value := range call.Headers() {
		msg.SetGenHeader(gomail.Header(name), value)
	}
	switch {
	case m.Text == "":
		msg.SetBodyString(gomail.TypeTextHTML, m.HTML)
	default:
		msg.SetBodyString(gomail.TypeTextPlain, m.Text)
		if m.HTML != "" {
			msg.AddAlternativeString(gomail.TypeTextHTML, m.HTML)
		}
	}
	for _, file := range m.Attachments {
		var options []gomail.FileOption
		if file.ContentType != "" {
			options = append(options, gomail.WithFileContentType(gomail.ContentType(file.ContentType)))
		}
		msg.AttachReadSeeker(file.Filename, bytes.NewReader(file.Content), options...)
	}
	return msg, nil
}

// messageID is one for all attempts of a job, so that a receiver who gets it
// twice can tell.
func (m Message) messageID(call clients.Call) string {
	domain := "headgate.invalid"
	if from, err := mail.ParseAddress(m.From); err == nil {
		_, domain, _ = strings.Cut(from.Address, "@")
	}
	sum := sha256.Sum256([]byte(call.IdempotencyKey))
	return hex.EncodeToString(sum[:16]) + "@" + domain
}
