package browsertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients/ai"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// contentLimits let little go of acme, so that what there is of it stays as it is.
const contentLimits = `
queues:
  webhook:
    kinds: [webhook]
    limits:
      - {name: account, algorithm: leaky_bucket, rate: 300/s}
      - {name: tenant, per: [tenant], algorithm: token_bucket, rate: 20/s, burst: 40}
      - {name: daily, per: [tenant], algorithm: sliding_window_log, rate: 10000/day}
      - {name: in-flight, per: [tenant], concurrency: 10, reserve: {direct: 20%}}
    max_backlog: 100000
  ai:
    kinds: [ai]
    limits:
      - {name: requests, algorithm: token_bucket, rate: 120/day, burst: 50, adaptive: true}
      - {name: images, unit: images, algorithm: fixed_window, rate: 9000/day}
      - {name: tokens, per: [tenant], unit: tokens, algorithm: token_bucket, rate: 60000/min, burst: 500}
tenants:
  acme: {weight: 3, limits: {webhook: {tenant: {rate: 2/hour, burst: 1}}}}
`

// TestContent: the pages of a tenant, of providers and of limits say what is in Redis and
// what providers answered.
func TestContent(t *testing.T) {
	t.Parallel()
	s := newStage(t, contentLimits)
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range map[string]string{
			"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "42", "x-ratelimit-reset-requests": "7h12m0s",
			"x-ratelimit-limit-tokens": "90000", "x-ratelimit-remaining-tokens": "1234",
			"x-ratelimit-limit-images": "5000", "x-ratelimit-remaining-audio": "7", "content-type": "application/json",
		} {
			w.Header().Set(name, value)
		}
		fmt.Fprint(w, `{"id":"1","model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"ok"}}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`)
	}))
	t.Cleanup(model.Close)
	p := s.worker("HEADGATE_BREAKER_FAILURES=2", "HEADGATE_BREAKER_PAUSE=10m", "HEADGATE_AI_PROVIDER=openai", "HEADGATE_AI_BASE_URL="+model.URL)

	s.enqueue(times(30, s.call("acme", "/orders"))...)       // one goes, and two an hour follow
	s.enqueue(s.call("hooli", "/429/orders"))                // asked to wait for ten minutes
	s.enqueue(times(2, s.call("initech", "/503/orders"))...) // its endpoint is held back
	s.enqueue(s.call("stark", "/422/orders"))                // fails for good
	prompt := ai.Request(`{"model":"m","max_tokens":20,"messages":[{"role":"user","content":"Hi"}]}`)
	s.enqueue(queue.Job{Kind: "ai", Tenant: "acme", Payload: prompt, Costs: prompt.Costs()})
	numbers := s.call("umbrella", "/orders")
	numbers.In, numbers.Payload = time.Hour, json.RawMessage(fmt.Sprintf(`{"url":%q,"body":{"id":9007199254740993,"cents":1.10,"none":[],"text":"{\"n\":[1,2]}, \\","lines":[{"sku":-1e400},true]}}`, s.receiver+"/orders"))
	job := s.enqueue(numbers)[0]
	until.Done(t, "all calls were made", func() bool {
		answers := map[lifecycle.Answer]int64{}
		for _, name := range []string{"webhook", "ai"} {
			o, err := inspect.New(s.rdb).Overview(t.Context(), name)
			if err != nil {
				return false
			}
			for answer, n := range o.Answers {
				answers[answer] += n
			}
		}
		return answers["ok"] == 2 && answers["throttled"] == 1 && answers["retryable"] == 2 && answers["permanent"] == 1
	})
	if err := operate.SetOverride(t.Context(), s.rdb, "webhook", "hooli", "tenant", operate.Override{
		Change: limits.Change{Burst: new(int64(80))}, Until: time.Now().Add(2 * time.Hour), Actor: "anna", Reason: "launch day",
	}); err != nil {
		t.Fatal(err)
	}
	scenario(t, "content.mjs", run{base: p.page, given: map[string]any{"queue": "webhook", "job": job, "receiver": strings.TrimPrefix(s.receiver, "http://")}})
}
