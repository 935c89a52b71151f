package ai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate/clients"
)

// Config says where completions come from.
type Config struct {
	// Provider is "openai", "azure" or "anthropic". Servers that copy OpenAI's API
	// (vLLM, Ollama, gateways) are "openai" with a BaseURL.
	Provider string

	// BaseURL is http or https, without user, query and fragment. "" means the
	// provider's own; Azure has none. OpenAI's ends in /v1, and so do most copies;
	// Anthropic's and Azure's (https://NAME.openai.azure.com) end with the host.
	BaseURL string

	// APIKey is never repeated in an error. "" is for servers that want none.
	APIKey string

	// APIVersion is Azure's. "" means 2024-10-21.
	APIVersion string

	// Timeout bounds a call from dialling to the end of its answer. 0 means 10
	// minutes, as with the SDKs: long completions take long.
	Timeout time.Duration
}

// Client asks one provider. It keeps connections for later calls and is safe for
// concurrent use.
type Client struct {
	provider  provider
	transport *transport
	host      string
	key       string
	timeout   time.Duration
	quotas    quotas
}

// provider makes a call through its SDK.
type provider interface {
	// check says what this provider would refuse.
	check(fields) error
	// complete reads the answer: the Result, and the text of its completion.
	complete(ctx context.Context, f fields, body []byte) (Result, string, error)
}

// New makes a Client. The error names the field of the Config that is wrong.
func New(config Config) (*Client, error) {
	config.Timeout = cmp.Or(max(config.Timeout, 0), 10*time.Minute)
	for _, c := range []byte(config.APIKey) {
		if c <= ' ' || c > '~' {
			return nil, errors.New("APIKey: it has characters that a header cannot hold")
		}
	}
	c := &Client{transport: newTransport(), key: config.APIKey, timeout: config.Timeout}
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
		return nil, fmt.Errorf("%.40q as Provider is none of openai, azure, anthropic", config.Provider)
	}
	if config.APIKey == "" && (config.BaseURL == "" || config.Provider == "azure") {
		return nil, fmt.Errorf("APIKey: it is missing, and %s wants one", config.Provider)
	}
	u, err := url.Parse(base)
	switch {
	case base == "":
		return nil, errors.New("BaseURL: it is missing; Azure's is https://NAME.openai.azure.com")
	case err != nil: // its text would repeat the URL
		return nil, errors.New("BaseURL: it is not a URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, errors.New("BaseURL: it is not http:// or https:// and a host")
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return nil, errors.New("BaseURL: user, query and fragment do not belong there; a key goes to APIKey")
	}
	c.host = u.Host
	return c, nil
}

// Close closes the connections that wait for the next call. Calls under way go
// on; the Client stays usable.
func (c *Client) Close() { c.transport.base.CloseIdleConnections() }

// Send makes the call. The error is nil when a completion came; otherwise see the
// table at [outcome] for answers, and [Client.lost] for calls without one. The
// Result says also of a failed call what it took, see [Result.Actual].
//
// When ctx is cancelled before the request was sent, the error wraps ctx's.
// Cancelled later, the outcome is unknown, as after a lost connection.
func (c *Client) Send(ctx context.Context, call clients.Call, request Request) (Result, error) {
	f, err := request.parse()
	if err == nil {
		err = c.provider.check(f)
	}
	if err != nil {
		return free(), clients.Permanent(clients.NotCalled(err))
	}
	// Its own cause tells the end of the time from the end of the worker.
	limited, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("gave up after %v", c.timeout))
	defer cancel()
	x := &exchange{call: call, body: request}
	result, text, err := c.provider.complete(x.begin(limited), f, request)
	if x.header != nil {
		c.quotas.note(x.header)
	}
	switch {
	case !x.asked && ctx.Err() != nil:
		return free(), fmt.Errorf("call %s: %w", c.host, ctx.Err())
	case !x.asked:
		// The SDK would not: a model that it knows not to chat, for one.
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
	result.Backoff = metersOf(x.header, clockOf(x.header)).room(result.Usage.Total)
	return result.fit(text), nil
}

// checked fills in the total, and tells whether the numbers can be true.
func (u Usage) checked() (Usage, bool) {
	if min(u.Prompt, u.Completion, u.Total) < 0 || max(u.Prompt, u.Completion, u.Total) > maxTokens {
		return Usage{}, false
	}
	u.Total = max(u.Total, u.Prompt+u.Completion)
	return u, u.Total > 0
}

// reason is an error whose text is fit for a log, and without the key.
func (c *Client) reason(format string, args ...any) error {
	return errors.New(c.redact(fmt.Sprintf(format, args...)))
}

// maxReason bounds what a provider can make an error say, in bytes.
const maxReason = 300

func (c *Client) redact(text string) string {
	const shortest = 6 // shorter ones are no secrets, and stand in many words
	if len(c.key) >= shortest {
		text = strings.ReplaceAll(text, c.key, "…")
	}
	// Some providers repeat a wrong key with a part of it left out.
	return clients.Printable(maskedKey.ReplaceAllString(text, "…"), maxReason)
}

// isObject tells a provider's JSON from the page of a proxy.
func isObject(body []byte) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(body, &object) == nil && object != nil
}
