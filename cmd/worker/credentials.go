package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/ai"
	"github.com/headgate/headgate/clients/email"
	"github.com/headgate/headgate/clients/payment"
	"github.com/headgate/headgate/clients/webhook"
	"github.com/headgate/headgate/internal/credentials"
)

// credentials opens the credentials file. It returns nil if none is configured.
func (c config) credentials(logger *slog.Logger) (*credentials.Store, error) {
	if c.CredentialsFile == "" {
		return nil, nil
	}
	return credentials.Open(c.CredentialsFile, logger, c.checkSecrets)
}

// checkSecrets returns what is wrong with a tenant's secrets. It does not check email and AI
// secrets if this worker does not send that kind.
func (c config) checkSecrets(kind string, s *credentials.Secrets) error {
	var account interface{ Close() }
	var err error
	switch kind {
	case "webhook":
		for i, secret := range s.List("secrets") {
			if err := webhook.CheckSecret(secret); err != nil {
				return fmt.Errorf("secrets[%d]: %w", i, err)
			}
		}
		return nil
	case "ai":
		if c.AIProvider == "" {
			return nil
		}
		account, err = c.aiFor(s)
	case "payment":
		account, err = c.paymentFor(s)
	case "email":
		if c.emailProvider() == "" {
			return nil
		}
		account, err = c.mailsFor(s)
	}
	if err == nil {
		account.Close()
	}
	return err
}

// signing returns a function that returns the secrets with which a tenant's webhooks are
// signed. It returns nil if store is nil.
func signing(store *credentials.Store) func(context.Context, string) ([]string, error) {
	if store == nil {
		return nil
	}
	return func(_ context.Context, tenant string) ([]string, error) {
		s, err := store.For("webhook", tenant)
		if err != nil {
			return nil, clients.Exhausted(clients.KeyPause, err)
		}
		if s == nil {
			return nil, nil
		}
		return s.List("secrets"), nil
	}
}

func (c config) aiFor(s *credentials.Secrets) (*ai.Client, error) {
	own := c
	if s != nil {
		own.AIAPIKey = s.Get("api_key")
	}
	return ai.New(ai.Config{
		Provider: own.AIProvider, BaseURL: own.AIBaseURL, APIKey: own.AIAPIKey, APIVersion: own.AIAPIVersion, Timeout: own.AITimeout,
		Quota: passOnOf(s),
	})
}

func (c config) paymentFor(s *credentials.Secrets) (*payment.Sender, error) {
	own := c
	if s != nil {
		own.StripeKey = s.Get("key")
	}
	return payment.New(payment.Config{Key: own.StripeKey, URL: own.StripeURL, Timeout: own.StripeTimeout})
}

// mailsFor returns a client of the worker's email provider, with the tenant's account if s is
// not nil. A tenant cannot have another provider.
func (c config) mailsFor(s *credentials.Secrets) (mailer, error) {
	own := c
	if s != nil {
		if err := c.checkFields(s); err != nil {
			return nil, err
		}
		own.SMTPUsername, own.SMTPPassword = s.Get("username"), s.Get("password")
		own.SESAccessKeyID, own.SESSecretAccessKey, own.SESSessionToken = s.Get("access_key_id"), s.Get("secret_access_key"), s.Get("session_token")
		own.ResendAPIKey = s.Get("api_key")
	}
	switch own.emailProvider() {
	case sesProvider:
		return own.ses()
	case resendProvider:
		return email.NewResend(email.ResendConfig{APIKey: own.ResendAPIKey, URL: own.ResendURL, Timeout: own.ResendTimeout, Quota: passOnOf(s)})
	}
	return own.smtp()
}

// checkFields returns an error for each field of a tenant that is missing or that the email
// provider does not use.
func (c config) checkFields(s *credentials.Secrets) error {
	needed, optional := []string{"username", "password"}, ""
	switch c.emailProvider() {
	case sesProvider:
		needed, optional = []string{"access_key_id", "secret_access_key"}, "session_token"
	case resendProvider:
		needed = []string{"api_key"}
	}
	var errs []error
	for _, name := range needed {
		if s.Get(name) == "" {
			errs = append(errs, fmt.Errorf("%s: it is missing, and %s needs it", name, c.emailProvider()))
		}
	}
	for _, name := range s.Fields() {
		if !slices.Contains(needed, name) && name != optional {
			errs = append(errs, fmt.Errorf("%s: %s has none", name, c.emailProvider()))
		}
	}
	return errors.Join(errs...)
}
