package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
)

// SMTP is a mail server that takes every message, or answers 450 4.7.0 to one
// over its limit. The tenant is the message's Headgate-Tenant header, or the
// domain of the sender. A call arrives when its DATA begins.
type SMTP struct {
	meter
	faults

	server   *smtp.Server
	listener net.Listener
	ended    sync.WaitGroup
	ctx      context.Context
	stop     context.CancelFunc
}

// NewSMTP starts a server on a free port of 127.0.0.1, without TLS or
// authentication. The caller closes it.
func NewSMTP() (*SMTP, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &SMTP{listener: listener, ctx: ctx, stop: stop}
	s.server = smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		return &session{server: s, conn: c}, nil
	}))
	s.server.Domain = "sandbox.localhost"
	s.server.MaxMessageBytes = 32 << 20
	s.server.ErrorLog = log.New(io.Discard, "", 0)
	s.ended.Go(func() { _ = s.server.Serve(listener) }) // it ends with Close
	return s, nil
}

// Addr is where the server is: host:port.
func (s *SMTP) Addr() string { return s.listener.Addr().String() }

// Close ends the server and every call that hangs in it.
func (s *SMTP) Close() {
	s.stop()
	_ = s.server.Close()
	s.ended.Wait()
}

type session struct {
	server *SMTP
	conn   *smtp.Conn
	from   string
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	s.from = from
	return nil
}

func (s *session) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (s *session) Reset()                               { s.from = "" }
func (s *session) Logout() error                        { return nil }

func (s *session) Data(r io.Reader) error {
	now := time.Now()
	message := bufio.NewReader(r)
	header, err := textproto.NewReader(message).ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) {
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "not a message"}
	}
	if _, err := io.Copy(io.Discard, message); err != nil {
		return err
	}
	tenant, err := url.PathUnescape(header.Get("Headgate-Tenant"))
	if err != nil || tenant == "" {
		_, tenant, _ = strings.Cut(s.from, "@")
	}
	call := Call{
		At: now, Tenant: tenant, Job: header.Get("Headgate-Job"), Attempt: header.Get("Headgate-Attempt"),
		Key: header.Get("Idempotency-Key"),
	}
	if wait := s.server.admit(tenant, now); wait > 0 {
		call.Status = 450
		s.server.record(call, true)
		return &smtp.SMTPError{Code: 450, EnhancedCode: smtp.EnhancedCode{4, 7, 0}, Message: "rate limit exceeded, try again later"}
	}
	status, drop := s.server.strike(s.server.ctx)
	if drop {
		s.server.record(call, false)
		_ = s.conn.Conn().Close()
		return io.ErrUnexpectedEOF
	}
	if status != 0 {
		call.Status = status
		s.server.record(call, false)
		return &smtp.SMTPError{Code: status, EnhancedCode: smtp.EnhancedCode{status / 100, 0, 0}, Message: "the sandbox was told to fail"}
	}
	call.Status, call.Accepted = 250, true
	s.server.record(call, false)
	return nil
}
