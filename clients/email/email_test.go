package email

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gosasl "github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"go.uber.org/goleak"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/sandbox"
)

// certificate is a server's, which this process trusts like one of the system's.
var certificate tls.Certificate

func TestMain(m *testing.M) {
	web := httptest.NewTLSServer(nil)
	certificate = web.TLS.Certificates[0]
	file, err := os.CreateTemp("", "headgate-email-*.pem")
	if err == nil {
		err = pem.Encode(file, &pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	}
	if err == nil {
		err = os.Setenv("SSL_CERT_FILE", file.Name()) // read when the first certificate is checked
	}
	web.Close()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.Remove(file.Name())
		os.Exit(code)
	}))
}

// server is a mail server that answers as told and keeps what it got.
type server struct {
	addr    string
	backend *smtp.Server

	mu          sync.Mutex
	answer      error // to DATA
	connections int
	mails       []string
	recipients  []string
}

func start(t *testing.T, authenticate func(user, password string) error) *server {
	t.Helper()
	s := &server{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = listener.Addr().String()
	backend := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		s.mu.Lock()
		s.connections++
		s.mu.Unlock()
		return &session{s: s, auth: authenticate, conn: c}, nil
	}))
	backend.Domain, backend.TLSConfig = "localhost", &tls.Config{Certificates: []tls.Certificate{certificate}}
	s.backend = backend
	ended := make(chan struct{})
	go func() { _ = backend.Serve(listener); close(ended) }()
	t.Cleanup(func() { backend.Close(); <-ended })
	return s
}

type session struct {
	s    *server
	auth func(user, password string) error
	conn *smtp.Conn
}

func (s *session) AuthMechanisms() []string {
	if s.auth == nil {
		return nil
	}
	return []string{gosasl.Plain}
}

func (s *session) Auth(string) (gosasl.Server, error) {
	return gosasl.NewPlainServer(func(_, user, password string) error { return s.auth(user, password) }), nil
}

func (s *session) Mail(string, *smtp.MailOptions) error { return nil }
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	s.s.recipients = append(s.s.recipients, to)
	return nil
}
func (s *session) Reset()        {}
func (s *session) Logout() error { return nil }
func (s *session) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	if errors.Is(s.s.answer, errDrop) {
		_ = s.conn.Conn().Close()
		return io.ErrUnexpectedEOF
	}
	if s.s.answer != nil {
		return s.s.answer
	}
	s.s.mails = append(s.s.mails, string(text))
	return nil
}

var errDrop = errors.New("close the connection")

func (s *server) sender(t *testing.T, edit func(*Config)) *Sender {
	t.Helper()
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	config := Config{Host: host, Port: n, TLS: "none", Timeout: 5 * time.Second}
	if edit != nil {
		edit(&config)
	}
	sender, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sender.Close)
	return sender
}

var call = clients.Call{Job: "job-1", Tenant: "acmé", Attempt: 2, IdempotencyKey: "job-1"}

func message() Message {
	return Message{From: "Acme <news@acme.example>", To: Addresses{"you@example.com"}, Subject: "Grüße", Text: "hello"}
}

func TestSend(t *testing.T) {
	s := start(t, nil)
	sender := s.sender(t, nil)
	m := message()
	m.CC, m.BCC = Addresses{"cc@example.com"}, Addresses{"bcc@example.com"}
	m.ReplyTo, m.HTML, m.Headers = "reply@acme.example", "<p>hello</p>", map[string]string{"X-Own": "1"}
	m.Attachments = []Attachment{{Filename: "a.txt", ContentType: "text/plain", Content: []byte("attached")}}
	for range 2 {
		if err := sender.Send(t.Context(), call, m); err != nil {
			t.Fatal(err)
		}
	}
	if s.connections != 1 {
		t.Errorf("%d connections for two mails one after the other", s.connections)
	}
	if fmt.Sprint(s.recipients[:3]) != "[you@example.com cc@example.com bcc@example.com]" {
		t.Errorf("recipients = %v", s.recipients)
	}
	ids := map[string]bool{}
	for _, text := range s.mails {
		for line := range strings.Lines(text) {
			if id, ok := strings.CutPrefix(line, "Message-ID: "); ok {
				ids[id] = true
			}
		}
		for _, want := range []string{"Headgate-Job: job-1", "Headgate-Attempt: 2", "X-Own: 1", "Reply-To: <reply@acme.example>", "text/html", "a.txt"} {
			if !strings.Contains(text, want) {
				t.Errorf("the mail lacks %q:\n%s", want, text)
			}
		}
		if strings.Contains(text, "bcc@example.com") {
			t.Error("the mail tells who got a blind copy")
		}
	}
	if len(ids) != 1 {
		t.Errorf("two attempts of one job have the Message-IDs %v", ids)
	}
}

func TestOutcomes(t *testing.T) {
	status := func(code, class, subject, detail int, text string) error {
		return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{class, subject, detail}, Message: text}
	}
	for _, test := range []struct {
		answer error
		want   string
	}{
		{nil, "ok"},
		{status(421, 4, 3, 2, "shutting down"), "throttled"},
		{status(450, 4, 7, 0, "slow down"), "throttled"},
		{status(450, 4, 2, 1, "greylisted, try again"), "retryable"},
		{status(451, 4, 3, 0, "rate limit exceeded"), "throttled"},
		{status(451, 4, 3, 0, "local error"), "retryable"},
		{status(452, 4, 5, 3, "too many recipients"), "throttled"},
		{status(452, 4, 3, 1, "no space"), "retryable"},
		{status(454, 4, 7, 1, "throttling"), "throttled"},
		{status(550, 5, 1, 1, "no such user"), "permanent"},
		{status(552, 5, 3, 4, "message too big"), "permanent"},
		{status(554, 5, 7, 1, "spam"), "permanent"},
		{errDrop, "unknown"},
	} {
		s := start(t, nil)
		s.answer = test.answer
		err := s.sender(t, nil).Send(t.Context(), call, message())
		if got := class(err); got != test.want {
			t.Errorf("%v: %s (%v), want %s", test.answer, got, err, test.want)
		}
	}
}

// class is what an error means for a job.
func class(err error) string {
	switch err.(type) {
	case nil:
		return "ok"
	case *clients.ThrottledError:
		return "throttled"
	case *clients.PermanentError:
		return "permanent"
	case *clients.UnknownError:
		return "unknown"
	}
	return "retryable"
}

func TestConnections(t *testing.T) {
	t.Run("nobody listens", func(t *testing.T) {
		s := start(t, nil)
		sender := s.sender(t, func(c *Config) { c.Port = 1 })
		if err := sender.Send(t.Context(), call, message()); class(err) != "retryable" {
			t.Errorf("%v", err)
		}
	})
	t.Run("TLS is wanted and not there", func(t *testing.T) {
		s := start(t, nil)
		s.backend.TLSConfig = nil
		if err := s.sender(t, func(c *Config) { c.TLS = "mandatory" }).Send(t.Context(), call, message()); class(err) != "retryable" || err == nil {
			t.Errorf("%v", err)
		}
		if len(s.mails) > 0 {
			t.Error("it was sent in the clear")
		}
	})
	t.Run("a kept connection died", func(t *testing.T) {
		provider, err := sandbox.NewSMTP()
		if err != nil {
			t.Fatal(err)
		}
		defer provider.Close()
		sender := (&server{addr: provider.Addr()}).sender(t, nil)
		if err := sender.Send(t.Context(), call, message()); err != nil {
			t.Fatal(err)
		}
		sender.mu.Lock()
		_ = sender.idle[0].Close() // as if the server had
		sender.mu.Unlock()
		if err := sender.Send(t.Context(), call, message()); err != nil {
			t.Errorf("the next mail failed with it: %v", err)
		}
	})
	t.Run("many at once", func(t *testing.T) {
		s := start(t, nil)
		sender := s.sender(t, nil)
		var mails sync.WaitGroup
		for range 200 {
			mails.Go(func() {
				if err := sender.Send(t.Context(), call, message()); err != nil {
					t.Error(err)
				}
			})
		}
		mails.Wait()
		if len(s.mails) != 200 {
			t.Errorf("%d mails", len(s.mails))
		}
	})
	t.Run("the worker stops", func(t *testing.T) {
		provider, err := sandbox.NewSMTP()
		if err != nil {
			t.Fatal(err)
		}
		defer provider.Close()
		release := provider.Hang()
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err = (&server{addr: provider.Addr()}).sender(t, nil).Send(ctx, call, message())
		if err == nil || class(err) == "permanent" {
			t.Errorf("%s: %v", class(err), err)
		}
	})
	t.Run("credentials", func(t *testing.T) {
		s := start(t, func(user, password string) error {
			if user != "u" || password != "hush-hush" {
				return errors.New("refused")
			}
			return nil
		})
		good := s.sender(t, func(c *Config) { c.TLS, c.Username, c.Password = "mandatory", "u", "hush-hush" })
		if err := good.Send(t.Context(), call, message()); err != nil {
			t.Errorf("%v", err)
		}
		bad := s.sender(t, func(c *Config) { c.TLS, c.Username, c.Password = "mandatory", "u", "hush-wrong" })
		err := bad.Send(t.Context(), call, message())
		if err == nil || class(err) != "retryable" || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", class(err), err)
		}
		clear := s.sender(t, func(c *Config) { c.Username, c.Password = "u", "hush-hush" })
		if err := clear.Send(t.Context(), call, message()); err == nil {
			t.Error("credentials were sent in the clear")
		}
	})
}

func TestValidate(t *testing.T) {
	edit := func(f func(*Message)) Message {
		m := message()
		f(&m)
		return m
	}
	for want, m := range map[string]Message{
		"from: ":                             edit(func(m *Message) { m.From = "a@b\r\nBcc: x@y" }),
		"to: nobody":                         edit(func(m *Message) { m.To = nil }),
		"to: \"x\" is not an address":        edit(func(m *Message) { m.To = Addresses{"x"} }),
		"cc: ":                               edit(func(m *Message) { m.CC = Addresses{"x@y\nz"} }),
		"reply_to: ":                         edit(func(m *Message) { m.ReplyTo = "no" }),
		"subject: it has control characters": edit(func(m *Message) { m.Subject = "a\r\nBcc: x@y" }),
		"text: there is neither":             edit(func(m *Message) { m.Text = "" }),
		"headers: BCC is set by the sender":  edit(func(m *Message) { m.Headers = map[string]string{"BCC": "x@y"} }),
		"headers: headgate-job is set":       edit(func(m *Message) { m.Headers = map[string]string{"headgate-job": "x"} }),
		"is not a header's name":             edit(func(m *Message) { m.Headers = map[string]string{"a: b": "x"} }),
		"the value of X-A has control":       edit(func(m *Message) { m.Headers = map[string]string{"X-A": "x\nY: z"} }),
		"attachments[0].filename: ":          edit(func(m *Message) { m.Attachments = []Attachment{{Filename: "../x"}} }),
		"attachments[0].content_type: ":      edit(func(m *Message) { m.Attachments = []Attachment{{Filename: "x", ContentType: "a\r\nb"}} }),
	} {
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if err := message().Validate(); err != nil {
		t.Error(err)
	}
	var m Message
	if err := json.Unmarshal([]byte(`{"from":"a@b","to":"c@d","cc":["e@f","g@h"],"attachments":[{"filename":"x","content":"aGk="}]}`), &m); err != nil ||
		len(m.To) != 1 || len(m.CC) != 2 || string(m.Attachments[0].Content) != "hi" {
		t.Errorf("%+v, %v", m, err)
	}
}
