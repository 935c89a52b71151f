package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/shared"
	"github.com/sashabaranov/go-openai"

	"github.com/headgate/headgate/clients/sandbox"
)

func newOpenAI(t testing.TB, config sandbox.AIConfig) *sandbox.AI {
	t.Helper()
	return running(t, config, sandbox.NewOpenAI)
}

func newAnthropic(t testing.TB, config sandbox.AIConfig) *sandbox.AI {
	t.Helper()
	return running(t, config, sandbox.NewAnthropic)
}

func running(t testing.TB, config sandbox.AIConfig, start func(sandbox.AIConfig) (*sandbox.AI, error)) *sandbox.AI {
	s, err := start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// tenantClient calls on behalf of a tenant.
func tenantClient(t testing.TB, tenant string) *http.Client {
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Set("Headgate-Tenant", tenant)
		return base.RoundTrip(r)
	})}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func openAIClient(t testing.TB, s *sandbox.AI, key, tenant string) *openai.Client {
	config := openai.DefaultConfig(key)
	config.BaseURL = s.URL() + "/v1"
	config.HTTPClient = tenantClient(t, tenant)
	return openai.NewClientWithConfig(config)
}

func anthropicClient(t testing.TB, s *sandbox.AI, key, tenant string) anthropic.Client {
	return anthropic.NewClient(
		option.WithBaseURL(s.URL()), option.WithAPIKey(key), option.WithMaxRetries(0), option.WithHTTPClient(tenantClient(t, tenant)),
	)
}

var chatRequest = openai.ChatCompletionRequest{
	Model: "gpt-4o", MaxCompletionTokens: 40, Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "Hello there, 12345!"}},
}

var messageRequest = anthropic.MessageNewParams{
	Model: "claude-x", MaxTokens: 40, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Hello there, 12345!"))},
}

// The SDK of the provider reads what the sandbox says.
func TestOpenAIContract(t *testing.T) {
	s := newOpenAI(t, sandbox.AIConfig{
		Config: sandbox.Config{Account: sandbox.Limit{Rate: 0.5, Burst: 100}}, AccountTokens: sandbox.Limit{Rate: 10, Burst: 1000}, APIKey: "sk-right",
	})
	client := openAIClient(t, s, "sk-right", "acme")
	answer, err := client.CreateChatCompletion(t.Context(), chatRequest)
	if err != nil {
		t.Fatal(err)
	}
	if answer.Choices[0].Message.Content == "" || answer.Choices[0].FinishReason != openai.FinishReasonStop || answer.Usage.CompletionTokens != 20 ||
		answer.Usage.TotalTokens != answer.Usage.PromptTokens+20 || answer.Usage.PromptTokens < 10 {
		t.Errorf("%+v", answer)
	}
	limits := answer.GetRateLimitHeaders()
	if limits.LimitRequests != 30 || limits.RemainingRequests != 99 || limits.LimitTokens != 600 || limits.RemainingTokens > 1000-40 || limits.RemainingTokens < 900 {
		t.Errorf("%+v", limits)
	}
	for fault, want := range map[sandbox.Fault]string{
		sandbox.InsufficientQuota: "429 insufficient_quota insufficient_quota", sandbox.SpendLimit: "429 insufficient_quota organization_spend_limit_exceeded",
		sandbox.Overloaded: "503 service_unavailable_error server_is_overloaded", sandbox.ContextLength: "400 invalid_request_error context_length_exceeded",
		sandbox.ContentPolicy: "400 invalid_request_error content_policy_violation", sandbox.TooLarge: "429 tokens rate_limit_exceeded",
	} {
		s.FailAs(1, fault)
		_, err := client.CreateChatCompletion(t.Context(), chatRequest)
		e, ok := errors.AsType[*openai.APIError](err)
		if !ok || fmt.Sprint(e.HTTPStatusCode, " ", e.Type, " ", e.Code) != want || e.Message == "" {
			t.Errorf("%v; want %s", err, want)
		}
	}
	for _, status := range []int{400, 403, 404, 429, 500, 503, 529} {
		s.Fail(1, status)
		_, err := client.CreateChatCompletion(t.Context(), chatRequest)
		if e, ok := errors.AsType[*openai.APIError](err); !ok || e.HTTPStatusCode != status || e.Message == "" {
			t.Errorf("%d: %v", status, err)
		}
	}
	_, err = openAIClient(t, s, "sk-wrong", "acme").CreateChatCompletion(t.Context(), chatRequest)
	if e, ok := errors.AsType[*openai.APIError](err); !ok || e.HTTPStatusCode != 401 || e.Code != "invalid_api_key" {
		t.Error(err)
	}
	_, err = client.CreateChatCompletion(t.Context(), openai.ChatCompletionRequest{Model: "m"})
	if e, ok := errors.AsType[*openai.APIError](err); !ok || e.HTTPStatusCode != 400 {
		t.Error(err)
	}
	_, err = client.ListModels(t.Context())
	if e, ok := errors.AsType[*openai.APIError](err); !ok || e.HTTPStatusCode != 404 {
		t.Error(err)
	}
	config := openai.DefaultAzureConfig("sk-right", s.URL())
	config.HTTPClient = tenantClient(t, "acme")
	if _, err := openai.NewClientWithConfig(config).CreateChatCompletion(t.Context(), chatRequest); err != nil {
		t.Errorf("as Azure: %v", err)
	}
}

func TestAnthropicContract(t *testing.T) {
	s := newAnthropic(t, sandbox.AIConfig{
		Config: sandbox.Config{Account: sandbox.Limit{Rate: 0.5, Burst: 100}}, AccountTokens: sandbox.Limit{Rate: 10, Burst: 1000}, APIKey: "sk-right", Completion: 40,
	})
	client := anthropicClient(t, s, "sk-right", "acme")
	var response *http.Response
	message, err := client.Messages.New(t.Context(), messageRequest, option.WithResponseInto(&response))
	if err != nil {
		t.Fatal(err)
	}
	if message.Content[0].Text == "" || message.StopReason != anthropic.StopReasonMaxTokens || message.Usage.OutputTokens != 40 || message.Usage.InputTokens < 10 {
		t.Errorf("%s", message.RawJSON())
	}
	for header, want := range map[string]string{
		"Anthropic-Ratelimit-Requests-Limit": "30", "Anthropic-Ratelimit-Requests-Remaining": "99", "Anthropic-Ratelimit-Tokens-Limit": "600",
	} {
		if got := response.Header.Get(header); got != want {
			t.Errorf("%s: %q; want %q", header, got, want)
		}
	}
	if _, err := time.Parse(time.RFC3339, response.Header.Get("Anthropic-Ratelimit-Tokens-Reset")); err != nil {
		t.Error(err)
	}
	for fault, want := range map[sandbox.Fault]string{
		sandbox.InsufficientQuota: "400 invalid_request_error", sandbox.SpendLimit: "400 invalid_request_error", sandbox.Overloaded: "529 overloaded_error",
		sandbox.ContextLength: "400 invalid_request_error", sandbox.ContentPolicy: "400 invalid_request_error", sandbox.TooLarge: "429 rate_limit_error",
	} {
		s.FailAs(1, fault)
		_, err := client.Messages.New(t.Context(), messageRequest)
		e, ok := errors.AsType[*anthropic.Error](err)
		if !ok || fmt.Sprint(e.StatusCode, " ", errorType(t, e)) != want {
			t.Errorf("%v; want %s", err, want)
		}
	}
	for status, want := range map[int]string{
		400: "invalid_request_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
		429: "rate_limit_error", 500: "api_error", 504: "timeout_error", 529: "overloaded_error",
	} {
		s.Fail(1, status)
		_, err := client.Messages.New(t.Context(), messageRequest)
		if e, ok := errors.AsType[*anthropic.Error](err); !ok || e.StatusCode != status || errorType(t, e) != want {
			t.Errorf("%d: %v", status, err)
		}
	}
	wrong := anthropicClient(t, s, "sk-wrong", "acme")
	_, err = wrong.Messages.New(t.Context(), messageRequest)
	if e, ok := errors.AsType[*anthropic.Error](err); !ok || e.StatusCode != 401 || errorType(t, e) != "authentication_error" {
		t.Error(err)
	}
}

// errorType is the type of the error in the answer's body, as the SDK reads it.
func errorType(t *testing.T, e *anthropic.Error) string {
	t.Helper()
	var body shared.ErrorResponse
	if err := json.Unmarshal([]byte(e.RawJSON()), &body); err != nil {
		t.Error(err)
	}
	return body.Error.Type
}

// Both meters, of tenant and account; what one refuses takes nothing of another.
func TestAIMeters(t *testing.T) {
	s := newOpenAI(t, sandbox.AIConfig{
		Config: sandbox.Config{Limit: sandbox.Limit{Rate: 0.001, Burst: 3}, Account: sandbox.Limit{Rate: 0.001, Burst: 5}, Tolerance: -1},
		Tokens: sandbox.Limit{Rate: 0.001, Burst: 200}, AccountTokens: sandbox.Limit{Rate: 0.001, Burst: 330}, Completion: 30,
	})
	s.SetTokenLimit("rich", sandbox.Limit{})
	s.SetLimit("rich", sandbox.Limit{})
	ask := func(tenant string, bound int) (string, http.Header) {
		t.Helper()
		body := fmt.Sprintf(`{"model":"m","max_tokens":%d,"messages":[{"role":"user","content":"abcd"}]}`, bound)
		r, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL()+"/v1/chat/completions", strings.NewReader(body))
		r.Header.Set("Headgate-Tenant", tenant)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var answer struct {
			Error struct{ Message, Type string }
			Usage struct {
				Total int `json:"total_tokens"`
			}
		}
		json.NewDecoder(response.Body).Decode(&answer)
		http.DefaultClient.CloseIdleConnections()
		if response.StatusCode == 200 {
			return "took " + strconv.Itoa(answer.Usage.Total), response.Header
		}
		scope := "account"
		if strings.Contains(answer.Error.Message, "for user "+tenant) {
			scope = "tenant"
		}
		if strings.HasPrefix(answer.Error.Message, "Request too large") {
			scope = "never"
		}
		return scope + " " + answer.Error.Type, response.Header
	}
	const prompt = 3 + 3 + 1 + 1 // of the conversation, the message, "user" and "abcd"
	for i, step := range []struct {
		tenant string
		bound  int
		want   string
	}{
		{"acme", 192, "took 38"},       // 200 at once; 162 come back
		{"acme", 155, "tenant tokens"}, // 162 are left
		{"acme", 154, "took 38"},
		{"acme", 500, "never tokens"},
		{"acme", 10, "took 18"}, // the third of three
		{"acme", 10, "tenant requests"},
		{"rich", 230, "account tokens"}, // 330 - 38 - 38 - 18 = 236 are left
		{"rich", 228, "took 38"},
		{"rich", 10, "took 18"},
		{"rich", 10, "account requests"},
	} {
		got, header := ask(step.tenant, step.bound)
		if got != step.want {
			t.Fatalf("step %d: %s; want %s", i, got, step.want)
		}
		waits := strings.HasPrefix(got, "tenant") || strings.HasPrefix(got, "account")
		if seconds, _ := strconv.Atoi(header.Get("Retry-After")); waits != (seconds > 0) {
			t.Errorf("step %d: Retry-After %q", i, header.Get("Retry-After"))
		}
	}
	if got, want := s.AIStats()["acme"], (sandbox.AIStats{Requests: 1, Tokens: 2, AccountTokens: 1, Prompt: 3 * prompt, Completion: 70}); got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
	if got, want := s.AIStats()["rich"], (sandbox.AIStats{AccountRequests: 1, AccountTokens: 1, Prompt: 2 * prompt, Completion: 40}); got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
}

// Without a tenant, the key is one.
func TestAIKeysAreTenants(t *testing.T) {
	s := newAnthropic(t, sandbox.AIConfig{Config: sandbox.Config{Limit: sandbox.Limit{Burst: 1}}})
	for _, key := range []string{"k1", "k2"} {
		client := anthropicClient(t, s, key, "")
		if _, err := client.Messages.New(t.Context(), messageRequest); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		if _, err := client.Messages.New(t.Context(), messageRequest); err == nil {
			t.Errorf("%s: the second was taken", key)
		}
	}
	if got := s.Stats(); got["k1"].Rejected != 1 || got["k2"].Accepted != 1 {
		t.Errorf("%+v", got)
	}
}

func TestAIHostileCalls(t *testing.T) {
	for _, s := range []*sandbox.AI{newOpenAI(t, sandbox.AIConfig{}), newAnthropic(t, sandbox.AIConfig{})} {
		var calls sync.WaitGroup
		for _, body := range []string{
			"", "[]", "null", `{"model":1}`, `{"messages":[1,null,"x"],"model":"m","max_tokens":-5,"n":-5}`,
			`{"model":"m","n":1000000000,"max_tokens":1,"messages":[{}]}`, strings.Repeat("[", 100_000), `{"model":"m","stream":true}`,
		} {
			for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/", "/openai/deployments/../../x"} {
				calls.Go(func() {
					response, err := http.Post(s.URL()+path, "application/json", strings.NewReader(body))
					if err != nil {
						t.Error(err)
						return
					}
					defer response.Body.Close()
					answer, _ := io.ReadAll(response.Body)
					if response.StatusCode >= 500 || !json.Valid(answer) {
						t.Errorf("%s %.40q: %d %.100s", path, body, response.StatusCode, answer)
					}
				})
			}
		}
		calls.Wait()
		http.DefaultClient.CloseIdleConnections()
	}
}

func ExampleNewAnthropic() {
	provider, err := sandbox.NewAnthropic(sandbox.AIConfig{Completion: 3})
	if err != nil {
		panic(err)
	}
	defer provider.Close()
	client := anthropic.NewClient(
		option.WithBaseURL(provider.URL()), option.WithAPIKey("sk-example"), option.WithMaxRetries(0), option.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}),
	)
	message, err := client.Messages.New(context.Background(), anthropic.MessageNewParams{
		Model: "claude-x", MaxTokens: 50, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Hello!"))},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(message.Content[0].Text, message.Usage.OutputTokens)
	provider.FailAs(1, sandbox.Overloaded)
	_, err = client.Messages.New(context.Background(), anthropic.MessageNewParams{Model: "claude-x", MaxTokens: 50})
	fmt.Println(err != nil)
	// Output:
	// ok ok ok 3
	// true
}
