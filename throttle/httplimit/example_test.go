package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/httplimit"
)

// connect is redis.NewClient, with a Redis that these examples bring along.
func connect() (*redis.Client, func()) {
	server, err := embedded.Start(embedded.Options{})
	if err != nil {
		panic(err)
	}
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		panic(err)
	}
	client := redis.NewClient(options)
	return client, func() {
		_ = client.Close()
		server.Close()
	}
}

// Three limits at once: each user 100 requests a minute, each address 300,
// whoever uses it, and each route 1000 a second over all users. One round trip
// asks all of them, and a request that one refuses takes nothing of the others.
func ExampleMiddleware() {
	client, stop := connect() // redis.NewClient(...)
	defer stop()

	mux := http.NewServeMux()
	mux.HandleFunc("GET /reports/{id}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "here it is")
	})
	type userKey struct{} // under which your authentication puts the user

	limits, err := httplimit.NewMiddleware(client, httplimit.MiddlewareConfig{
		Rules: []httplimit.Rule{
			{
				Limit: throttle.Limit{Name: "user", Algorithm: throttle.SlidingWindowCounter, Rate: throttle.Rate{Count: 2, Period: time.Hour}},
				Key: httplimit.ByUser(func(r *http.Request) string {
					user, _ := r.Context().Value(userKey{}).(string)
					return user
				}),
			},
			{
				Limit: throttle.Limit{Name: "address", Algorithm: throttle.SlidingWindowCounter, Rate: throttle.Rate{Count: 300, Period: time.Minute}},
				Key: httplimit.ByIP(httplimit.ClientIP{
					Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, // our load balancers
				}),
			},
			{
				Limit: throttle.Limit{Name: "route", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1000), Burst: 1000},
				Key:   httplimit.ByRoute(mux),
			},
		},
		OnFailure: httplimit.FailOpen,
	})
	if err != nil {
		panic(err)
	}
	handler := limits.Wrap(mux) // inside of the authentication

	for range 3 {
		r := httptest.NewRequest("GET", "/reports/7", nil)
		r = r.WithContext(context.WithValue(r.Context(), userKey{}, "ann"))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, "remaining:", w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 remaining: 1
	// 200 remaining: 0
	// 429 remaining: 0
}

// Any client that lets you choose its http.Client can be shaped.
func ExampleTransport() {
	client, stop := connect() // redis.NewClient(...)
	defer stop()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", `"daily";r=0;t=3600`) // this call was today's last
	}))
	defer provider.Close()

	transport, err := httplimit.NewTransport(client, httplimit.TransportConfig{
		Rules: []httplimit.Rule{{
			Limit: throttle.Limit{Name: "host", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(20)},
		}},
		OnFailure: httplimit.FailClosed,
		MaxWait:   10 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	calls := &http.Client{Transport: transport}

	resp, err := calls.Get(provider.URL)
	if err != nil {
		panic(err)
	}
	_ = resp.Body.Close()
	fmt.Println(resp.Status)

	_, err = calls.Get(provider.URL)
	if late, ok := errors.AsType[*httplimit.WaitError](err); ok {
		fmt.Println("not sent; come back in", late.RetryAfter().Round(time.Hour))
	}
	// Output:
	// 200 OK
	// not sent; come back in 1h0m0s
}
