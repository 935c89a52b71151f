package sandbox

import (
	"cmp"
	"context"
	"crypto/subtle"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/mail"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// SMTP is a mail server on its own loopback port that discards accepted messages. The tenant is
// the header Headgate-Tenant of the message or, without it, the domain of its sender. A call
// arrives when DATA begins: everything before can still be undone, and the duration of DATA
// depends on the caller. A message that exceeds a limit is refused after DATA with 450 4.7.0 or
// 421 4.7.0, see Config.ThrottleCode. A message that hangs does not notice that its caller has
// disconnected.
type SMTP struct {
	*Provider
	config   Config
	server   *smtp.Server
	listener *connTracker
	serving  sync.WaitGroup
	stop     func() error
}

// NewSMTP starts a provider. It returns errors of the network. Without a Config, or with the zero
// one, it accepts all messages. Close stops it.
func NewSMTP(config ...Config) (*SMTP, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	s := &SMTP{config: one(config), listener: &connTracker{Listener: listener, conns: map[*trackedConn]struct{}{}}}
	s.Provider = newProvider(s.config)
	s.server = smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		return &session{provider: s, conn: c}, nil
	}))
	s.server.Domain = "sandbox.invalid"
	s.server.MaxMessageBytes = 32 << 20
	s.server.MaxRecipients = 1000
	s.server.ReadTimeout = 5 * time.Minute // as required by RFC 5321
	s.server.AllowInsecureAuth = true      // loopback only, with a test password
	s.server.TLSConfig = s.config.TLS
	s.server.ErrorLog = log.New(io.Discard, "", 0) // hostile callers are expected
	s.stop = sync.OnceValue(func() error {
		close(s.done)
		err := s.listener.closeAll()
		s.serving.Wait()                        // there are no new connections after this
		s.server.Shutdown(context.Background()) // waits for their handlers
		return err
	})
	s.serving.Go(func() { s.server.Serve(s.listener) })
	return s, nil
}

// Addr returns the address, 127.0.0.1:port.
func (s *SMTP) Addr() string { return s.listener.Addr().String() }

// Close closes all connections and waits for their handlers. It can be called twice.
func (s *SMTP) Close() error { return s.stop() }

// session is the session of one connection.
type session struct {
	provider *SMTP
	conn     *smtp.Conn
	from     string
	known    bool // authenticated by username and password
}

func (s *session) AuthMechanisms() []string {
	if s.provider.config.Username == "" {
		return nil
	}
	return []string{sasl.Plain}
}

func (s *session) Auth(mechanism string) (sasl.Server, error) {
	if s.provider.config.Username == "" || mechanism != sasl.Plain {
		return nil, smtp.ErrAuthUnknownMechanism
	}
	return sasl.NewPlainServer(func(_, username, password string) error {
		config := s.provider.config
		if username != config.Username || subtle.ConstantTimeCompare([]byte(password), []byte(config.Password)) == 0 {
			return smtp.ErrAuthFailed
		}
		s.known = true
		return nil
	}), nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if s.provider.config.Username != "" && !s.known {
		return &smtp.SMTPError{Code: 530, EnhancedCode: smtp.EnhancedCode{5, 7, 0}, Message: "authentication required"}
	}
	s.from = from
	return nil
}

func (s *session) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (s *session) Reset()                               { s.from = "" }
func (s *session) Logout() error                        { return nil }

// maxHeaders is the max number of bytes read for the headers of a message.
const maxHeaders = 64 << 10

func (s *session) Data(r io.Reader) error {
	at := time.Now()
	c := Call{}
	if message, err := mail.ReadMessage(io.LimitReader(r, maxHeaders)); err == nil {
		c = callOf(message.Header.Get)
		c.Key = cmp.Or(c.Key, clip(message.Header.Get("Message-ID")))
	}
	if c.Tenant == "" {
		_, domain, _ := strings.Cut(s.from, "@")
		c.Tenant = clip(strings.ToLower(domain))
	}
	throttled := 450
	if s.provider.config.ThrottleCode == 421 {
		throttled = 421
	}
	v := s.provider.arrive(at, c, protocol{ok: 250, throttled: throttled})
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	conn := s.raw()
	if !s.provider.linger(context.Background(), v) {
		conn.Close()
		return errAborted
	}
	switch {
	case v.rejected:
		seconds := max(math.Ceil(v.wait.Seconds()), 1)
		return conn.refusal(throttled, smtp.EnhancedCode{4, 7, 0}, fmt.Sprintf("rate limit exceeded, try again in %.0f seconds", seconds))
	case v.struck && v.status == NoAnswer:
		conn.Close()
		return errAborted
	case v.struck && v.status >= 400 && v.status <= 599:
		return conn.refusal(v.status, smtp.EnhancedCodeNotSet, "fault")
	case v.struck:
		return conn.refusal(451, smtp.EnhancedCodeNotSet, "fault")
	}
	return nil
}

// errAborted is not sent: the connection is closed.
var errAborted = &smtp.SMTPError{Code: 421, EnhancedCode: smtp.EnhancedCode{4, 0, 0}, Message: "aborted"}
