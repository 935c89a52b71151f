package email

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/mail"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/internal/test/outcomes"
)

// post is a real mail server that keeps what it takes.
type post struct {
	mechanism string // PLAIN or LOGIN; "": none is asked for
	secure    bool   // no mail and no password without TLS

	mu     sync.Mutex
	conns  map[string]bool // by the caller's port
	taken  []taken
	logins []string // user and password, and whether they came over TLS
	refuse map[string]*smtp.SMTPError
}

type taken struct {
	from string
	to   []string
	mail string
}

// newPost serves with TLS from the first byte, by STARTTLS, or without.
func newPost(t *testing.T, p *post, mode string) Config {
	t.Helper()
	serverTLS, clientTLS := certificate(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(listener.Addr().String())
	number, _ := strconv.Atoi(port)
	server := smtp.NewServer(p)
	server.Domain = "post.invalid"
	server.AllowInsecureAuth = !p.secure
	server.ErrorLog = log.New(io.Discard, "", 0) // of callers that do not trust it
	switch mode {
	case TLSImplicit:
		listener = tls.NewListener(listener, serverTLS)
	case TLSMandatory:
		server.TLSConfig = serverTLS
	}
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(listener) })
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
	})
	return Config{Host: host, Port: number, TLS: mode, TLSConfig: clientTLS, LocalName: "client.invalid"}
}

func (p *post) NewSession(c *smtp.Conn) (smtp.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		p.conns = map[string]bool{}
	}
	p.conns[c.Conn().RemoteAddr().String()] = true // after STARTTLS there is another session
	return &postSession{post: p, conn: c}, nil
}

type postSession struct {
	post  *post
	conn  *smtp.Conn
	known bool
	mail  taken
}

func (s *postSession) AuthMechanisms() []string {
	if s.post.mechanism == "" {
		return nil
	}
	return []string{s.post.mechanism}
}

func (s *postSession) Auth(string) (sasl.Server, error) {
	check := func(username, password string) error {
		_, secure := s.conn.TLSConnectionState()
		s.post.mu.Lock()
		s.post.logins = append(s.post.logins, username+" "+password+" "+strconv.FormatBool(secure))
		s.post.mu.Unlock()
		if username != "u" || password != "hunter2" {
			return errors.New("hunter2 is not the password") // as some servers do
		}
		s.known = true
		return nil
	}
	if s.post.mechanism == "LOGIN" {
		return &loginServer{check: check}, nil
	}
	return sasl.NewPlainServer(func(_, username, password string) error { return check(username, password) }), nil
}

// loginServer speaks LOGIN, which go-sasl does for clients alone.
type loginServer struct {
	check func(username, password string) error
	user  string
	step  int
}

func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	l.step++
	switch l.step {
	case 1:
		return []byte("Username:"), false, nil
	case 2:
		l.user = string(response)
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(l.user, string(response))
}

func (s *postSession) refusal(verb string) error {
	s.post.mu.Lock()
	defer s.post.mu.Unlock()
	if refusal := s.post.refuse[verb]; refusal != nil {
		delete(s.post.refuse, verb)
		return refusal
	}
	return nil
}

func (s *postSession) Mail(from string, _ *smtp.MailOptions) error {
	if s.post.mechanism != "" && !s.known {
		return smtp.ErrAuthRequired
	}
	s.mail = taken{from: from}
	return s.refusal("MAIL")
}

func (s *postSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	if err := s.refusal(to); err != nil {
		return err
	}
	s.mail.to = append(s.mail.to, to)
	return nil
}

func (s *postSession) Data(r io.Reader) error {
	content, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := s.refusal("DATA"); err != nil {
		return err
	}
	s.mail.mail = string(content)
	s.post.mu.Lock()
	defer s.post.mu.Unlock()
	s.post.taken = append(s.post.taken, s.mail)
	return nil
}

func (s *postSession) Reset()        { s.mail = taken{} }
func (s *postSession) Logout() error { return nil }

// All ways to a server that wants TLS and a password, and over one connection each.
func TestTLSAndAuthOnTheWire(t *testing.T) {
	for _, mode := range []string{TLSImplicit, TLSMandatory} {
		for _, mechanism := range []string{"PLAIN", "LOGIN"} {
			t.Run(mode+" "+mechanism, func(t *testing.T) {
				p := &post{mechanism: mechanism, secure: true}
				config := newPost(t, p, mode)
				config.Username, config.Password = "u", "hunter2"
				s := newSender(t, config)
				for range 3 {
					if err := s.Send(t.Context(), call, plain()); err != nil {
						t.Fatal(err)
					}
				}
				if len(p.taken) != 3 || len(p.conns) != 1 || strings.Join(p.logins, ",") != "u hunter2 true" {
					t.Errorf("%d mails over %d connections after %q", len(p.taken), len(p.conns), p.logins)
				}
				config.Password = "wrong"
				if err := newSender(t, config).Send(t.Context(), call, plain()); outcomes.Of(err) != "account exhausted" || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("%s: %v", outcomes.Of(err), err)
				}
			})
		}
	}
}

// A server that offers TLS and is not trusted is told nothing.
func TestNothingIsToldWithoutTrust(t *testing.T) {
	for _, mode := range []string{TLSImplicit, TLSMandatory} {
		p := &post{mechanism: "PLAIN"}
		config := newPost(t, p, mode)
		config.Username, config.Password, config.TLSConfig = "u", "hunter2", nil
		if err := newSender(t, config).Send(t.Context(), call, plain()); outcomes.Of(err) != "retryable" {
			t.Errorf("%s: %s: %v", mode, outcomes.Of(err), err)
		}
		if len(p.logins) > 0 || len(p.taken) > 0 {
			t.Errorf("%s: %q", mode, p.logins)
		}
	}
}

// One Message-ID for all attempts of a job, also those that were refused late;
// another for another job.
func TestOneMessageIDPerJob(t *testing.T) {
	p := &post{refuse: map[string]*smtp.SMTPError{}}
	s := newSender(t, newPost(t, p, TLSNone))
	id := func(i int) string {
		m, err := mail.ReadMessage(strings.NewReader(p.taken[i].mail))
		if err != nil {
			t.Fatal(err)
		}
		return m.Header.Get("Message-ID")
	}
	for attempt := range 3 {
		if err := s.Send(t.Context(), clients.Call{Job: "018f", Attempt: attempt + 1, IdempotencyKey: "acme:1"}, plain()); err != nil {
			t.Fatal(err)
		}
	}
	p.refuse["DATA"] = &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "later"}
	other := clients.Call{IdempotencyKey: "acme:2"}
	if err := s.Send(t.Context(), other, plain()); outcomes.Of(err) != "retryable" || !strings.Contains(err.Error(), "451 4.3.0 later") {
		t.Errorf("%v", err)
	}
	if err := s.Send(t.Context(), other, plain()); err != nil {
		t.Fatal(err)
	}
	if id(0) == "" || id(0) != id(1) || id(0) != id(2) || id(0) == id(3) {
		t.Errorf("%q %q %q %q", id(0), id(1), id(2), id(3))
	}
}

// Several recipients, both bodies and a file, as they arrive.
func TestWholeMailOnTheWire(t *testing.T) {
	p := &post{refuse: map[string]*smtp.SMTPError{}}
	s := newSender(t, newPost(t, p, TLSNone))
	m := Message{
		From: "Ann <ann@example.com>", To: Addresses{"x@y.z", "v@y.z"}, CC: Addresses{"c@y.z"}, BCC: Addresses{"secret@y.z"},
		Subject: "hi", Text: ".\r\n..\r\ntext", HTML: "<p>ü</p>", Attachments: []Attachment{{Filename: "f.bin", Content: []byte{0, 1, 2, 255}}},
	}
	if err := s.Send(t.Context(), call, m); err != nil {
		t.Fatal(err)
	}
	got := p.taken[0]
	if got.from != "ann@example.com" || strings.Join(got.to, " ") != "x@y.z v@y.z c@y.z secret@y.z" || strings.Contains(got.mail, "secret@") {
		t.Errorf("%+v", got)
	}
	parsed, err := mail.ReadMessage(strings.NewReader(got.mail))
	if err != nil {
		t.Fatal(err)
	}
	if got := parts(t, textproto.MIMEHeader(parsed.Header), parsed.Body); got != "text/plain:.\r\n..\r\ntext text/html:<p>ü</p> application/octet-stream:\x00\x01\x02\xff" {
		t.Errorf("%q", got)
	}
	// One recipient that is refused: nobody gets it, and the connection goes on.
	p.refuse["c@y.z"] = &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"}
	if err := s.Send(t.Context(), call, m); outcomes.Of(err) != "permanent" || !strings.Contains(err.Error(), "550 5.1.1 no such user") {
		t.Errorf("%s: %v", outcomes.Of(err), err)
	}
	if err := s.Send(t.Context(), call, m); err != nil || len(p.taken) != 2 || len(p.conns) != 1 {
		t.Errorf("%d mails over %d connections: %v", len(p.taken), len(p.conns), err)
	}
}
