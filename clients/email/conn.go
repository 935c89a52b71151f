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

// step is a step of an SMTP session.
type step string

const (
	stepConnect step = "connect"
	stepAuth    step = "auth"
	stepMail    step = "mail from"
	stepRcpt    step = "rcpt to"
	stepData    step = "data"
	stepAnswer  step = "answer" // everything was sent
)

// stepError reports the step at which the connection or the server failed.
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

// conn is a connection to the server after its greeting.
type conn struct {
	raw    net.Conn
	client *smtp.Client
	sent   int       // messages
	idle   time.Time // since when it is idle
}

// dial connects, starts TLS and authenticates. go-mail's own dialling ignores ctx after
// connecting, and leaves the connection open if it fails.
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

// during calls do and closes the connection if ctx ends before: nothing else can interrupt
// go-mail.
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

// mechanism returns the mechanism to authenticate. Without TLS, the password itself is sent only
// to this machine; SCRAM and CRAM prove knowledge of it without sending it.
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
	return nil, errors.New("the server offers no authentication mechanism that is safe on this connection")
}

// send sends one message.
func (c *conn) send(e *envelope) error {
	c.sent++
	if known, _ := c.client.Extension("SMTPUTF8"); e.utf8 && !known {
		return &stepError{stepMail, errNoUTF8}
	}
	// A server requires SMTPUTF8 of the next one if the message did, so requesting it without
	// need makes mail bounce.
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
		// Without its final line a message is not accepted.
		return &stepError{stepData, err}
	}
	if err := w.Close(); err != nil {
		return &stepError{stepAnswer, err}
	}
	return nil
}

// errNoUTF8 reports that the server does not support the message's addresses.
var errNoUTF8 = errors.New("an address is not ASCII, which the server does not support")

// usable reports whether the connection can be used for another message after this outcome: the
// server must have answered, and not be closing the connection.
func usable(err error) bool {
	if err == nil || errors.Is(err, errNoUTF8) {
		return true
	}
	reply, ok := errors.AsType[*textproto.Error](err)
	return ok && reply.Code != 421
}

// stale reports whether a reused connection was already dead when the message began.
func stale(err error) bool {
	if err == nil || stepOf(err) != stepMail || errors.Is(err, errNoUTF8) {
		return false
	}
	reply, ok := errors.AsType[*textproto.Error](err)
	return !ok || reply.Code == 421 && goodbye(reply.Msg)
}

// close sends QUIT without waiting for the answer, and closes the connection.
func (c *conn) close() {
	c.raw.SetDeadline(time.Now().Add(time.Second))
	c.client.Text.Cmd("QUIT")
	c.client.Text.Close()
	c.raw.Close()
}
