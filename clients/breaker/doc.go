// Package breaker answers whether a provider is worth calling just now.
//
// A [Breaker] watches what becomes of calls. When a number of them in a row show
// that the provider is down, later calls end at once, without an attempt spent,
// until it is time to try again; then one call goes first, and its answer
// decides. [Guard] and [GuardResult] put it in front of a client's Send.
//
// What an outcome says of the provider:
//
//	unknown, retryable, any other error    it is down
//	ok, throttled, parked                  it answers
//	permanent, the end of the worker,      nothing
//	a panic, a refusal of a breaker
//
// A permanent failure says nothing because most of them are found before
// anything is sent.
//
// What always holds: a breaker has a circuit for each key (a provider, a host)
// and none stands in for another; it makes no calls and starts no goroutines of
// its own; it knows this process alone. All of it is safe for concurrent use.
package breaker
