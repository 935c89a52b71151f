package email

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"slices"
	"strings"
	"time"

	shared "github.com/headgate/headgate/clients/internal/transport"

	"github.com/wneessen/go-mail/smtp"
)

// step is how far a message got.
type step string

const (
	stepConnect step = "connect"
	stepAuth    step = "auth"
	stepMail    step = "mail from"
	stepRcpt    step = "rcpt to"
	stepData    step = "data"
	stepAnswer  step = "answer" // everything was sent
)

// stepError tells at which step the line or the server said no.
type stepError struct {
	step step
	err  error
}

func (e *stepError) Error() string { return string(e.step) + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

func stepOf(err error) step {
	if e, ok := errors.AsType[*stepError](err); ok {
		return e.step
	}
	return stepConnect
}

// conn is a connection that the server has greeted.
type conn struct {
	raw    net.Conn
	client *smtp.Client
	sent   int       // messages
	idle   time.Time // since when it is kept
}

// dial connects, secures and introduces. go-mail's own dialling knows nothing of
// ctx once it is connected, and leaves the connection open when it fails.
func dial(ctx context.Context, config Config) (*conn, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", config.address())
	if err != nil {
		return nil, &stepError{stepConnect, err}
	}
	c := &conn{raw: raw}
	if err := c.during(ctx, func() error { return c.introduce(ctx, config) }); err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

// during does something with the connection, and closes it when ctx ends: what
// go-mail waits for can be interrupted in no other way.
func (c *conn) during(ctx context.Context, do func() error) error {
	stop := context.AfterFunc(ctx, func() { c.raw.Close() })
	defer stop()
	return do()
}

func (c *conn) introduce(ctx context.Context, config Config) (err error) {
	line := c.raw
	if config.TLS == TLSImplicit {
		secure := tls.Client(c.raw, config.TLSConfig)
		if err := secure.HandshakeContext(ctx); err != nil {
			return &stepError{stepConnect, err}
		}
		line = secure
	}
	if c.client, err = smtp.NewClient(line, config.Host); err != nil {
		return &stepError{stepConnect, err}
	}
	if err := c.client.Hello(config.LocalName); err != nil {
		return &stepError{stepConnect, err}
	}
	if err := c.secure(config); err != nil {
		return &stepError{stepConnect, err}
	}
	if config.Username == "" {
		return nil
	}
	mechanism, err := c.mechanism(config)
	if err == nil {
		err = c.client.Auth(mechanism)
	}
	if err != nil {
		return &stepError{stepAuth, err}
	}
	return nil
}

func (c *conn) secure(config Config) error {
	if config.TLS != TLSOpportunistic && config.TLS != TLSMandatory {
		return nil
	}
	if offered, _ := c.client.Extension("STARTTLS"); !offered {
		if config.TLS == TLSMandatory {
			return errors.New("the server does not offer STARTTLS")
		}
		return nil
	}
	if err := c.client.StartTLS(config.TLSConfig); err != nil {
		return fmt.Errorf("starttls: %w", err)
	}
	return nil
}

// mechanism is the way to authenticate. Without TLS the password itself is sent
// to this machine alone; the others prove that we know it.
func (c *conn) mechanism(config Config) (smtp.Auth, error) {
	_, offered := c.client.Extension("AUTH")
	offers := strings.Fields(strings.ToUpper(offered))
	_, secure := c.client.TLSConnectionState()
	if secure || shared.Loopback(config.Host) {
		switch {
		case slices.Contains(offers, "PLAIN"):
			return smtp.PlainAuth("", config.Username, config.Password, config.Host, true), nil
		case slices.Contains(offers, "LOGIN"):
			return smtp.LoginAuth(config.Username, config.Password, config.Host, true), nil
		}
	}
	switch {
	case slices.Contains(offers, "SCRAM-SHA-256"):
		return smtp.ScramSHA256Auth(config.Username, config.Password), nil
	case slices.Contains(offers, "CRAM-MD5"):
		return smtp.CRAMMD5Auth(config.Username, config.Password), nil
	}
	return nil, errors.New("the server offers no way to authenticate that is safe on this connection")
}

// send is one transaction.
func (c *conn) send(e *envelope) error {
	c.sent++
	if known, _ := c.client.Extension("SMTPUTF8"); e.utf8 && !known {
		return &stepError{stepMail, errNoUTF8}
	}
	// Servers ask of the next one what a message asks of them, so that asking for
	// more than it needs makes mail bounce.
	c.client.SkipSMTPUTF8(!e.utf8)
	if err := c.client.Mail(e.from); err != nil {
		return &stepError{stepMail, err}
	}
	for _, to := range e.to {
		if err := c.client.Rcpt(to); err != nil {
			return &stepError{stepRcpt, err}
		}
	}
	w, err := c.client.Data()
	if err != nil {
		return &stepError{stepData, err}
	}
	if _, err := w.Write(e.content); err != nil {
		// Without its last line a message counts for nothing.
		return &stepError{stepData, err}
	}
	if err := w.Close(); err != nil {
		return &stepError{stepAnswer, err}
	}
	return nil
}

// errNoUTF8 is the server's limit, and the message's for as long as it stays so.
var errNoUTF8 = errors.New("an address is not of ASCII, which the server does not take")

// usable tells whether the next message can go over the connection after this
// outcome of one: the server must have spoken, and not have said goodbye.
func usable(err error) bool {
	if err == nil || errors.Is(err, errNoUTF8) {
		return true
	}
	reply, ok := errors.AsType[*textproto.Error](err)
	return ok && reply.Code != 421
}

// stale tells whether a kept connection was dead before the server accepted a
// sender over it.
func stale(err error) bool {
	if err == nil || stepOf(err) != stepMail || errors.Is(err, errNoUTF8) {
		return false
	}
	reply, ok := errors.AsType[*textproto.Error](err)
	return !ok || reply.Code == 421 && goodbye(reply.Msg)
}

// close says goodbye without waiting for the answer: nothing depends on it.
func (c *conn) close() {
	c.raw.SetDeadline(time.Now().Add(time.Second))
	c.client.Text.Cmd("QUIT")
	c.client.Text.Close()
	c.raw.Close()
}
