package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/email"
	"github.com/headgate/headgate/queue"
)

// mailer is what the providers of email have in common.
type mailer interface {
	Send(context.Context, clients.Call, email.Message) error
	Close()
}

// mailOptions say how the calls of the provider are to be run: mail servers and
// Amazon SES cannot tell a repeated call.
func (c config) mailOptions() []queue.HandlerOption {
	switch c.emailProvider() {
	case sesProvider:
		return []queue.HandlerOption{queue.Timeout(2 * c.SESTimeout)}
	case resendProvider:
		return []queue.HandlerOption{queue.Timeout(2 * c.ResendTimeout), queue.RepeatUnknown()}
	}
	return []queue.HandlerOption{queue.Timeout(2 * c.SMTPTimeout)}
}

func (c config) ses() (*email.SES, error) {
	return email.NewSES(email.SESConfig{
		Region: c.SESRegion, AccessKeyID: c.SESAccessKeyID, SecretAccessKey: c.SESSecretAccessKey, SessionToken: c.SESSessionToken,
		Endpoint: c.SESEndpoint, Timeout: c.SESTimeout,
	})
}

func (c config) smtp() (*email.Sender, error) {
	host, portText, err := net.SplitHostPort(c.SMTPAddr)
	if err != nil {
		return nil, fmt.Errorf("HEADGATE_SMTP_ADDR: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, fmt.Errorf("HEADGATE_SMTP_ADDR: port %q is not a number", portText)
	}
	return email.New(email.Config{
		Host: host, Port: port, Username: c.SMTPUsername, Password: c.SMTPPassword, TLS: c.SMTPTLS, Timeout: c.SMTPTimeout,
	})
}
