// Package email sends mail over SMTP.
//
// Connections are kept and used again by later calls. It retries nothing: that
// is the queue's.
package email

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"

	"github.com/headgate/headgate/clients"
)

// Config says how mail is sent.
type Config struct {
	Host     string // required
	Port     int    // 0 means 587, or 465 with implicit TLS
	Username string // "" sends without authentication
	Password string

	// TLS is none, opportunistic, mandatory (STARTTLS) or implicit; "" means mandatory.
	TLS string

	Timeout time.Duration // of one delivery, connecting included; 0 means 30 s
	MaxIdle int           // connections kept open; 0 means 16
}

const (
	defaultTimeout = 30 * time.Second
	defaultMaxIdle = 16
)

// Sender sends mail. It is safe for concurrent use.
type Sender struct {
	config Config
	client *gomail.Client

	mu     sync.Mutex
	idle   []*smtp.Client
	closed bool
}

// New makes a sender. It does not connect yet.
func New(config Config) (*Sender, error) {
	config.Timeout = cmp.Or(config.Timeout, defaultTimeout)
	config.MaxIdle = cmp.Or(config.MaxIdle, defaultMaxIdle)
	options := []gomail.Option{gomail.WithTimeout(config.Timeout)}
	port := 587
	switch config.TLS {
	case "none":
		options = append(options, gomail.WithTLSPolicy(gomail.NoTLS))
	case "opportunistic":
		options = append(options, gomail.WithTLSPolicy(gomail.TLSOpportunistic))
	case "", "mandatory":
		options = append(options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	case "implicit":
		options = append(options, gomail.WithSSL())
		port = 465
	default:
		return nil, fmt.Errorf("email: TLS %q is none of none, opportunistic, mandatory, implicit", config.TLS)
	}
	options = append(options, gomail.WithPort(cmp.Or(config.Port, port)))
	if config.Username != "" {
		options = append(options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover),
			gomail.WithUsername(config.Username), gomail.WithPassword(config.Password))
	}
	client, err := gomail.NewClient(config.Host, options...)
	if err != nil {
		return nil, fmt.Errorf("email: %w", err)
	}
	return &Sender{config: config, client: client}, nil
}

// Close closes the connections that are kept. Deliveries under way are finished.
func (s *Sender) Close() {
	s.mu.Lock()
	idle := s.idle
	s.idle, s.closed = nil, true
	s.mu.Unlock()
	for _, conn := range idle {
		_ = s.client.CloseWithSMTPClient(conn) // nothing is lost with it
	}
}

// Send delivers one message to the mail server. What its error means:
//
//	421, and 450 to 454 that speak of rates (enhanced code 4.7.x too)   Throttled
//	other 4xx, no connection, no TLS, refused credentials                Retryable
//	5xx, a message that cannot be sent                                   Permanent
//	the connection was lost after the message was handed over            Unknown
//
// Credentials are the operator's to correct, so a refusal must not archive mail.
func (s *Sender) Send(ctx context.Context, call clients.Call, m Message) error {
	if err := m.Validate(); err != nil {
		return clients.Permanent(err)
	}
	msg, err := m.encode(call)
	if err != nil {
		return clients.Permanent(err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	conn := s.reuse()
	reused := conn != nil
	for {
		if conn == nil {
			if conn, err = s.client.DialToSMTPClientWithContext(ctx); err != nil {
				if errors.Is(ctx.Err(), context.Canceled) {
					return ctx.Err()
				}
				return clients.Retryable(fmt.Errorf("connect to %s: %w", s.config.Host, err))
			}
		}
		err := s.deliver(ctx, conn, msg)
		if err == nil || msg.IsDelivered() {
			s.keep(conn, err)
			return nil
		}
		failure, ok := errors.AsType[*gomail.SendError](err)
		if reused && ok && failure.Reason == gomail.ErrConnCheck && ctx.Err() == nil {
			// It died while it was kept; nothing of the message was sent.
			_ = s.client.CloseWithSMTPClient(conn)
			conn, reused = nil, false
			continue
		}
		s.keep(conn, err)
		if errors.Is(ctx.Err(), context.Canceled) {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return judge(failure, err)
	}
}

// deliver sends on a connection, which is closed when ctx ends first: go-mail
// itself does not know of contexts.
func (s *Sender) deliver(ctx context.Context, conn *smtp.Client, msg *gomail.Msg) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	return s.client.SendWithSMTPClient(conn, msg)
}

func (s *Sender) reuse() *smtp.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) == 0 {
		return nil
	}
	conn := s.idle[len(s.idle)-1]
	s.idle = s.idle[:len(s.idle)-1]
	return conn
}

// keep puts a connection away for the next call, unless it is broken: after an
// answer of the server it is not.
func (s *Sender) keep(conn *smtp.Client, err error) {
	failure, _ := errors.AsType[*gomail.SendError](err)
	usable := err == nil || failure != nil && failure.ErrorCode() != 0 && failure.ErrorCode() != 421
	if usable {
		s.mu.Lock()
		if !s.closed && len(s.idle) < s.config.MaxIdle {
			s.idle = append(s.idle, conn)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
	_ = s.client.CloseWithSMTPClient(conn)
}

// judge decides what a failed delivery means.
func judge(failure *gomail.SendError, err error) error {
	text := errors.New(clients.Printable(err.Error(), 300))
	if failure == nil {
		return clients.Retryable(text)
	}
	code := failure.ErrorCode()
	switch {
	case code == 421, code >= 450 && code <= 454 && speaksOfRates(failure, err):
		return clients.Throttled(0, text)
	case code >= 500:
		return clients.Permanent(text)
	case code >= 400:
		return clients.Retryable(text)
	}
	switch failure.Reason {
	case gomail.ErrWriteContent, gomail.ErrSMTPDataClose:
		return clients.Unknown(fmt.Errorf("no answer after the message was sent: %w", text))
	case gomail.ErrGetSender, gomail.ErrGetRcpts, gomail.ErrNoUnencoded:
		return clients.Permanent(text)
	}
	return clients.Retryable(text)
}

func speaksOfRates(failure *gomail.SendError, err error) bool {
	if strings.HasPrefix(failure.EnhancedStatusCode(), "4.7.") {
		return true
	}
	text := strings.ToLower(err.Error())
	for _, word := range []string{"rate", "too many", "throttl", "quota", "limit exceeded", "slow down"} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}
