// Package httplimit limits the requests that an HTTP server accepts and the calls that an
// HTTP client makes. It uses the limits of package throttle, which are kept in Redis and
// so shared by all processes. Nothing else of Headgate is needed.
//
// # A server: Middleware
//
// A [Middleware] wraps an [http.Handler]. Each [Rule] is a limit and a [KeyFunc], which
// says which requests share a bucket of it: [ByUser], [ByAPIKey], [ByIP], [ByRoute],
// [Everyone], or your own func.
//
//	limits, err := httplimit.NewMiddleware(client, httplimit.MiddlewareConfig{
//		Rules: []httplimit.Rule{
//			{Limit: perUser, Key: httplimit.ByUser(userOf)},
//			{Limit: perAddress, Key: httplimit.ByIP(httplimit.ClientIP{})},
//		},
//		OnFailure: httplimit.FailOpen,
//	})
//	...
//	http.ListenAndServe(addr, limits.Wrap(mux))
//
// All rules are asked in one round trip. Permits are taken from all limits, or the
// request is refused and nothing is taken.
//
// A rule can have a limit for each plan that you sell: Tiers of [Rule], and Tier, which
// says what plan a request has. Who changes the plan keeps what was used.
//
// Put the middleware behind the authentication if it limits by user or API key: senders
// can invent keys that were not checked, and each has a full bucket. A rule by address in
// front of the authentication limits guessing. Behind proxies, tell [ClientIP] their
// addresses; otherwise all requests come from the proxy and share a bucket.
//
// Each response to a request with limits has these headers, whether the request was let
// through or not:
//
//	RateLimit-Policy: "user";q=100;w=60, "address";q=300;w=60
//	RateLimit: "user";r=5;t=30
//	X-RateLimit-Limit: 100
//	X-RateLimit-Remaining: 5
//	X-RateLimit-Reset: 30
//
// RateLimit-Policy and RateLimit are those of
// draft-ietf-httpapi-ratelimit-headers-11. The policy lists the limits that applied: what
// each holds when full (q), and in how many seconds that comes back (w, rounded up;
// omitted below a second and for months). RateLimit and X-RateLimit-* describe one limit:
// the one that refused or, if none did, the one with the fewest permits left. t and
// X-RateLimit-Reset are seconds from now, so that clocks need not agree: until that limit
// is full again or, after a refusal, until the same request is admitted. A concurrency
// limit has neither, because it is unknown when calls in flight end. For a
// limit with shards, q and X-RateLimit-Limit are those of the whole limit, and what remains is
// that of the shard that answered. A limit's name may be any text: bytes other than printable ASCII, and '%', appear as %xx.
//
// A request that is not let through gets a problem+json document (RFC 9457), or what
// Refuse of [MiddlewareConfig] writes:
//
//   - 429 over a limit, of the draft's problem type quota-exceeded, with
//     Retry-After in whole seconds, rounded up, at least 1. It is 1 for a
//     concurrency limit, whose permits come back at any time.
//   - 413 if the request costs more than a limit ever admits. It is not a 429 and has
//     no Retry-After, because clients repeat a 429 and this request never succeeds.
//   - 401, or the status of a [KeyError], if there is no key for the request.
//   - 503 with Retry-After if Redis does not answer and OnFailure is [FailClosed].
//   - 503 if the context of the request ended first. Usually the sender has gone.
//     OnFailure does not apply, and OnError is not called.
//   - 500 if a [KeyFunc] failed. OnError gets its error.
//
// OnFailure has no default: only you can decide whether requests go without limits or
// not at all while Redis fails. A Redis that does not answer within Timeout has failed.
//
// A concurrency limit bounds the requests in flight. The permit is held while the handler
// runs. It is given back when the handler returns or panics, in one more round trip
// before the last bytes of a short response are sent. If that fails, the permit lapses
// after the limit's lease.
//
// # A client: Transport
//
// A [Transport] is an [http.RoundTripper], so it shapes the calls of any SDK that accepts
// an [http.Client]. It delays each call until its limits admit it, for at most MaxWait.
// Each request that is sent counts, including the retries of an SDK and each step of a
// redirect. A Transport never repeats a call itself.
//
//	transport, err := httplimit.NewTransport(client, httplimit.TransportConfig{
//		Rules:     []httplimit.Rule{{Limit: limit}}, // a bucket for each host
//		OnFailure: httplimit.FailClosed,
//		MaxWait:   10 * time.Second,
//	})
//	...
//	sdk := provider.NewClient(key, provider.WithHTTPClient(&http.Client{Transport: transport}))
//
// A call that would have to wait longer is not sent and ends in a [WaitError] at once; its
// RetryAfter says when to try again. [http.Client] wraps the error, so use [errors.As].
// Turn the retries of the SDK off, or it may try again at once.
//
// The answers of the provider pause the bucket of the first rule with a rate, for all
// processes:
//
//   - 429 and 503 with Retry-After, in seconds or as a date, pause it for so long.
//   - RateLimit, RateLimit-Remaining, X-RateLimit-Remaining, OpenAI's
//     x-ratelimit-remaining-requests and -tokens, and Anthropic's
//     anthropic-ratelimit-*-remaining pause it when they are 0, until the latest of
//     their resets. A provider whose limit refills gradually would admit a call
//     earlier, because its reset is the time at which the limit is full.
//   - 429 without any of these pauses it for a second.
//
// A pause is at most 24 hours. Dates are compared with the Date header of the answer, so
// the provider's clock may be wrong. After a pause calls start with a single one instead
// of a burst. To end a pause early, call [throttle.Limiter.Resume] of a limiter with the
// same prefix and limits.
//
// A call that certainly was not sent gives its slot back: its context ended while it
// waited, or the transport of net/http had no connection for it. If the provider may
// have received the call, it counts. The permit of a concurrency limit is held until the
// response body was read to its end or closed, so a call that streams is in flight for as
// long as it streams.
//
// # Several programs, one limit
//
// A bucket is identified by prefix, limit and key. Programs that use the same ones share
// buckets, and so does a [throttle.Limiter] that was made with the prefix and the limits
// of all rules.
package httplimit
