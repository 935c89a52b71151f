package ai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/outcomes"
	"github.com/headgate/headgate/internal/test/silent"
)

func TestConfig(t *testing.T) {
	tests := map[string]struct {
		config Config
		wrong  string // "": nothing
	}{
		"openai":          {Config{Provider: "openai", APIKey: "k"}, ""},
		"anthropic":       {Config{Provider: "anthropic", APIKey: "k"}, ""},
		"azure":           {Config{Provider: "azure", APIKey: "k", BaseURL: "https://x.openai.azure.com"}, ""},
		"Ollama, no key":  {Config{Provider: "openai", BaseURL: "http://127.0.0.1:11434/v1"}, ""},
		"nobody":          {Config{}, `"" is not a Provider`},
		"no key":          {Config{Provider: "openai"}, "APIKey: it is missing"},
		"azure's key":     {Config{Provider: "azure", BaseURL: "https://x"}, "APIKey: it is missing"},
		"azure's address": {Config{Provider: "azure", APIKey: "k"}, "BaseURL: it is missing"},
		"line break":      {Config{Provider: "openai", APIKey: canary + "\n"}, "APIKey: it has characters"},
		"key in the URL":  {Config{Provider: "openai", APIKey: "k", BaseURL: "https://" + canary + "@x"}, "BaseURL: it must not have a user"},
		"key as query":    {Config{Provider: "openai", APIKey: "k", BaseURL: "https://x?key=" + canary}, "BaseURL: it must not have a user"},
		"broken":          {Config{Provider: "openai", APIKey: "k", BaseURL: "http://" + canary + "\x7f"}, "BaseURL: it is not a URL"},
		"relative":        {Config{Provider: "openai", APIKey: "k", BaseURL: "/v1"}, "BaseURL: it must be http"},
		"in the clear":    {Config{Provider: "openai", APIKey: "k", BaseURL: "http://models.internal/v1"}, "BaseURL: http:// is for this machine only"},
		"a false name":    {Config{Provider: "openai", APIKey: "k", BaseURL: "http://localhost.example.com/v1"}, "BaseURL: http:// is for this machine only"},
		"file":            {Config{Provider: "openai", APIKey: "k", BaseURL: "file:///x"}, "BaseURL: it must be http"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := New(tt.config)
			if err == nil && tt.wrong == "" {
				return
			}
			if err == nil || tt.wrong == "" || !strings.HasPrefix(err.Error(), tt.wrong) {
				t.Fatalf("%v; want %q", err, tt.wrong)
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("%q gives the key away", err)
			}
		})
	}
}

// What the SDKs would drop arrives: unknown fields, zeros, the order of fields.
func TestWhatIsSent(t *testing.T) {
	const body = `{"model":"m-1", "temperature":0, "messages":[{"role":"user","content":"<hi>"}],"max_tokens":5,"new_field":{"a":[1,2]},"stop":"x"}`
	for name, tt := range map[string]struct {
		config  Config
		path    string
		headers map[string]string
		answer  string
	}{
		"openai": {
			Config{Provider: "openai"}, "/v1/chat/completions", map[string]string{"Authorization": "Bearer " + canary},
			`{"id":"c","model":"m-1","choices":[{"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7},"novelty":1}`,
		},
		"azure": {
			Config{Provider: "azure"}, "/v1/openai/deployments/m-1/chat/completions?api-version=2024-10-21", map[string]string{"Api-Key": canary, "Authorization": ""},
			`{"id":"c","model":"m-1","choices":[{"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`,
		},
		"anthropic": {
			Config{Provider: "anthropic"}, "/v1/v1/messages", map[string]string{"X-Api-Key": canary, "Anthropic-Version": "2023-06-01"},
			`{"id":"c","type":"message","model":"m-1","content":[{"type":"thinking","thinking":"…"},{"type":"text","text":"yes"}],"stop_reason":"end_turn","usage":{"input_tokens":2,"cache_creation_input_tokens":1,"cache_read_input_tokens":900,"output_tokens":4}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got *http.Request
			var sent []byte
			server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				got = r
				sent, _ = io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("x-ratelimit-remaining-requests", "0")
				w.Header().Set("x-ratelimit-limit-requests", "2")
				w.Header().Set("x-ratelimit-reset-requests", "17.28s")
				io.WriteString(w, tt.answer+"\n")
			})
			tt.config.BaseURL, tt.config.APIKey = server.URL+"/v1", canary
			// The environment is not asked.
			t.Setenv("ANTHROPIC_API_KEY", "sk-of-the-environment")
			t.Setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
			c, err := New(tt.config)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			result, err := c.Send(t.Context(), call, Request(body))
			if err != nil {
				t.Fatal(err)
			}
			if got.Method != "POST" || got.RequestURI != tt.path || string(sent) != body || got.ContentLength != int64(len(body)) {
				t.Errorf("%s %s, %s", got.Method, got.RequestURI, sent)
			}
			want := map[string]string{
				"Headgate-Job": "018f", "Headgate-Tenant": "%C3%9C", "Headgate-Attempt": "2", "Idempotency-Key": "acme:1", "Content-Type": "application/json",
			}
			maps.Copy(want, tt.headers)
			for header, value := range want {
				if got.Header.Get(header) != value {
					t.Errorf("%s: %q; want %q", header, got.Header.Get(header), value)
				}
			}
			if got := fmt.Sprintf("%s %s %v %v %v", result.ID, result.Model, result.Usage, result.Actual(), result.Truncated); got != "c m-1 {3 4 7} map[tokens:7] false" {
				t.Error(got)
			}
			if string(result.Completion) != tt.answer {
				t.Errorf("completion %s", result.Completion)
			}
			if result.Backoff != 8640*time.Millisecond {
				t.Errorf("backoff %v", result.Backoff)
			}
		})
	}
}

func TestRefusedBeforeItIsSent(t *testing.T) {
	server := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	for name, tt := range map[string]struct{ provider, body, wrong string }{
		"streaming":         {"openai", `{"model":"m","messages":[{"role":"user"}],"stream":true}`, "stream: streaming is not supported"},
		"no bound":          {"anthropic", `{"model":"m","messages":[{"role":"user"}]}`, "max_tokens: it is missing"},
		"many":              {"anthropic", `{"model":"m","messages":[{"role":"user"}],"max_tokens":1,"n":2}`, "n: Anthropic"},
		"path as a model":   {"azure", `{"model":"../../x?y=","messages":[{"role":"user"}]}`, "model: Azure requires"},
		"dots as a model":   {"azure", `{"model":"..","messages":[{"role":"user"}]}`, "model: Azure requires"},
		"not for chat":      {"openai", `{"model":"text-davinci-003","messages":[{"role":"user"}]}`, "this model is not supported"},
		"nothing":           {"openai", ``, "not a JSON object"},
		"several at a time": {"openai", `{"messages":[]}`, "model: it is missing\nmessages: it is missing or empty"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := newClient(t, tt.provider, server.URL).Send(t.Context(), call, Request(tt.body))
			if outcomes.Of(err) != "permanent" || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%v; want %q", err, tt.wrong)
			}
			if tokens, known := result.Actual()["tokens"]; !known || tokens != 0 {
				t.Error("it is not free")
			}
		})
	}
}

func TestLost(t *testing.T) {
	request := requestFor("openai")
	for _, provider := range []string{"openai", "anthropic"} {
		t.Run(provider, func(t *testing.T) {
			t.Run("nobody there", func(t *testing.T) {
				result, err := newClient(t, provider, "http://127.0.0.1:1").Send(t.Context(), call, request)
				if outcomes.Of(err) != "retryable" || result.Actual() == nil {
					t.Errorf("%s, %v: %v", outcomes.Of(err), result.Actual(), err)
				}
			})
			t.Run("cancelled before", func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_, err := newClient(t, provider, "http://127.0.0.1:1").Send(ctx, call, request)
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			t.Run("broken after", func(t *testing.T) {
				var calls atomic.Int32
				server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					if calls.Add(1) > 1 {
						panic(http.ErrAbortHandler)
					}
					w.WriteHeader(http.StatusBadRequest)
				})
				c := newClient(t, provider, server.URL)
				c.Send(t.Context(), call, request) // the connection is a kept one now
				result, err := c.Send(t.Context(), call, request)
				if outcomes.Of(err) != "unknown" || result.Actual() != nil || calls.Load() != 2 {
					t.Errorf("%s, %v after %d calls: %v", outcomes.Of(err), result.Actual(), calls.Load(), err)
				}
			})
			t.Run("broken within the answer", func(t *testing.T) {
				server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Length", "1000")
					io.WriteString(w, `{"id":`)
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				})
				result, err := newClient(t, provider, server.URL).Send(t.Context(), call, request)
				if outcomes.Of(err) != "unknown" || result.Actual() != nil {
					t.Errorf("%s, %v: %v", outcomes.Of(err), result.Actual(), err)
				}
			})
			t.Run("too slow", func(t *testing.T) {
				silent.Call(t, func(timeout time.Duration) bool {
					var calls atomic.Int32
					server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
						if silent.Whole(r) {
							calls.Add(1)
						}
						<-r.Context().Done()
					})
					c := newClient(t, provider, server.URL)
					c.timeout = timeout
					_, err := c.Send(t.Context(), call, request)
					if calls.Load() > 0 && outcomes.Of(err) != "unknown" || !strings.Contains(err.Error(), "gave up after "+timeout.String()) || errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: %v", outcomes.Of(err), err)
					}
					return outcomes.Of(err) == "unknown"
				})
			})
			t.Run("cancelled after", func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					cancel()
					<-r.Context().Done()
				})
				_, err := newClient(t, provider, server.URL).Send(ctx, call, request)
				if outcomes.Of(err) != "unknown" || errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", outcomes.Of(err), err)
				}
			})
		})
	}
}

// Nothing was sent over a connection that broke before it took a byte, so the call
// can be made again, whatever moment net/http notices it at.
func TestLostBeforeItIsSent(t *testing.T) {
	for range 40 {
		c := newClient(t, "openai", "http://127.0.0.1:1")
		c.transport.base.DialContext = func(context.Context, string, string) (net.Conn, error) { return clients.Counted(brokenConn{}), nil }
		result, err := c.Send(t.Context(), call, requestFor("openai"))
		if outcomes.Of(err) != "retryable" || result.Actual() == nil {
			t.Fatalf("%s, %v: %v", outcomes.Of(err), result.Actual(), err)
		}
	}
}

// brokenConn is closed by the server as soon as it is there.
type brokenConn struct{ net.Conn }

func (brokenConn) Read([]byte) (int, error)  { return 0, io.EOF }
func (brokenConn) Write([]byte) (int, error) { return 0, net.ErrClosed }
func (brokenConn) Close() error              { return nil }

// Both providers of the sandbox, through the client.
func TestSandbox(t *testing.T) {
	for _, provider := range []string{"openai", "anthropic"} {
		t.Run(provider, func(t *testing.T) {
			config := sandbox.AIConfig{
				Config: sandbox.Config{Limit: sandbox.Limit{Rate: 0.01, Burst: 100}, Tolerance: -1},
				Tokens: sandbox.Limit{Rate: 1, Burst: 200}, AccountTokens: sandbox.Limit{Rate: 1, Burst: 350}, APIKey: canary, Completion: 10,
			}
			start, path := sandbox.NewOpenAI, "/v1"
			if provider == "anthropic" {
				start, path = sandbox.NewAnthropic, ""
			}
			s, err := start(config)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c := newClient(t, provider, s.URL()+path)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // a call that should be refused would hang
			defer cancel()
			ask := func(tenant string, bound int) (Result, error) {
				body := fmt.Sprintf(`{"model":"m-1","max_tokens":%d,"messages":[{"role":"user","content":"How are you?"}]}`, bound)
				return c.Send(ctx, clients.Call{Tenant: tenant, Job: "1"}, Request(body))
			}

			result, err := ask("acme", 100)
			if err != nil {
				t.Fatal(err)
			}
			estimate := Request(`{"model":"m-1","max_tokens":100,"messages":[{"role":"user","content":"How are you?"}]}`).Costs()["tokens"]
			if actual := result.Actual()["tokens"]; actual != result.Usage.Prompt+10 || actual >= estimate {
				t.Errorf("it took %d, estimated %d: %+v", actual, estimate, result)
			}
			if !strings.Contains(string(result.Completion), "ok ok ok") {
				t.Errorf("%s", result.Completion)
			}
			// The tenant's tokens: what the first call did not need came back, so 150
			// more are there, and then not.
			if _, err := ask("acme", 150); err != nil {
				t.Error(err)
			}
			_, err = ask("acme", 150)
			if outcomes.Of(err) != "throttled" {
				t.Errorf("%s: %v", outcomes.Of(err), err)
			}
			if e, is := errors.AsType[*clients.ThrottledError](err); is && (e.RetryAfter() < time.Second || e.RetryAfter() > time.Minute) {
				t.Errorf("retry after %v", e.RetryAfter())
			}
			// The account's, which another tenant shares.
			release := s.Hang()
			done := make(chan error, 1)
			go func() { _, err := ask("globex", 180); done <- err }()
			for len(s.Calls()) < 4 && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			_, err = ask("initech", 180)
			if outcomes.Of(err) != "account throttled" {
				t.Errorf("%s: %v", outcomes.Of(err), err)
			}
			release()
			if err := <-done; err != nil {
				t.Error(err)
			}
			stats := s.AIStats()
			if got := stats["acme"]; got.Tokens != 1 || got.Requests != 0 || got.Completion != 20 {
				t.Errorf("%+v", got)
			}
			if got := stats["initech"]; got.AccountTokens != 1 || got.Tokens != 0 {
				t.Errorf("%+v", got)
			}

			s.SetAccountLimit(sandbox.Limit{})
			for fault, want := range map[sandbox.Fault]string{
				sandbox.InsufficientQuota: "account exhausted", sandbox.SpendLimit: "account exhausted", sandbox.Overloaded: "retryable",
				sandbox.ContextLength: "permanent", sandbox.ContentPolicy: "permanent",
			} {
				s.FailAs(1, fault)
				if result, err := ask("hooli", 10); outcomes.Of(err) != want || result.Actual() == nil {
					t.Errorf("fault %d: %s; want %s: %v", fault, outcomes.Of(err), want, err)
				}
			}
			s.Fail(1, 500)
			if _, err := ask("hooli", 10); outcomes.Of(err) != "retryable" {
				t.Errorf("500: %v", err)
			}
			s.Drop(1)
			if result, err := ask("hooli", 10); outcomes.Of(err) != "unknown" || result.Actual() != nil {
				t.Errorf("dropped: %v", err)
			}
			if _, err := ask("hooli", 10); err != nil {
				t.Errorf("after the faults: %v", err)
			}
		})
	}
}

// An answer that is too large for a result was paid for: as much of its text is
// kept as there is room for.
func TestLargeCompletion(t *testing.T) {
	for name, text := range map[string]string{
		"plain": strings.Repeat("x", 200_000), "escaped": strings.Repeat("<ü>", 100_000), "quotes": strings.Repeat(`"\`, 50_000),
	} {
		t.Run(name, func(t *testing.T) {
			answer, _ := json.Marshal(map[string]any{
				"id": "c", "model": "m", "choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": text}}},
				"usage": map[string]int{"total_tokens": 9},
			})
			server := newServer(t, func(w http.ResponseWriter, r *http.Request) { w.Write(answer) })
			result, err := newClient(t, "openai", server.URL).Send(t.Context(), call, requestFor("openai"))
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := json.Marshal(result)
			if err != nil || len(encoded) > MaxResult || len(encoded) < MaxResult-20 {
				t.Errorf("%d bytes, %v", len(encoded), err)
			}
			if !result.Truncated || result.Completion != nil || !strings.HasPrefix(text, result.Text) || result.Actual()["tokens"] != 9 {
				t.Errorf("%v, %d bytes of text, %v", result.Truncated, len(result.Text), result.Actual())
			}
			var back Result
			if err := json.Unmarshal(encoded, &back); err != nil || back.Text != result.Text {
				t.Errorf("the text does not survive: %v", err)
			}
		})
	}
}

func TestUsageThatCannotBe(t *testing.T) {
	for _, usage := range []string{`null`, `{}`, `{"total_tokens":-1}`, `{"prompt_tokens":5,"completion_tokens":-9,"total_tokens":7}`, `{"total_tokens":900000000}`} {
		server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"x"}}],"usage":`+usage+`}`)
		})
		result, err := newClient(t, "openai", server.URL).Send(t.Context(), call, requestFor("openai"))
		if err != nil || result.Actual() != nil || result.Usage.Total != 0 {
			t.Errorf("%s: %+v, %v", usage, result, err)
		}
	}
}

func TestRequestJSON(t *testing.T) {
	const body = `{"model":"m","messages":[{"role":"user","content":"<"}]}`
	var r Request
	if err := json.Unmarshal([]byte(body), &r); err != nil || string(r) != body {
		t.Fatalf("%s, %v", r, err)
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(body)))
	decoder.DisallowUnknownFields() // as bulk input is read
	if err := decoder.Decode(&r); err != nil || r.Validate() != nil {
		t.Error(err)
	}
}
