//go:build !race

// With the race detector, the libraries of these providers would be compiled once more, and it would have nothing to see.

package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	openai "github.com/sashabaranov/go-openai"
	"github.com/stripe/stripe-go/v85"

	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/httplimit"
)

// Stripe's client with its own retries off: it would repeat a call that was held
// back at once, and Headgate's answer would be the same.
func ExampleTransport_stripe() {
	client, stop := connect() // redis.NewClient(...)
	defer stop()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"id": "cus_%s", "object": "customer"}`, r.FormValue("name"))
	}))
	defer provider.Close()

	transport, err := httplimit.NewTransport(client, httplimit.TransportConfig{
		Rules: []httplimit.Rule{{
			Limit: throttle.Limit{Name: "stripe", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(20)},
			Key:   httplimit.Everyone, // all of Stripe's hosts count together
		}},
		OnFailure: httplimit.FailClosed,
	})
	if err != nil {
		panic(err)
	}
	sc := stripe.NewClient("sk_test_example", stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		HTTPClient:        &http.Client{Transport: transport},
		MaxNetworkRetries: stripe.Int64(0),
		URL:               stripe.String(provider.URL), // leave this out
	})))

	begin := time.Now()
	for _, name := range []string{"ann", "bob", "eve"} {
		customer, err := sc.V1Customers.Create(context.Background(), &stripe.CustomerCreateParams{Name: stripe.String(name)})
		if err != nil {
			panic(err)
		}
		fmt.Println(customer.ID)
	}
	fmt.Println("at 20 a second, three calls take at least 100 ms:", time.Since(begin) >= 100*time.Millisecond)
	// Output:
	// cus_ann
	// cus_bob
	// cus_eve
	// at 20 a second, three calls take at least 100 ms: true
}

// OpenAI tells in each answer what is left, and Headgate holds further calls
// back, of all processes, before OpenAI has to refuse one.
func ExampleTransport_openAI() {
	client, stop := connect() // redis.NewClient(...)
	defer stop()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-ratelimit-remaining-tokens", "0")
		w.Header().Set("x-ratelimit-reset-tokens", "6m0s")
		fmt.Fprint(w, `{"choices": [{"message": {"role": "assistant", "content": "Hello!"}}]}`)
	}))
	defer provider.Close()

	transport, err := httplimit.NewTransport(client, httplimit.TransportConfig{
		Rules: []httplimit.Rule{{
			Limit: throttle.Limit{Name: "requests", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 500, Period: time.Minute}, Burst: 10},
		}},
		OnFailure: httplimit.FailClosed,
		MaxWait:   30 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	config := openai.DefaultConfig("sk-example")
	config.HTTPClient = &http.Client{Transport: transport}
	config.BaseURL = provider.URL // leave this out
	ai := openai.NewClientWithConfig(config)

	for range 2 {
		answer, err := ai.CreateChatCompletion(context.Background(), openai.ChatCompletionRequest{
			Model:    openai.GPT4oMini,
			Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: "Hi"}},
		})
		if late, ok := errors.AsType[*httplimit.WaitError](err); ok {
			fmt.Println("held back for", late.RetryAfter().Round(time.Minute))
			continue
		}
		if err != nil {
			panic(err)
		}
		fmt.Println(answer.Choices[0].Message.Content)
	}
	// Output:
	// Hello!
	// held back for 6m0s
}
