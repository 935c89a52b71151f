// Package httplimit limits HTTP: the requests that a server takes, and the calls
// that a client makes. Limits are those of package throttle, kept in Redis, so
// all processes count together; nothing else of Headgate is needed.
//
// # A server: Middleware
//
// A [Middleware] stands in front of an [http.Handler]. Each [Rule] is a limit
// and a [KeyFunc], which says whose requests share a bucket of it: [ByUser],
// [ByAPIKey], [ByIP], [ByRoute], [Everyone], or a func of your own.
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
// All rules are asked in one round trip. Either every limit admits the request
// and gives its permits, or it is refused and none gives any.
//
// Put it behind the authentication if it limits by user or API key: what nobody
// has checked is whatever the sender made up, and each invention has a full
// bucket. A rule by address in front of the authentication bounds the guessing.
// Behind proxies [ClientIP] has to know them; without that, all requests come
// from the proxy, and are limited as one.
//
// Every answer that was limited carries, whether it was let through or not:
//
//	RateLimit-Policy: "user";q=100;w=60, "address";q=300;w=60
//	RateLimit: "user";r=5;t=30
//	X-RateLimit-Limit: 100
//	X-RateLimit-Remaining: 5
//	X-RateLimit-Reset: 30
//
// RateLimit-Policy and RateLimit are those of
// draft-ietf-httpapi-ratelimit-headers-11. The policy lists the limits that
// applied: what each holds when full (q) and in how many seconds that comes back
// (w, rounded up; left out below a second and for months). RateLimit and
// X-RateLimit-* speak of one limit: the one that refused, or else the one with
// the fewest permits left. t and X-RateLimit-Reset are seconds from now, never a
// moment, so that clocks need not agree: until that limit is full again, or,
// refused, until the same request is admitted. A concurrency limit has neither:
// nobody can say when calls in flight will end. A limit's name may be any text;
// bytes other than printable ASCII, and '%', appear as %xx.
//
// What is not let through gets a problem+json document (RFC 9457), or what
// MiddlewareConfig.Refuse writes:
//
//   - 429 over a limit, of the draft's problem type quota-exceeded, with
//     Retry-After in whole seconds, rounded up, at least 1. It is 1 for a
//     concurrency limit, whose permits come back at any time.
//   - 413 when the request's cost is more than a limit ever admits. There is no
//     Retry-After, and it is no 429, because clients repeat those and this one
//     would never succeed.
//   - 401, or what else a [KeyError] says, when there is no key for the request.
//   - 503 with Retry-After when Redis gives no answer and OnFailure is
//     [FailClosed].
//   - 503 when the request's context ended first. The sender has mostly gone, and
//     neither OnFailure nor OnError is concerned.
//   - 500 when a [KeyFunc] failed; OnError is told why.
//
// OnFailure has no default: whether to go on without limits or without requests
// while Redis is away is a decision only you can make. A Redis that is slow is
// away after Timeout.
//
// A rule whose limit is a concurrency limit bounds the requests under way. The
// permit is held while the handler runs, and given back when it returns or
// panics, which is one more round trip, before the last bytes of a short answer
// are sent. If that fails the limit's lease ends it.
//
// # A client: Transport
//
// A [Transport] is an [http.RoundTripper], so it shapes the calls of any SDK that
// lets you choose its [http.Client]. It holds each call until its limits admit
// it, for MaxWait at most, and counts each request that is sent: also those that
// an SDK repeats, and each step of a redirect. It never repeats a call itself.
//
//	transport, err := httplimit.NewTransport(client, httplimit.TransportConfig{
//		Rules:     []httplimit.Rule{{Limit: limit}}, // a bucket for each host
//		OnFailure: httplimit.FailClosed,
//		MaxWait:   10 * time.Second,
//	})
//	...
//	sdk := provider.NewClient(key, provider.WithHTTPClient(&http.Client{Transport: transport}))
//
// A call that would have to wait longer ends in a [WaitError] at once, unsent;
// its RetryAfter says when to come back. [http.Client] wraps it, so look with
// [errors.As]. Turn the SDK's own retries off, or it may ask again at once.
//
// What the provider answers is read back into the bucket of the first rule with a
// rate, for all processes:
//
//   - 429 and 503 with Retry-After, in seconds or as a date, pause it for so long.
//   - RateLimit, RateLimit-Remaining, X-RateLimit-Remaining, OpenAI's
//     x-ratelimit-remaining-requests and -tokens, and Anthropic's
//     anthropic-ratelimit-*-remaining pause it, at 0, until their reset; of
//     several until the last one. A provider that fills up gradually would admit
//     a call earlier: what it calls a reset is when it is full.
//   - 429 that says nothing of this pauses it for a second.
//
// A pause is at most 24 hours. Dates are held against the answer's own Date
// header, so the provider's clock may be wrong. After a pause calls begin with
// one, and not with a burst. [throttle.Limiter.Resume] of a limiter with the
// same prefix and limits ends it early.
//
// A call that certainly was not sent gives its slot back: its context ended while
// it waited, or net/http's own transport found no connection for it. Whenever
// the provider may have seen it, it counts. The permit of a concurrency limit is
// held until the answer's body was read to its end or closed, so calls that
// stream are under way for as long as they stream.
//
// # Several programs, one limit
//
// What is limited is named by prefix, limit and key. Two programs that use the
// same ones share buckets, and so does a [throttle.Limiter] that was made with
// the prefix and the limits of all rules, in their order.
package httplimit
