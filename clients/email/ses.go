package email

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/textproto"
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
)

// SESConfig says which account of Amazon SES sends mail.
type SESConfig struct {
	// Region is such as eu-central-1. "" means what the environment says
	// (AWS_REGION, or the profile); there must be one.
	Region string

	// AccessKeyID, SecretAccessKey and SessionToken are the account's. Without the
	// first two they are looked for where Amazon's SDKs look: environment, profile,
	// role of the container or of the machine. They need ses:SendEmail, and
	// ses:GetAccount for [SES.Quota].
	AccessKeyID, SecretAccessKey, SessionToken string

	// Endpoint is where SES is. "" means the region's; without https it can be on
	// this machine alone.
	Endpoint string

	// Timeout bounds a message from dialling to SES's answer. 0 means 60 s.
	Timeout time.Duration

	// MaxIdle is how many connections are kept for the next messages; more may be
	// open while they are in use. 0 means 256.
	MaxIdle int
}

// SES sends mail by the API of Amazon SES, version 2. It keeps connections for
// later messages.
//
// SES takes no idempotency key and gives every mail a Message-ID of its own, so
// neither it nor a receiver can tell a repeat: what has an unknown outcome should
// not be sent again by itself. The job's id and key are among the mail's headers
// for people to find it by.
type SES struct {
	client  *sesv2.Client
	line    *line
	timeout time.Duration
	known   *knownCredentials
	now     func() time.Time
}

// knownCredentials remembers which credentials were used last, so that they can be
// cut out of errors.
type knownCredentials struct {
	aws.CredentialsProvider
	last atomic.Pointer[aws.Credentials]
}

func (k *knownCredentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	found, err := k.CredentialsProvider.Retrieve(ctx)
	if err == nil {
		k.last.Store(&found)
	}
	return found, err
}

func (k *knownCredentials) secrets() []string {
	if last := k.last.Load(); last != nil {
		return []string{last.SecretAccessKey, last.SessionToken}
	}
	return nil
}

// What one message may have (https://docs.aws.amazon.com/ses/latest/dg/quotas.html).
const (
	maxSESRecipients = 50
	maxSESBytes      = 40 << 20 // of the mail with its attachments in base64
)

// NewSES makes a sender; nothing is called yet. The error names every field that
// is wrong.
func NewSES(config SESConfig) (*SES, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("email: ses: "+format, args...)) }
	if strings.ContainsFunc(config.Region, func(c rune) bool { return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') }) {
		wrong("region: %q is not one", config.Region)
	}
	if (config.AccessKeyID == "") != (config.SecretAccessKey == "") {
		wrong("access key: its id and its secret go together")
	}
	if config.AccessKeyID == "" && config.SessionToken != "" {
		wrong("session token: it goes with an access key")
	}
	if config.Endpoint != "" {
		if err := checkURL(config.Endpoint); err != nil {
			wrong("endpoint: %w", err)
		}
	}
	if config.Timeout < 0 || config.MaxIdle < 0 {
		wrong("a time or a number is below 0")
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
		return nil, errors.New("email: ses: region: there is none, here or in AWS_REGION")
	}
	s.known = &knownCredentials{CredentialsProvider: found.Credentials}
	s.client = sesv2.NewFromConfig(found, func(o *sesv2.Options) {
		o.HTTPClient = s.line
		o.Credentials = s.known
		o.Retryer = aws.NopRetryer{} // the queue owns retrying
		if config.Endpoint != "" {
			o.BaseEndpoint = aws.String(config.Endpoint)
		}
	})
	return s, nil
}

// Close closes the connections that wait for the next message. Messages under way
// go on; the sender stays usable.
func (s *SES) Close() { s.line.close() }

// Send hands the message to SES. nil means that SES has taken it for every
// recipient; otherwise see the tables at [sesOutcome] for answers, and [lost] for
// calls without one.
//
// When ctx is cancelled before the message was sent, the error wraps ctx's.
// Cancelled later, the outcome is unknown, as after a lost connection.
func (s *SES) Send(ctx context.Context, call clients.Call, m Message) error {
	input, err := sesInput(call, m)
	if err != nil {
		return clients.Permanent(clients.NotCalled(err))
	}
	// Its own cause tells the end of the time from the end of the worker.
	limited, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("gave up after %v", s.timeout))
	defer cancel()
	seen := &progress{}
	_, err = s.client.SendEmail(seen.watch(limited), input)
	return s.judge(ctx, limited, seen, err)
}

// sesInput makes the request of a message. The mail is made here and not by SES
// (its Simple content), so that it is the same one as over SMTP.
func sesInput(call clients.Call, m Message) (*sesv2.SendEmailInput, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	for name := range m.Headers {
		// With these SES is told whose identity and which settings to use, which is
		// for the account's owner to say.
		if canonical := textproto.CanonicalMIMEHeaderKey(name); strings.HasPrefix(canonical, "X-Ses-") {
			return nil, fmt.Errorf("headers: %s is not the message's to set", canonical)
		}
	}
	e, err := pack(call, m)
	if err != nil {
		return nil, err
	}
	if e.utf8 {
		return nil, errors.New("an address is not of ASCII, which SES does not take; a domain can be written as xn--…")
	}
	if len(e.to) > maxSESRecipients {
		return nil, fmt.Errorf("to: %d recipients are more than the %d that SES takes", len(e.to), maxSESRecipients)
	}
	if len(e.content) > maxSESBytes {
		return nil, fmt.Errorf("attachments: the mail has %d bytes, more than the %d that SES takes", len(e.content), maxSESBytes)
	}
	bare := func(path string) string { return strings.Trim(path, "<>") }
	left := slices.Clone(e.to)
	take := func(list Addresses) []string {
		var own []string
		for _, text := range list {
			address, err := parseAddress(text)
			if err != nil {
				continue // pack took it
			}
			// Each recipient counts and is written to once.
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

// SESQuota is what an account may send in its region. All numbers are of
// recipients: a mail to five counts five times, as [Estimate] does.
type SESQuota struct {
	PerSecond float64
	PerDay    int64 // in any 24 hours; 0: no limit
	LastDay   int64 // sent in the last 24 hours

	// Sending is false while the account may not send, see [sesOutcome].
	Sending bool

	// Production is false for an account in SES's sandbox, which can write to
	// verified addresses alone.
	Production bool
}

// Quota asks SES for the account's limits, so that they can be set as limits of
// the queue: SES refuses what is over them. An error is like those of Send, but
// never unknown: asking changes nothing.
func (s *SES) Quota(ctx context.Context) (SESQuota, error) {
	limited, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("gave up after %v", s.timeout))
	defer cancel()
	seen := &progress{}
	account, err := s.client.GetAccount(seen.watch(limited), &sesv2.GetAccountInput{})
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
		PerDay:     max(int64(account.SendQuota.Max24HourSend), 0), // SES says -1 for none
		LastDay:    int64(account.SendQuota.SentLast24Hours),
		Sending:    account.SendingEnabled,
		Production: account.ProductionAccessEnabled,
	}, nil
}

// Estimate is what a message takes of limits in "recipients", which is what SES
// and most others count. A message that is not valid takes as many as it names.
func Estimate(m Message) map[string]int64 {
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
