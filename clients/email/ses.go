package email

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// SESConfig configures an [SES].
type SESConfig struct {
	// Region is the AWS region, such as eu-central-1. "" means the region of the environment
	// (AWS_REGION or the profile). One of them is required.
	Region string

	// AccessKeyID, SecretAccessKey and SessionToken are the credentials. Without the first two,
	// they come from the usual sources of Amazon's SDKs: environment, profile, role of the
	// container or of the machine. They need the permission ses:SendEmail, and ses:GetAccount for
	// [SES.Quota].
	AccessKeyID, SecretAccessKey, SessionToken string

	// Endpoint is the URL of SES. "" means that of the region. It must be https, except on this
	// machine.
	Endpoint string

	// Timeout limits the sending of a message, from dialling to SES's answer. 0 means 60 s.
	Timeout time.Duration

	// MaxIdle is the max number of idle connections; more can be open while in use. 0 means 256.
	MaxIdle int
}

// SES sends mail with version 2 of the API of Amazon SES. It reuses connections.
//
// SES accepts no idempotency key and gives every mail a new Message-ID, so neither SES nor a
// receiver can detect a repeat: mail with an unknown outcome should not be sent again
// automatically. The mail's headers have the job's id and key, by which people can find it.
type SES struct {
	client  *sesv2.Client
	line    *shared.Line
	timeout time.Duration
	known   *knownCredentials
	now     func() time.Time
}

// knownCredentials keeps the credentials that were used last, so that they can be removed from
// errors.
type knownCredentials struct {
	aws.CredentialsProvider
	last atomic.Pointer[aws.Credentials]
}

func (k *knownCredentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	found, err := k.CredentialsProvider.Retrieve(withoutValues{ctx})
	if err != nil {
		return found, &credentialsError{err}
	}
	k.last.Store(&found)
	return found, nil
}

// withoutValues is a context without the values of its parent. The credentials of a role come
// over HTTP; with the trace of [shared.Call], such a request would look like one to SES.
type withoutValues struct{ context.Context }

func (withoutValues) Value(any) any { return nil }

// credentialsError reports that there are no credentials, so SES was not called.
type credentialsError struct{ err error }

func (e *credentialsError) Error() string { return "no credentials: " + e.err.Error() }
func (e *credentialsError) Unwrap() error { return e.err }

func (k *knownCredentials) secrets() []string {
	if last := k.last.Load(); last != nil {
		return []string{last.SecretAccessKey, last.SessionToken}
	}
	return nil
}

// SES's maxima for one message (https://docs.aws.amazon.com/ses/latest/dg/quotas.html).
const (
	maxSESRecipients = 50
	maxSESBytes      = 40 << 20 // of the mail with its attachments in base64
)

// NewSES returns a sender without connecting. Its error names all invalid fields.
func NewSES(config SESConfig) (*SES, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("email: ses: "+format, args...)) }
	if strings.ContainsFunc(config.Region, func(c rune) bool { return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') }) {
		wrong("region: %q is not a region such as eu-central-1", config.Region)
	}
	if (config.AccessKeyID == "") != (config.SecretAccessKey == "") {
		wrong("access key: set both its id and its secret, or neither")
	}
	if config.AccessKeyID == "" && config.SessionToken != "" {
		wrong("session token: it requires an access key")
	}
	if config.Endpoint != "" {
		if _, err := shared.CheckURL(config.Endpoint); err != nil {
			wrong("endpoint: %w", err)
		}
	}
	if config.Timeout < 0 || config.MaxIdle < 0 {
		wrong("times and numbers must not be negative")
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	s := &SES{
		line:    newLine(cmp.Or(config.MaxIdle, 256)),
		timeout: cmp.Or(config.Timeout, time.Minute),
		now:     time.Now,
	}
	found := aws.Config{Region: config.Region}
	if config.AccessKeyID != "" {
		found.Credentials = aws.NewCredentialsCache(credentials.NewStaticCredentialsProvider(config.AccessKeyID, config.SecretAccessKey, config.SessionToken))
	} else {
		var err error
		if found, err = awsconfig.LoadDefaultConfig(context.Background(), awsconfig.WithRegion(config.Region)); err != nil {
			return nil, fmt.Errorf("email: ses: %s", clients.Printable(err.Error(), maxReason))
		}
	}
	if found.Region == "" {
		return nil, errors.New("email: ses: region: it is missing: set it here or in AWS_REGION")
	}
	s.known = &knownCredentials{CredentialsProvider: found.Credentials}
	s.client = sesv2.NewFromConfig(found, func(o *sesv2.Options) {
		o.HTTPClient = s.line
		o.Credentials = s.known
		o.Retryer = aws.NopRetryer{} // the queue retries
		if config.Endpoint != "" {
			o.BaseEndpoint = aws.String(config.Endpoint)
		}
	})
	return s, nil
}

// Close closes idle connections. Messages in flight continue, and the sender stays usable.
func (s *SES) Close() { s.line.CloseIdleConnections() }

// Send sends the message. If the error is nil, SES has accepted it for every recipient;
// otherwise see the tables at sesOutcome for answers and at lost for calls without an answer.
//
// If ctx is cancelled before the message was sent, the error wraps ctx's. If it is cancelled
// later, the outcome is unknown, as after a lost connection.
func (s *SES) Send(ctx context.Context, call clients.Call, m Message) error {
	input, err := sesInput(call, m)
	if err != nil {
		return clients.Permanent(clients.NotCalled(err))
	}
	// The cause distinguishes a timeout from a shutdown of the worker.
	limited, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("gave up after %v", s.timeout))
	defer cancel()
	seen := &shared.Call{}
	_, err = s.client.SendEmail(seen.Watch(limited), input)
	return s.judge(ctx, limited, seen, err)
}

// sesInput makes the request for a message. The mail is encoded here, not by SES (its Simple
// content), so that it is the same as over SMTP.
func sesInput(call clients.Call, m Message) (*sesv2.SendEmailInput, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	e, err := pack(call, m)
	if err != nil {
		return nil, err
	}
	if e.utf8 {
		return nil, errors.New("an address is not ASCII, which SES does not support: write its domain as xn--…")
	}
	if len(e.to) > maxSESRecipients {
		return nil, fmt.Errorf("to: %d recipients; the maximum of SES is %d", len(e.to), maxSESRecipients)
	}
	if len(e.content) > maxSESBytes {
		return nil, fmt.Errorf("attachments: the mail has %d bytes, more than SES's max of %d", len(e.content), maxSESBytes)
	}
	bare := func(path string) string { return strings.Trim(path, "<>") }
	left := slices.Clone(e.to)
	take := func(list Addresses) []string {
		var own []string
		for _, text := range list {
			address, err := parseAddress(text)
			if err != nil {
				continue // cannot happen: pack has parsed it
			}
			// List each recipient only once.
			if i := slices.Index(left, path(address)); i >= 0 {
				own, left = append(own, bare(left[i])), slices.Delete(left, i, i+1)
			}
		}
		return own
	}
	return &sesv2.SendEmailInput{
		FromEmailAddress: aws.String(bare(e.from)),
		Destination:      &types.Destination{ToAddresses: take(m.To), CcAddresses: take(m.CC), BccAddresses: take(m.BCC)},
		Content:          &types.EmailContent{Raw: &types.RawMessage{Data: e.content}},
	}, nil
}

// SESQuota has the sending limits of an account in its region. All numbers count recipients, as
// [Message.Costs] does: a mail to five counts five times.
type SESQuota struct {
	PerSecond float64
	PerDay    int64 // in any 24 hours; 0: no limit
	LastDay   int64 // sent in the last 24 hours

	// Sending is false while the account must not send, see sesOutcome.
	Sending bool

	// Production is false for an account in SES's sandbox, which can send only to verified
	// addresses.
	Production bool
}

// Quota requests the account's limits from SES, so that they can be set as limits of the queue:
// SES refuses mail above them. Its errors are those of Send, but never unknown, because the
// request changes nothing.
func (s *SES) Quota(ctx context.Context) (SESQuota, error) {
	limited, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("gave up after %v", s.timeout))
	defer cancel()
	seen := &shared.Call{}
	account, err := s.client.GetAccount(seen.Watch(limited), &sesv2.GetAccountInput{})
	if err == nil && account.SendQuota == nil {
		err = errors.New("the answer has no quota")
	}
	if err != nil {
		err = s.judge(ctx, limited, seen, err)
		if _, unknown := errors.AsType[*clients.UnknownError](err); unknown {
			err = clients.Unavailable(errors.Unwrap(err))
		}
		return SESQuota{}, fmt.Errorf("quota: %w", err)
	}
	return SESQuota{
		PerSecond:  account.SendQuota.MaxSendRate,
		PerDay:     max(int64(account.SendQuota.Max24HourSend), 0), // SES reports -1 for no limit
		LastDay:    int64(account.SendQuota.SentLast24Hours),
		Sending:    account.SendingEnabled,
		Production: account.ProductionAccessEnabled,
	}, nil
}

// Costs returns the costs of the message in "recipients", which SES and most other providers
// count. It also counts the recipients of an invalid message.
func (m Message) Costs() map[string]int64 {
	seen := map[string]bool{}
	for field, list := range m.lists() {
		for _, text := range list {
			if field == "reply_to" {
				continue
			}
			if address, err := parseAddress(text); err == nil {
				text = address.Address
			}
			seen[text] = true
		}
	}
	return map[string]int64{"recipients": int64(len(seen))}
}
