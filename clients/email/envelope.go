package email

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	netmail "net/mail"
	"slices"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/headgate/headgate/clients"
)

// envelope is a message as it is sent.
type envelope struct {
	from    string // in angle brackets, like the recipients
	to      []string
	content []byte
	utf8    bool // an address is not ASCII
}

// pack makes the envelope of a valid message. All errors of a message occur here, before a
// connection is used.
func pack(call clients.Call, m Message) (*envelope, error) {
	from, err := parseAddress(m.From)
	if err != nil {
		return nil, fmt.Errorf("from: %w", err)
	}
	e := &envelope{from: path(from)}
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent())
	msg.FromMailAddress(from)
	for field, list := range m.lists() {
		addresses := make([]*netmail.Address, len(list))
		for i, text := range list {
			if addresses[i], err = parseAddress(text); err != nil {
				return nil, fmt.Errorf("%s: %w", field, err)
			}
		}
		if len(list) == 0 {
			continue // an empty header is invalid
		}
		switch field {
		case "to":
			msg.ToMailAddress(addresses...)
		case "cc":
			msg.CcMailAddress(addresses...)
		case "reply_to":
			msg.ReplyToMailAddress(addresses...)
			continue // not recipients
		}
		for _, address := range addresses {
			if to := path(address); !slices.Contains(e.to, to) {
				e.to = append(e.to, to)
			}
		}
	}
	e.utf8 = !ascii(e.from) || slices.ContainsFunc(e.to, func(to string) bool { return !ascii(to) })

	msg.Subject(oneSpace(m.Subject))
	msg.SetDate()
	if id := cmp.Or(call.IdempotencyKey, call.Job); id != "" {
		msg.SetMessageIDWithValue(messageID(id, from.Address))
	}
	for name, value := range m.Headers {
		msg.SetGenHeader(mail.Header(name), oneSpace(value))
	}
	for name, value := range call.Headers() {
		// A word cannot be folded, and servers refuse mail with longer lines.
		if len(value) <= maxHeader {
			msg.SetGenHeader(mail.Header(name), value)
		}
	}
	if m.Text != "" || m.HTML == "" {
		msg.SetBodyString(mail.TypeTextPlain, m.Text)
	}
	if m.HTML != "" {
		msg.AddAlternativeString(mail.TypeTextHTML, m.HTML)
	}
	for _, file := range m.Attachments {
		err := msg.AttachReader(file.Filename, bytes.NewReader(file.Content), mail.WithFileContentType(mail.ContentType(file.ContentType)))
		if err != nil {
			return nil, fmt.Errorf("attach a file: %w", err)
		}
	}
	var content bytes.Buffer
	if _, err := msg.WriteTo(&content); err != nil {
		return nil, fmt.Errorf("encode the message: %w", err)
	}
	e.content = content.Bytes()
	return e, nil
}

// path returns an address in the form of MAIL and RCPT.
func path(address *netmail.Address) string {
	return (&netmail.Address{Address: address.Address}).String()
}

// messageID returns the same id for all attempts of a job, so that receivers can discard
// duplicates.
func messageID(id, from string) string {
	domain := from[strings.LastIndexByte(from, '@')+1:]
	if !ascii(domain) || strings.HasPrefix(domain, "[") {
		domain = "headgate.invalid"
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16]) + "@" + domain
}

// oneSpace collapses white space: mail is folded at spaces, and some servers treat a line of
// only spaces as the end of the headers.
func oneSpace(text string) string { return strings.Join(strings.Fields(text), " ") }

func ascii(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c > '~' })
}
