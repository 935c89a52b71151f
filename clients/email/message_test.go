package email

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
)

func plain() Message {
	return Message{From: "shop@example.com", To: Addresses{"you@example.net"}, Subject: "hi", Text: "hello"}
}

func TestMessageJSON(t *testing.T) {
	var m Message
	err := json.Unmarshal([]byte(`{"from":"a@b.c","to":"x@y.z","cc":["p@q.r","s@t.u"],"bcc":[],"reply_to":"v@w.x","subject":"S",
		"text":"T","html":"<p>","headers":{"X-A":"1"},"attachments":[{"filename":"f.txt","content_type":"text/plain","content":"aGk="}]}`), &m)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(m)
	if want := "{a@b.c [x@y.z] [p@q.r s@t.u] [] [v@w.x] S T <p> map[X-A:1] [{f.txt text/plain [104 105]}]}"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	for _, text := range []string{`{"to":5}`, `{"to":[5]}`, `{"to":{}}`, `{"attachments":[{"content":"%"}]}`} {
		if err := json.Unmarshal([]byte(text), &m); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

func TestValidate(t *testing.T) {
	change := func(f func(m *Message)) Message { m := plain(); f(&m); return m }
	header := func(name, value string) Message {
		return change(func(m *Message) { m.Headers = map[string]string{name: value} })
	}
	file := func(a Attachment) Message {
		return change(func(m *Message) { m.Attachments = []Attachment{a} })
	}
	tests := map[string]struct {
		message Message
		wrong   string // "": nothing
	}{
		"plain":               {plain(), ""},
		"names":               {change(func(m *Message) { m.From = `Änn "O" <ann@example.com>`; m.To = Addresses{`"a b"@example.com`} }), ""},
		"bcc alone":           {change(func(m *Message) { m.To, m.BCC = nil, Addresses{"x@y.z"} }), ""},
		"other language":      {change(func(m *Message) { m.To = Addresses{"jürgen@bücher.example"} }), ""},
		"empty body":          {change(func(m *Message) { m.Text = "" }), ""},
		"unsubscribe":         {header("List-Unsubscribe", "<https://example.com/u?x=1>"), ""},
		"file":                {file(Attachment{Filename: "r.pdf", Content: []byte("x")}), ""},
		"no sender":           {change(func(m *Message) { m.From = "" }), "from: it is empty"},
		"no domain":           {change(func(m *Message) { m.From = "root" }), "from: "},
		"nobody":              {change(func(m *Message) { m.To = nil }), "to: there are no recipients"},
		"two in one":          {change(func(m *Message) { m.To = Addresses{"a@b.c, d@e.f"} }), "to: "},
		"sender line break":   {change(func(m *Message) { m.From = "a@b.c\r\nRCPT TO:<evil@x.y>" }), "from: it has control"},
		"folded address":      {change(func(m *Message) { m.CC = Addresses{"a@b.c\r\n "} }), "cc: it has control"},
		"bracket":             {change(func(m *Message) { m.BCC = Addresses{"<a@b.c> SIZE=1"} }), "bcc: "},
		"reply line break":    {change(func(m *Message) { m.ReplyTo = Addresses{"a@b.c\nX: 1"} }), "reply_to: it has control"},
		"not utf-8":           {change(func(m *Message) { m.Subject = "\xff" }), "subject: it is not UTF-8"},
		"subject line break":  {change(func(m *Message) { m.Subject = "hi\r\nBcc: evil@x.y" }), "subject: it has control"},
		"endless subject":     {change(func(m *Message) { m.Subject = strings.Repeat("x", 901) }), "subject: 901 bytes"},
		"many":                {change(func(m *Message) { m.To = slices.Repeat(Addresses{"a@b.c"}, 1001) }), "1001 recipients"},
		"header line break":   {header("X-A", "1\r\nBcc: evil@x.y"), "X-A: it has control"},
		"header name":         {header("X-A: 1\r\nBcc", "evil@x.y"), "headers: a name"},
		"header without name": {header("", "x"), "headers: a name"},
		"header with colon":   {header("X:", "x"), "headers: a name"},
		"bcc header":          {header("bCC", "evil@x.y"), "Bcc is reserved"},
		"message id":          {header("message-id", "<x@y>"), "Message-Id is reserved"},
		"content":             {header("content-type", "text/html"), "Content-Type is reserved"},
		"tenant":              {header("headgate-tenant", "other"), "Headgate-Tenant is reserved"},
		"settings of SES":     {header("x-SES-source-arn", "arn:aws:ses:x"), "X-Ses-Source-Arn is reserved"},
		"header twice":        {change(func(m *Message) { m.Headers = map[string]string{"x-a": "1", "X-A": "2"} }), "duplicate header"},
		"no file name":        {file(Attachment{}), "filename"},
		"file line break":     {file(Attachment{Filename: "a\r\nX: 1"}), "filename"},
		"type line break":     {file(Attachment{Filename: "a", ContentType: "text/plain\r\nX: 1"}), "content_type"},
		"type of none":        {file(Attachment{Filename: "a", ContentType: "; x"}), "content_type"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.message.Validate()
			if err == nil {
				if tt.wrong != "" {
					t.Fatalf("nothing is wrong; want %q", tt.wrong)
				}
				if _, err := pack(clients.Call{}, tt.message); err != nil {
					t.Fatalf("accepted, but: %v", err)
				}
				return
			}
			if tt.wrong == "" || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("got %q; want %q", err, tt.wrong)
			}
			if strings.ContainsAny(err.Error(), "\r\x00") {
				t.Errorf("%q", err)
			}
		})
	}
}

var call = clients.Call{Job: "018f", Tenant: "Ü", Attempt: 2, First: time.Now(), IdempotencyKey: "acme:1"}

func TestPack(t *testing.T) {
	m := Message{
		From: "Änn  B <ann@example.com>", To: Addresses{"x@y.z", "X <x@y.z>"}, CC: Addresses{"c@y.z"}, BCC: Addresses{"secret@y.z", `"a b"@y.z`},
		ReplyTo: Addresses{"r@y.z"}, Subject: "Grüße " + strings.Repeat(" ", 300) + "!", Text: ".\r\ntext", HTML: "<p>ü</p>",
		Headers:     map[string]string{"X-Campaign": "spring   " + strings.Repeat("word ", 50)},
		Attachments: []Attachment{{Filename: "Übersicht.txt", ContentType: "text/plain", Content: []byte("file")}},
	}
	e, err := pack(call, m)
	if err != nil {
		t.Fatal(err)
	}
	if e.from != "<ann@example.com>" || strings.Join(e.to, " ") != `<x@y.z> <c@y.z> <secret@y.z> <"a b"@y.z>` || e.utf8 {
		t.Errorf("%s to %s, utf8 %v", e.from, e.to, e.utf8)
	}
	if strings.Contains(string(e.content), "secret@") {
		t.Error("a blind copy can be seen")
	}
	for line := range strings.SplitSeq(string(e.content), "\r\n") {
		if len(line) > 998 || line != "" && strings.TrimSpace(line) == "" || strings.ContainsAny(line, "\r\n") {
			t.Errorf("a line of %q", line)
		}
	}
	parsed, err := mail.ReadMessage(strings.NewReader(string(e.content)))
	if err != nil {
		t.Fatal(err)
	}
	subject, _ := new(mime.WordDecoder).DecodeHeader(parsed.Header.Get("Subject"))
	for name, want := range map[string]string{
		"Headgate-Job": "018f", "Headgate-Tenant": "%C3%9C", "Headgate-Attempt": "2", "Idempotency-Key": "acme:1",
		"To": "<x@y.z>, \"X\" <x@y.z>", "Cc": "<c@y.z>", "Bcc": "", "Reply-To": "<r@y.z>", "User-Agent": "", "X-Mailer": "",
		"X-Campaign": strings.TrimSpace("spring " + strings.Repeat("word ", 50)),
		"Message-Id": "<" + messageID("acme:1", "ann@example.com") + ">",
	} {
		if got := parsed.Header.Get(name); got != want {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}
	if subject != "Grüße !" {
		t.Errorf("subject %q", subject)
	}
	if got := parts(t, textproto.MIMEHeader(parsed.Header), parsed.Body); got != "text/plain:.\r\ntext text/html:<p>ü</p> text/plain:file" {
		t.Errorf("%s", got)
	}
}

// parts are the leaves of a MIME tree.
func parts(t *testing.T, header textproto.MIMEHeader, body io.Reader) string {
	kind, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(kind, "multipart/") {
		content, _ := io.ReadAll(body)
		if header.Get("Content-Transfer-Encoding") == "base64" {
			json.Unmarshal([]byte(`"`+strings.ReplaceAll(string(content), "\r\n", "")+`"`), &content)
		}
		return kind + ":" + strings.TrimRight(string(content), "\r\n")
	}
	var all []string
	for r := multipart.NewReader(body, params["boundary"]); ; {
		part, err := r.NextPart()
		if err != nil {
			return strings.Join(all, " ")
		}
		all = append(all, parts(t, part.Header, part))
	}
}

func TestMessageID(t *testing.T) {
	first := messageID("acme:1", "ann@example.com")
	if first != messageID("acme:1", "bob@example.com") || first == messageID("acme:2", "ann@example.com") {
		t.Error("it must be one per job")
	}
	if !strings.HasSuffix(first, "@example.com") {
		t.Error(first)
	}
	if got := messageID("1", "a@bücher.example"); !strings.HasSuffix(got, "@headgate.invalid") {
		t.Error(got)
	}
	e, err := pack(clients.Call{Job: strings.Repeat("j", 1200)}, plain())
	if err != nil || strings.Contains(string(e.content), "Headgate-Job") || !strings.Contains(string(e.content), messageID(strings.Repeat("j", 1200), "@example.com")) {
		t.Errorf("a very long id: %v\n%s", err, e.content)
	}
}

func FuzzPack(f *testing.F) {
	f.Add("a@b.c", "d@e.f", "subject", "X-A", "value", "text", "file.txt")
	f.Add("Ä <ä@ö.ü>", `"a\"b"@c.d`, "  ", "X", strings.Repeat(" ", 200), ".\r\n.\r\n", "\"")
	f.Fuzz(func(t *testing.T, from, to, subject, name, value, text, file string) {
		m := Message{
			From: from, To: Addresses{to}, Subject: subject, Text: text, Headers: map[string]string{name: value},
			Attachments: []Attachment{{Filename: file, Content: []byte(text)}},
		}
		if m.Validate() != nil {
			return
		}
		e, err := pack(call, m)
		if err != nil {
			t.Fatalf("accepted, but: %v", err)
		}
		for _, path := range append(e.to, e.from) {
			if strings.ContainsAny(path, "\r\n\x00") || !strings.HasPrefix(path, "<") || !strings.HasSuffix(path, ">") {
				t.Fatalf("path %q", path)
			}
		}
		parsed, err := mail.ReadMessage(strings.NewReader(string(e.content)))
		if err != nil {
			t.Fatalf("not a mail: %v\n%s", err, e.content)
		}
		known := []string{
			"Date", "Message-Id", "Mime-Version", "Subject", "From", "To", "Content-Type", "Content-Transfer-Encoding",
			"Headgate-Job", "Headgate-Tenant", "Headgate-Attempt", "Idempotency-Key", textproto.CanonicalMIMEHeaderKey(name),
		}
		for header := range parsed.Header {
			if !slices.Contains(known, header) {
				t.Fatalf("header %q came out of\n%s", header, e.content)
			}
		}
		if len(e.to) != 1 {
			t.Fatalf("recipients %q", e.to)
		}
	})
}
