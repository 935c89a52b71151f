package main

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/email"
	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/law"
)

// post makes a call by hand, and returns its status.
func post(t *testing.T, url, tenant, job string, body []byte) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer sk_test_demo")
	request.Header.Set(clients.HeaderTenant, tenant)
	request.Close = true // nothing is left of it
	if job != "" {
		request.Header.Set(clients.HeaderJob, job)
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// TestProvidersAllowTheLimits: of calls that come as fast as they can, each provider
// accepts exactly those that the demo's limit of its queue lets go, burst included, but
// for the 5 ms that the queue promises.
func TestProvidersAllowTheLimits(t *testing.T) {
	const tolerance = 5 * time.Millisecond
	providers, err := startProviders()
	if err != nil {
		t.Fatal(err)
	}
	defer providers.close()
	providers.models.Slow(0)
	host, port := splitPort(providers.post.Addr())
	mails, err := email.New(email.Config{Host: host, Port: port, TLS: "none"})
	if err != nil {
		t.Fatal(err)
	}
	defer mails.Close()
	limits := demoLimits()
	for _, l := range bindingLimits {
		if l.unit != "" {
			continue
		}
		t.Run(l.kind+" "+l.who(), func(t *testing.T) {
			for i := range 60 {
				switch l.kind {
				case "webhook":
					post(t, providers.web.URL()+"/", l.tenant, "", nil)
				case "email":
					message := email.Message{From: "me@example.com", To: email.Addresses{"you@example.com"}, Subject: fmt.Sprint(i), Text: "hello"}
					_ = mails.Send(t.Context(), clients.Call{Tenant: l.tenant}, message) // most are refused
				case "ai":
					post(t, providers.models.URL()+"/v1/chat/completions", l.tenant, "", prompt(1))
				case "payment":
					post(t, providers.stripe.URL()+"/v1/payment_intents", "stark", "", nil)
				}
			}
			rate, burst := l.rate, int64(1)
			if l.kind != "payment" { // a leaky bucket has no burst
				burst = limits.Queues[l.kind].Limits[0].Burst
			}
			var accepted []time.Time
			refused := 0
			for _, call := range providers.of(l.kind).Calls() {
				if l.tenant != "" && call.Tenant != l.tenant {
					continue
				}
				perSecond := demoLimit{rate: rate}.perSecond()
				with := append(accepted[:len(accepted):len(accepted)], call.At)
				within := law.Excess(with, perSecond, int(burst)) <= perSecond*tolerance.Seconds()+1e-6
				if within != call.Accepted {
					t.Errorf("call %d: accepted %v, and the limit %v with burst %d says %v", len(accepted)+refused, call.Accepted, rate, burst, within)
				}
				if call.Accepted {
					accepted = with
				} else {
					refused++
				}
			}
			t.Logf("%d calls accepted, %d refused", len(accepted), refused)
			if len(accepted) == 0 || refused == 0 {
				t.Error("calls of both sorts were to be judged")
			}
		})
	}

	// A call that needs the burst of tokens fits, and one that needs more than what can
	// come in the 5 ms besides does not.
	t.Run("ai tokens", func(t *testing.T) {
		burst := limits.Queues["ai"].Limits[1].Burst
		calls := providers.models.URL() + "/v1/chat/completions"
		asks := func(completion int64) []byte {
			return fmt.Appendf(nil, `{"model":"demo","max_tokens":%d,"messages":[{"role":"user","content":"Hi"}]}`, completion)
		}
		const promptTokens = 3 + 3 + 1 + 1 // as the sandbox counts it: for the call, its message, the role and the text
		most := int64(demoLimit{rate: aiTokens}.perSecond() * tolerance.Seconds())
		if status := post(t, calls, "more", "", asks(burst+most-promptTokens+1)); status != http.StatusTooManyRequests {
			t.Errorf("a call of %d tokens: %d", burst+most+1, status)
		}
		if status := post(t, calls, "burst", "", asks(burst-promptTokens)); status != http.StatusOK {
			t.Errorf("a call of %d tokens: %d", burst, status)
		}
	})

	// The queue never takes less for a prompt than its provider.
	t.Run("ai estimates", func(t *testing.T) {
		for _, tenant := range demoTenants {
			if tenant.kind != "ai" {
				continue
			}
			for more := range tenant.more + 1 {
				request := prompt(tenant.sentences + more)
				before := providers.models.AIStats()["estimates"]
				providers.models.SetLimit("estimates", sandbox.Limit{})
				providers.models.SetTokenLimit("estimates", sandbox.Limit{})
				if status := post(t, providers.models.URL()+"/v1/chat/completions", "estimates", "", request); status != http.StatusOK {
					t.Fatalf("%d", status)
				}
				after := providers.models.AIStats()["estimates"]
				took := after.Prompt - before.Prompt + 60 // of the answer it takes all that is asked for
				if estimate := request.Costs()["tokens"]; estimate < took {
					t.Errorf("%d sentences: an estimate of %d tokens, and the provider takes %d", tenant.sentences+more, estimate, took)
				}
			}
		}
	})
}
