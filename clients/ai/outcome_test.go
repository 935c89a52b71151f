package ai

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/internal/test/outcomes"
)

// canary has no prefix that is cut out by itself.
const canary = "zz-canary-7f3a9c21d0"

var call = clients.Call{Job: "018f", Tenant: "Ü", Attempt: 2, IdempotencyKey: "acme:1"}

func newServer(t testing.TB, handler http.HandlerFunc) *httptest.Server {
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return server
}

func newClient(t testing.TB, provider, url string) *Client {
	t.Helper()
	c, err := New(Config{Provider: provider, BaseURL: url, APIKey: canary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// requestFor is one that the provider takes.
func requestFor(provider string) Request {
	body := map[string]any{"model": "m-1", "max_tokens": 50, "messages": []any{map[string]any{"role": "user", "content": "hi"}}}
	encoded, _ := json.Marshal(body)
	return encoded
}

const (
	openAICodes  = "developers.openai.com/api/docs/guides/error-codes"
	openAILimits = "platform.openai.com/docs/guides/rate-limits"
	openAIChat   = "platform.openai.com/docs/api-reference/chat"
	azureLimits  = "learn.microsoft.com/azure/ai-services/openai/how-to/quota"
	anthErrors   = "docs.anthropic.com/en/api/errors"
	anthLimits   = "docs.anthropic.com/en/api/rate-limits"
	anthSDK      = "anthropic-sdk-go shared/shared.go: ErrorType"
	liteLLM      = "docs.litellm.ai/docs/proxy/error_reference"
	quoted       = "as users quote it in public threads"
)

func TestAnswers(t *testing.T) {
	date := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) // a provider whose clock is far off
	later := date.Add(90 * time.Second).Format(time.RFC3339)
	nextMonth := func() time.Time {
		year, month, _ := time.Now().UTC().Date()
		return time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
	}
	soon := time.Now().UTC().AddDate(0, 0, 10).Truncate(time.Minute)
	inAWhile := func() time.Time { return time.Now().Add(clients.AccessPause) }
	openAIError := func(message, kind, code string) string {
		body, _ := json.Marshal(map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": code}})
		return string(body)
	}
	anthError := func(kind, message string) string {
		body, _ := json.Marshal(map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}, "request_id": "req_1"})
		return string(body)
	}
	type headers map[string]string
	tests := map[string]struct {
		provider string // "": openai
		status   int
		headers  headers
		body     string
		source   string
		want     string
		after    time.Duration    // throttled
		until    func() time.Time // postponed, or exhausted where it is told
		text     string
	}{
		"rate, requests": {
			status: 429, source: openAILimits, headers: headers{"Retry-After": "20"},
			body: openAIError("Rate limit reached for gpt-4o in organization org-1 on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s.", "requests", "rate_limit_exceeded"),
			want: "account throttled", after: 20 * time.Second, text: "answered 429 requests rate_limit_exceeded: Rate limit reached",
		},
		"rate, tokens, only the message says how long": {
			status: 429, source: quoted,
			body: openAIError("Rate limit reached for gpt-4 in organization org-1 on tokens per min (TPM): Limit 10000, Used 8554, Requested 3082. Please try again in 9.816s. Visit https://platform.openai.com/account/rate-limits to learn more.", "tokens", "rate_limit_exceeded"),
			want: "account throttled", after: 9816 * time.Millisecond,
		},
		"rate, milliseconds": {
			status: 429, source: quoted,
			body: openAIError("… Used 29937, Requested 385. Please try again in 644ms.", "tokens", "rate_limit_exceeded"), want: "account throttled", after: 644 * time.Millisecond,
		},
		"rate, of all that is stated the longest": {
			status: 429, source: "go-openai ratelimit.go; requestconfig.go of anthropic-sdk-go for retry-after-ms",
			headers: headers{"Retry-After": "2", "Retry-After-Ms": "1500"},
			body:    openAIError("Please try again in 6m0s.", "tokens", "rate_limit_exceeded"), want: "account throttled", after: 6 * time.Minute,
		},
		"rate, only headers, both meters empty": {
			status: 429, source: openAILimits,
			headers: headers{
				"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s",
				"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s",
			},
			body: openAIError("Rate limit reached", "requests", "rate_limit_exceeded"), want: "account throttled", after: 6 * time.Minute,
		},
		"rate, only headers, the one that is empty": {
			status: 429, source: openAILimits,
			headers: headers{
				"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s",
				"x-ratelimit-remaining-tokens": "149984", "x-ratelimit-reset-tokens": "6m0s",
			},
			body: openAIError("Rate limit reached", "requests", "rate_limit_exceeded"), want: "account throttled", after: time.Second,
		},
		"rate, only headers, none is empty, but the error names one": {
			status: 429, source: openAILimits,
			headers: headers{"x-ratelimit-remaining-tokens": "12", "x-ratelimit-reset-tokens": "4.2s", "x-ratelimit-reset-requests": "9s"},
			body:    openAIError("Rate limit reached", "tokens", "rate_limit_exceeded"), want: "account throttled", after: 4200 * time.Millisecond,
		},
		"rate, nothing said": {status: 429, source: "Ollama, vLLM behind a proxy", body: "too many requests", want: "account throttled", text: "answered 429: too many requests"},
		"rate, absurd wait":  {status: 429, source: quoted, headers: headers{"Retry-After": "999999999"}, want: "postponed", until: func() time.Time { return time.Now().Add(24 * time.Hour) }},
		"rate, Azure": {
			status: 429, source: azureLimits, headers: headers{"Retry-After": "9", "Retry-After-Ms": "8734"},
			body: `{"error":{"code":"429","message": "Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2024-10-21 have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 9 seconds."}}`,
			want: "account throttled", after: 9 * time.Second,
		},
		"rate, Azure, for a day": {
			status: 429, source: quoted,
			body: `{"error":{"code":"429","message": "… have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 86400 seconds."}}`,
			want: "postponed", until: func() time.Time { return time.Now().Add(24 * time.Hour) },
		},
		"rate, of a day, without a time": {
			status: 429, source: "openrouter.ai/docs/api-reference/limits", body: `{"error":{"code":429,"message":"Rate limit exceeded: free-models-per-day"}}`,
			want: "postponed", until: func() time.Time { return time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour) },
		},
		"rate, of a day, with a time": {
			status: 429, source: "openrouter.ai/docs/api-reference/limits", headers: headers{"Retry-After": "30"},
			body: `{"error":{"code":429,"message":"Rate limit exceeded: free-models-per-day"}}`,
			want: "account throttled", after: 30 * time.Second,
		},
		"rate, of a user": {
			status: 429, source: liteLLM, headers: headers{"Retry-After": "30"},
			body: `{"error":{"message":"LiteLLM Rate Limit Handler for rate limit type = end_user. Crossed TPM / RPM / Max Parallel Request Limit.","type":"None","param":"None","code":"429"}}`,
			want: "throttled", after: 30 * time.Second,
		},
		"the call alone is over the limit": {
			status: 429, source: quoted, headers: headers{"Retry-After": "1"},
			body: openAIError("Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested 30601. The input or output tokens must be reduced in order to run successfully.", "tokens", "rate_limit_exceeded"),
			want: "permanent", text: "Request too large",
		},
		"slow down":           {status: 429, source: openAICodes, body: openAIError("Slow down", "rate_limit_error", "slow_down"), want: "account throttled"},
		"slow down, as a 503": {status: 503, source: openAICodes, headers: headers{"Retry-After": "15"}, body: openAIError("Slow Down", "service_unavailable_error", "slow_down"), want: "account throttled", after: 15 * time.Second},

		"quota": {
			status: 429, source: openAICodes,
			body: openAIError("You exceeded your current quota, please check your plan and billing details.", "insufficient_quota", "insufficient_quota"),
			want: "account exhausted", text: "insufficient_quota: You exceeded",
		},
		"no credit":            {status: 429, source: openAICodes, body: openAIError("…", "insufficient_quota", "credit_balance_exhausted"), want: "account exhausted"},
		"project's spend":      {status: 429, source: openAICodes, body: openAIError("…", "insufficient_quota", "project_spend_limit_exceeded"), want: "account exhausted"},
		"organization's spend": {status: 429, source: openAICodes, body: openAIError("…", "billing", "organization_spend_limit_exceeded"), want: "account exhausted"},
		"usage limit, with a wait": {
			status: 429, source: openAICodes, headers: headers{"Retry-After": "7200"}, body: openAIError("…", "insufficient_quota", "organization_usage_limit_exceeded"),
			want: "account exhausted", until: func() time.Time { return time.Now().Add(2 * time.Hour) },
		},
		"account not active": {status: 429, source: quoted, body: openAIError("Your account is not active, please check your billing details on our website.", "billing_not_active", "billing_not_active"), want: "account exhausted"},
		"hard limit":         {status: 400, source: quoted, body: openAIError("Billing hard limit has been reached", "invalid_request_error", "billing_hard_limit_reached"), want: "account exhausted"},
		"402":                {status: 402, source: "api-docs.deepseek.com/quick_start/error_codes", body: openAIError("Insufficient Balance", "unknown_error", "invalid_request_error"), want: "account exhausted"},
		"gateway's budget":   {status: 400, source: liteLLM, body: openAIError("Budget has been exceeded! Current cost: 1, Max budget: 1", "budget_exceeded", "400"), want: "account exhausted"},

		"context length": {
			status: 400, source: openAICodes,
			body: openAIError("This model's maximum context length is 8192 tokens. However, you requested 8250 tokens.", "invalid_request_error", "context_length_exceeded"),
			want: "permanent", text: "context_length_exceeded: This model's maximum context length",
		},
		"content, Azure": {
			status: 400, source: "learn.microsoft.com/azure/ai-services/openai/concepts/content-filter",
			body: `{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}`,
			want: "permanent", text: "content_filter: The response was filtered",
		},
		"content":     {status: 400, source: quoted, body: openAIError("Your request was rejected as a result of our safety system.", "invalid_request_error", "content_policy_violation"), want: "permanent"},
		"wrong key":   {status: 401, source: openAICodes, body: openAIError("Incorrect API key provided: sk-canar*********21d0. You can find your API key at https://platform.openai.com/account/api-keys.", "invalid_request_error", "invalid_api_key"), want: "account exhausted", after: clients.KeyPause, text: "Incorrect API key provided: …. You can find"},
		"key as sent": {status: 401, source: "servers that repeat what they got", body: openAIError("no such key: "+canary, "invalid_request_error", "invalid_api_key"), want: "account exhausted", after: clients.KeyPause, text: "no such key: …"},
		"country":     {status: 403, source: openAICodes, body: openAIError("Country, region, or territory not supported", "request_forbidden", "unsupported_country_region_territory"), want: "postponed", until: inAWhile},
		"content, by a gateway": {
			status: 403, source: "openrouter.ai/docs/api-reference/errors",
			body: `{"error":{"code":403,"message":"Your chosen model requires moderation and your input was flagged"}}`, want: "permanent",
		},
		"model":     {status: 404, source: openAIChat, body: openAIError("The model `m-1` does not exist or you do not have access to it.", "invalid_request_error", "model_not_found"), want: "permanent"},
		"404 page":  {status: 404, source: "nginx, in front of a server that is not up", body: "<html>\r\n<h1>404 Not Found</h1>", want: "retryable"},
		"Ollama's":  {status: 404, source: "github.com/ollama/ollama docs/api.md", body: `{"error":"model \"m-1\" not found, try pulling it first"}`, want: "permanent", text: `404: model "m-1" not found`},
		"vLLM's":    {status: 400, source: "vllm entrypoints/openai/protocol.py: ErrorResponse", body: `{"object":"error","message":"max_tokens must be at least 1","type":"BadRequestError","param":null,"code":400}`, want: "permanent", text: "400 BadRequestError: max_tokens must"},
		"FastAPI's": {status: 422, source: "fastapi.tiangolo.com/tutorial/handling-errors", body: `{"detail":[{"loc":["body"],"msg":"field required"}]}`, want: "permanent", text: "field required"},
		"too large": {status: 413, source: anthErrors, body: "<html>\r\n<h1>413 Request Entity Too Large</h1>", want: "permanent"},
		"redirect":  {status: 307, source: "RFC 9110", want: "permanent", text: "redirects are not followed"},

		"408":            {status: 408, source: "shouldRetry in requestconfig.go of anthropic-sdk-go", want: "retryable"},
		"409":            {status: 409, source: anthErrors, want: "retryable"},
		"500":            {status: 500, source: openAICodes, body: openAIError("The server had an error while processing your request. Sorry about that!", "server_error", ""), want: "retryable"},
		"502, a page":    {status: 502, source: "Cloudflare, nginx", body: "<html>" + strings.Repeat("x", 5000), want: "retryable"},
		"503":            {status: 503, source: openAICodes, headers: headers{"Retry-After": "5"}, body: openAIError("The engine is currently overloaded, please try again later", "service_unavailable_error", "server_is_overloaded"), want: "retryable"},
		"lists as texts": {status: 500, source: "go-openai error.go: message as a list", body: `{"error":{"message":["a","b"],"code":7,"type":{"x":1}}}`, want: "retryable", text: `500 {"x":1} 7: ["a","b"]`},

		"Anthropic, rate": {
			provider: "anthropic", status: 429, source: anthLimits,
			headers: headers{"retry-after": "12", "anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": later},
			body:    anthError("rate_limit_error", "This request would exceed your organization's rate limit of 20,000 input tokens per minute."), want: "account throttled", after: 12 * time.Second,
			text: "429 rate_limit_error: This request would exceed",
		},
		"Anthropic, rate, only headers": {
			provider: "anthropic", status: 429, source: anthLimits,
			headers: headers{
				"anthropic-ratelimit-input-tokens-remaining": "0", "anthropic-ratelimit-input-tokens-reset": later,
				"anthropic-ratelimit-requests-remaining": "7", "anthropic-ratelimit-requests-reset": date.Add(time.Hour).Format(time.RFC3339),
			},
			body: anthError("rate_limit_error", "Number of request tokens has exceeded your per-minute rate limit"), want: "account throttled", after: 90 * time.Second,
		},
		"Anthropic, account": {provider: "anthropic", status: 429, source: quoted, body: anthError("rate_limit_error", "This request would exceed your account's rate limit. Please try again later."), want: "account throttled"},
		"Anthropic, spend cap": {
			provider: "anthropic", status: 429, source: anthLimits,
			body: `{"type":"error","error":{"type":"rate_limit_error","message":"…","details":{"error_code":"enforced_spend_limit_reached"}}}`,
			want: "account exhausted", until: nextMonth, text: "enforced_spend_limit_reached",
		},
		"Anthropic, usage limit with a date": {
			provider: "anthropic", status: 400, source: quoted,
			body: anthError("invalid_request_error", "You have reached your specified API usage limits. You will regain access on "+soon.Format("2006-01-02 at 15:04 UTC")+"."),
			want: "account exhausted", until: func() time.Time { return soon },
		},
		"Anthropic, usage limit long ago": {
			provider: "anthropic", status: 400, source: quoted,
			body: anthError("invalid_request_error", "You have reached your specified API usage limits. You will regain access on 2025-07-01 at 00:00 UTC."), want: "account exhausted",
		},
		"Anthropic, no credit": {provider: "anthropic", status: 400, source: quoted, body: anthError("invalid_request_error", "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."), want: "account exhausted"},
		"Anthropic, billing":   {provider: "anthropic", status: 402, source: anthSDK, body: anthError("billing_error", "There's an issue with your billing."), want: "account exhausted"},
		"Anthropic, overloaded": {
			provider: "anthropic", status: 529, source: anthErrors, headers: headers{"retry-after": "3", "x-should-retry": "true"},
			body: anthError("overloaded_error", "Overloaded"), want: "retryable", text: "answered 529 overloaded_error: Overloaded",
		},
		"Anthropic, 500":         {provider: "anthropic", status: 500, source: anthErrors, body: anthError("api_error", "Internal server error"), want: "retryable"},
		"Anthropic, 504":         {provider: "anthropic", status: 504, source: anthSDK, body: anthError("timeout_error", "…"), want: "retryable"},
		"Anthropic, wrong":       {provider: "anthropic", status: 400, source: anthErrors, body: anthError("invalid_request_error", "max_tokens: 100000 > 8192, which is the maximum"), want: "permanent"},
		"Anthropic, too long":    {provider: "anthropic", status: 400, source: quoted, body: anthError("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), want: "permanent"},
		"Anthropic, key":         {provider: "anthropic", status: 401, source: anthErrors, body: anthError("authentication_error", "invalid x-api-key"), want: "account exhausted", after: clients.KeyPause},
		"Anthropic, permission":  {provider: "anthropic", status: 403, source: anthErrors, body: anthError("permission_error", "Your API key does not have permission"), want: "postponed", until: inAWhile},
		"Anthropic, model":       {provider: "anthropic", status: 404, source: anthErrors, body: anthError("not_found_error", "model: m-1"), want: "permanent"},
		"Anthropic, large":       {provider: "anthropic", status: 413, source: anthErrors, body: anthError("request_too_large", "Request exceeds the maximum size"), want: "permanent"},
		"Anthropic, not JSON":    {provider: "anthropic", status: 520, source: "Cloudflare", body: "error code: 520", want: "retryable", text: "520: error code: 520"},
		"Anthropic, proxy's 200": {provider: "anthropic", status: 200, source: "captive portals", body: "<html>sign in</html>", want: "retryable", text: "not with JSON"},

		"200, an error":     {status: 200, source: "openrouter.ai/docs/api-reference/errors", body: `{"error":{"code":429,"message":"Provider is busy. Please try again in 2s."}}`, want: "account throttled", after: 2 * time.Second},
		"200, odd error":    {status: 200, source: "openrouter.ai/docs/api-reference/errors", body: `{"error":{"message":"Provider returned error"}}`, want: "retryable"},
		"200, a page":       {status: 200, source: "captive portals", body: "<html>", want: "retryable", text: "not with JSON"},
		"200, no choices":   {status: 200, source: openAIChat, body: `{"id":"x","choices":[]}`, want: "permanent", text: "not with a completion"},
		"200, of elsewhere": {status: 200, source: openAIChat, body: `{"choices":"none"}`, want: "permanent", text: "not with a completion"},
		"200, endless":      {status: 200, source: "hostile servers", body: `{"x":"` + strings.Repeat("y", maxAnswer), want: "permanent", text: "larger than 8388608 bytes"},
	}
	if len(tests) < 20 {
		t.Fatal("rows are missing")
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.source == "" {
				t.Error("a row without a source")
			}
			calls := 0
			server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				calls++
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Date", date.Format(http.TimeFormat))
				w.Header().Set("Location", "/elsewhere")
				if strings.HasPrefix(tt.body, "{") {
					w.Header().Set("Content-Type", "application/json")
				}
				for name, value := range tt.headers {
					w.Header().Set(name, value)
				}
				w.WriteHeader(tt.status)
				io.WriteString(w, tt.body)
			})
			provider := tt.provider
			if provider == "" {
				provider = "openai"
			}
			result, err := newClient(t, provider, server.URL).Send(t.Context(), call, requestFor(provider))
			if got := outcomes.Of(err); got != tt.want || calls != 1 {
				t.Fatalf("%s after %d calls; want %s: %v", got, calls, tt.want, err)
			}
			if e, is := errors.AsType[*clients.ThrottledError](err); is && e.RetryAfter() != tt.after {
				t.Errorf("retry after %v; want %v", e.RetryAfter(), tt.after)
			}
			if e, is := errors.AsType[*clients.ExhaustedError](err); is {
				if tt.after > 0 {
					if e.After != tt.after {
						t.Errorf("exhausted for %v; want %v", e.After, tt.after)
					}
				} else if (e.After > 0) != (tt.until != nil) || tt.until != nil && (time.Until(tt.until())-e.After).Abs() > time.Minute {
					t.Errorf("exhausted for %v", e.After)
				}
			}
			if e, is := errors.AsType[*clients.PostponedError](err); is {
				if off := e.PostponeUntil().Sub(tt.until()).Abs(); off > time.Minute {
					t.Errorf("postponed until %v; want %v", e.PostponeUntil(), tt.until())
				}
			}
			if tokens, known := result.Actual()["tokens"]; known != (tt.status/100 != 2) || tokens != 0 {
				t.Errorf("it took %d tokens, known: %v", tokens, known)
			}
			text := err.Error()
			if !strings.Contains(text, tt.text) || len(text) > 2*maxReason {
				t.Errorf("%q; want %q in it", text, tt.text)
			}
			for _, secret := range []string{canary, "sk-canar", "21d0"} {
				if strings.Contains(text, secret) {
					t.Errorf("%q gives the key away", text)
				}
			}
		})
	}
}

// TestAtFault: which answers say that the provider is down.
func TestAtFault(t *testing.T) {
	for status, down := range map[int]bool{408: false, 409: false, 425: false, 500: true, 503: true, 529: true, 404: false} {
		_, got := errors.AsType[*clients.UnavailableError]((&Client{host: "h"}).outcome(answer{status: status}))
		if got != down {
			t.Errorf("%d: down %v", status, got)
		}
	}
}
