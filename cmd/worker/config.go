package main

import (
	"errors"
	"net"
	"time"

	"github.com/headgate/headgate/internal/settings"
	"github.com/headgate/headgate/worker"
)

// config holds the settings of this worker, from the environment and from flags.
type config struct {
	worker.Settings

	CredentialsFile string `env:"CREDENTIALS_FILE" flag:"credentials" help:"file with secrets of tenants; reloaded when it changes. Empty: all use those of the worker"`

	BreakerFailures int           `env:"BREAKER_FAILURES" envDefault:"5" flag:"breaker-failures" help:"consecutive calls without a connection or an answer, or with a 5xx, after which a provider or a webhook receiver of one tenant is held back. 0: never"`
	BreakerPause    time.Duration `env:"BREAKER_PAUSE" envDefault:"30s" flag:"breaker-pause" help:"how long a failing provider is held back before one job tries it; each failed try doubles it, up to ten times this"`

	WebhookAllowPrivate bool          `env:"WEBHOOK_ALLOW_PRIVATE" flag:"webhook-allow-private" help:"let webhooks call private and loopback addresses"`
	WebhookTimeout      time.Duration `env:"WEBHOOK_TIMEOUT" envDefault:"30s" flag:"webhook-timeout" help:"timeout of a webhook call"`

	WebhookRetryNotFound time.Duration `env:"WEBHOOK_RETRY_NOT_FOUND" envDefault:"1h" flag:"webhook-retry-not-found" help:"how long a webhook is retried whose receiver answers 404, without using up attempts. 0: its job is archived at once"`
	WebhookMaxRetryAfter time.Duration `env:"WEBHOOK_MAX_RETRY_AFTER" envDefault:"1h" flag:"webhook-max-retry-after" help:"max time for which a webhook receiver can ask for a pause; calls to other receivers go on"`

	EmailProvider string `env:"EMAIL_PROVIDER" flag:"email" help:"smtp, ses or resend. Empty: smtp if a mail server is set, otherwise this worker sends no email"`

	SMTPAddr     string        `env:"SMTP_ADDR" flag:"smtp" help:"mail server, host:port"`
	SMTPUsername string        `env:"SMTP_USERNAME" flag:"smtp-username" help:"user name at the mail server"`
	SMTPPassword string        `env:"SMTP_PASSWORD" help:"password at the mail server" secret:"true"`
	SMTPTLS      string        `env:"SMTP_TLS" envDefault:"mandatory" flag:"smtp-tls" help:"none, opportunistic, mandatory (STARTTLS) or implicit"`
	SMTPTimeout  time.Duration `env:"SMTP_TIMEOUT" envDefault:"30s" flag:"smtp-timeout" help:"timeout of a delivery"`

	SESRegion          string        `env:"SES_REGION" flag:"ses-region" help:"region of Amazon SES, such as eu-central-1. Empty: from AWS_REGION or the profile"`
	SESAccessKeyID     string        `env:"SES_ACCESS_KEY_ID" help:"access key of Amazon SES. None: it is looked for where Amazon's own tools look" secret:"true"`
	SESSecretAccessKey string        `env:"SES_SECRET_ACCESS_KEY" help:"secret of that access key" secret:"true"`
	SESSessionToken    string        `env:"SES_SESSION_TOKEN" help:"of an access key that is temporary" secret:"true"`
	SESEndpoint        string        `env:"SES_ENDPOINT" flag:"ses-endpoint" help:"endpoint of Amazon SES. Empty: that of the region"`
	SESTimeout         time.Duration `env:"SES_TIMEOUT" envDefault:"30s" flag:"ses-timeout" help:"timeout of a message to Amazon SES"`
	SESAccountLimits   bool          `env:"SES_ACCOUNT_LIMITS" flag:"ses-account-limits" help:"lower the limits ses-rate and ses-day to what Amazon SES reports for the account"`

	ResendAPIKey  string        `env:"RESEND_API_KEY" help:"key of Resend" secret:"true"`
	ResendURL     string        `env:"RESEND_URL" flag:"resend-url" help:"base URL of Resend's API. Empty: the public one"`
	ResendTimeout time.Duration `env:"RESEND_TIMEOUT" envDefault:"30s" flag:"resend-timeout" help:"timeout of a message to Resend"`

	AIProvider   string        `env:"AI_PROVIDER" flag:"ai" help:"openai (or a compatible server), azure or anthropic. Empty: this worker sends no prompts"`
	AIBaseURL    string        `env:"AI_BASE_URL" flag:"ai-url" help:"base URL of the API, such as http://127.0.0.1:11434/v1. Empty: that of the provider"`
	AIAPIKey     string        `env:"AI_API_KEY" help:"key of the AI provider" secret:"true"`
	AIAPIVersion string        `env:"AI_API_VERSION" flag:"ai-api-version" help:"API version of azure"`
	AITimeout    time.Duration `env:"AI_TIMEOUT" envDefault:"10m" flag:"ai-timeout" help:"timeout of a completion"`

	StripeKey     string        `env:"STRIPE_KEY" help:"secret key of the Stripe account. None: this worker makes no payments" secret:"true"`
	StripeURL     string        `env:"STRIPE_URL" flag:"stripe-url" help:"base URL of Stripe's API. Empty: the public one"`
	StripeTimeout time.Duration `env:"STRIPE_TIMEOUT" envDefault:"80s" flag:"stripe-timeout" help:"timeout of a call to Stripe"`
}

const prefix = settings.Prefix

// Validate reports the invalid settings.
func (c config) Validate() error {
	problems := settings.Problems{c.Settings.Validate()}
	wrong := problems.Wrong
	if c.BreakerFailures < 0 {
		wrong("BREAKER_FAILURES", "%d is below 0", c.BreakerFailures)
	}
	for _, s := range settings.Of(&c)[len(settings.Of(&c.Settings)):] {
		if d, ok := s.Value.Interface().(time.Duration); ok && d <= 0 && (d < 0 || s.Env != "WEBHOOK_RETRY_NOT_FOUND") {
			wrong(s.Env, "%v is not longer than 0", d)
		}
	}
	c.checkEmail(wrong)
	c.checkAI(wrong)
	return errors.Join(problems...)
}

// checkEmail reports missing and invalid settings of the email provider.
func (c config) checkEmail(wrong func(name, format string, args ...any)) {
	lacks := func(name string) {
		wrong(name, "it is missing, and "+prefix+"EMAIL_PROVIDER=%s needs it", c.emailProvider())
	}
	switch c.emailProvider() {
	case "", smtpProvider:
		if c.EmailProvider != "" && c.SMTPAddr == "" {
			lacks("SMTP_ADDR")
		}
	case sesProvider:
		own := c.SESAccessKeyID != "" || c.SESSecretAccessKey != "" || c.SESSessionToken != ""
		if own && c.SESAccessKeyID == "" {
			lacks("SES_ACCESS_KEY_ID")
		}
		if own && c.SESSecretAccessKey == "" {
			lacks("SES_SECRET_ACCESS_KEY")
		}
		if own && c.SESRegion == "" {
			lacks("SES_REGION")
		}
	case resendProvider:
		if !c.hasMails() && c.CredentialsFile == "" {
			lacks("RESEND_API_KEY")
		}
	default:
		wrong("EMAIL_PROVIDER", "%q is not one of smtp, ses, resend", c.EmailProvider)
	}
	if c.SESAccountLimits && (c.emailProvider() != sesProvider || c.LimitsFile == "") {
		wrong("SES_ACCOUNT_LIMITS", "it needs "+prefix+"EMAIL_PROVIDER=ses and "+prefix+"LIMITS_FILE")
	}
	if c.SMTPAddr != "" {
		if _, _, err := net.SplitHostPort(c.SMTPAddr); err != nil {
			wrong("SMTP_ADDR", "%q is not host:port", c.SMTPAddr)
		}
	}
	switch c.SMTPTLS {
	case "none", "opportunistic", "mandatory", "implicit":
	default:
		wrong("SMTP_TLS", "%q is not one of none, opportunistic, mandatory, implicit", c.SMTPTLS)
	}
}

// checkAI reports missing and invalid settings of the AI provider.
func (c config) checkAI(wrong func(name, format string, args ...any)) {
	lacks := func(name string) {
		wrong(name, "it is missing, and "+prefix+"AI_PROVIDER=%s needs it", c.AIProvider)
	}
	switch c.AIProvider {
	case "":
		return
	case "openai", "anthropic":
	case "azure":
		if c.AIBaseURL == "" {
			lacks("AI_BASE_URL")
		}
	default:
		wrong("AI_PROVIDER", "%q is not one of openai, azure, anthropic", c.AIProvider)
	}
	if !c.hasAI() && c.CredentialsFile == "" {
		lacks("AI_API_KEY")
	}
}

// hasMails reports whether the worker has an account of its own for email.
func (c config) hasMails() bool { return c.emailProvider() != resendProvider || c.ResendAPIKey != "" }

// hasAI reports whether the worker has an account of its own for AI. Self-hosted servers need
// no key.
func (c config) hasAI() bool {
	return c.AIAPIKey != "" || c.AIBaseURL != "" && c.AIProvider != "azure"
}

// The email providers.
const (
	smtpProvider   = "smtp"
	sesProvider    = "ses"
	resendProvider = "resend"
)

// emailProvider returns the email provider, or "" if the worker sends no email.
func (c config) emailProvider() string {
	if c.EmailProvider == "" && c.SMTPAddr != "" {
		return smtpProvider
	}
	return c.EmailProvider
}
