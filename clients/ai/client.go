package ai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// Config configures a [Client].
type Config struct {
	// Provider is "openai", "azure" or "anthropic". For servers compatible with OpenAI's API
	// (vLLM, Ollama, gateways) use "openai" with a BaseURL.
	Provider string

	// BaseURL is an https URL, or an http URL of this machine, without user, query and fragment. "" means the provider's
	// default; Azure has none. The URLs of OpenAI and of most compatible servers end in /v1;
	// those of Anthropic and Azure (https://NAME.openai.azure.com) end with the host.
	BaseURL string

	// APIKey is never included in an error. "" is for servers that need no key.
	APIKey string

	// APIVersion is the version of Azure's API. "" means 2024-10-21.
	APIVersion string

	// Timeout limits a call, from dialling to the end of the answer. 0 means 10 minutes, as in
	// the SDKs, because long completions take long.
	Timeout time.Duration

	// Quota gets each of the account's limits that an answer reports, before Send returns. It is called with Send's
	// ctx, concurrently. nil means that they are only kept for [Client.Quotas].
	Quota func(ctx context.Context, quota clients.Quota)
}

// Client calls one provider. It reuses connections and is safe for concurrent use.
type Client struct {
	provider  provider
	transport *transport
	host      string
	key       string
	timeout   time.Duration
	quotas    quotas
	onQuota   func(context.Context, clients.Quota)
}

// provider makes a call through its SDK.
type provider interface {
	// check returns an error for a request that this provider would refuse.
	check(fields) error
	// complete makes the call and returns the Result and the text of the completion.
	complete(ctx context.Context, f fields, body []byte) (Result, string, error)
}

// New returns a Client. Its error names the invalid field of the Config.
func New(config Config) (*Client, error) {
	config.Timeout = cmp.Or(max(config.Timeout, 0), 10*time.Minute)
	for _, c := range []byte(config.APIKey) {
		if c <= ' ' || c > '~' {
			return nil, errors.New("APIKey: it has characters that a header cannot hold")
		}
	}
	c := &Client{transport: newTransport(), key: config.APIKey, timeout: config.Timeout, onQuota: config.Quota}
	base := config.BaseURL
	switch config.Provider {
	case "openai":
		base = cmp.Or(base, "https://api.openai.com")
		c.provider = newOpenAI(config, c.transport)
	case "azure":
		c.provider = newOpenAI(config, c.transport)
	case "anthropic":
		base = cmp.Or(base, "https://api.anthropic.com")
		c.provider = newAnthropic(config, c.transport)
	default:
		return nil, fmt.Errorf("%.40q is not a Provider: use openai, azure or anthropic", config.Provider)
	}
	if config.APIKey == "" && (config.BaseURL == "" || config.Provider == "azure") {
		return nil, fmt.Errorf("APIKey: it is missing, but %s requires one", config.Provider)
	}
	if base == "" {
		return nil, errors.New("BaseURL: it is missing: for Azure it is https://NAME.openai.azure.com")
	}
	u, err := shared.CheckURL(base)
	if err != nil {
		return nil, fmt.Errorf("BaseURL: %w", err)
	}
	c.host = u.Host
	return c, nil
}

// Close closes idle connections. Calls in flight continue, and the Client stays usable.
func (c *Client) Close() { c.transport.base.CloseIdleConnections() }

// Send makes the call. It returns nil if a completion came; otherwise see the tables at
// [Client.outcome] for answers and at [Client.lost] for calls without an answer. The Result also
// says what a failed call used, see [Result.Actual].
//
// If ctx is cancelled before the request was sent, the error wraps ctx's. If it is cancelled
// later, the outcome is unknown, as after a lost connection.
func (c *Client) Send(ctx context.Context, call clients.Call, request Request) (Result, error) {
	f, err := request.parse()
	if err == nil {
		err = c.provider.check(f)
	}
	if err != nil {
		return free(), clients.Permanent(clients.NotCalled(err))
	}
	// The cause distinguishes a timeout from a shutdown of the worker.
	limited, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("gave up after %v", c.timeout))
	defer cancel()
	x := &exchange{call: call, body: request}
	result, text, err := c.provider.complete(x.begin(limited), f, request)
	if x.header != nil {
		c.note(ctx, x.header)
	}
	switch {
	case !x.asked && ctx.Err() != nil:
		return free(), fmt.Errorf("call %s: %w", c.host, ctx.Err())
	case !x.asked:
		// The SDK refused, for example a model that it knows is not for chat.
		return free(), clients.Permanent(clients.NotCalled(c.reason("%v", err)))
	case x.status == 0, x.status/100 == 2 && x.err != nil:
		return c.lost(ctx, limited, x)
	case x.status/100 != 2:
		return free(), c.outcome(answerOf(x))
	case err != nil:
		return c.unreadable(x, err)
	}
	result.Completion = bytes.TrimSpace(x.answer)
	result.Usage, result.known = result.Usage.checked()
	result.Backoff = metersOf(x.header, shared.Clock(x.header.Get("Date"))).room(result.Usage.Total)
	return result.fit(text), nil
}

// checked fills in the total, and reports whether the numbers are plausible.
func (u Usage) checked() (Usage, bool) {
	if min(u.Prompt, u.Completion, u.Total) < 0 || max(u.Prompt, u.Completion, u.Total) > maxTokens {
		return Usage{}, false
	}
	u.Total = max(u.Total, u.Prompt+u.Completion)
	return u, u.Total > 0
}

// reason returns an error whose text can be logged, without the key.
func (c *Client) reason(format string, args ...any) error {
	return errors.New(c.redact(fmt.Sprintf(format, args...)))
}

// maxReason is the max number of bytes of a provider's text in an error.
const maxReason = 300

func (c *Client) redact(text string) string {
	const shortest = 6 // shorter keys are not secret, and occur in many words
	if len(c.key) >= shortest {
		text = strings.ReplaceAll(text, c.key, "…")
	}
	// Some providers repeat a part of an invalid key.
	return clients.Printable(maskedKey.ReplaceAllString(text, "…"), maxReason)
}

// isObject reports whether a body is a JSON object, as opposed to the page of a proxy.
func isObject(body []byte) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(body, &object) == nil && object != nil
}
