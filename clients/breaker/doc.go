// Package breaker answers when calls have failed so often that a provider is down.
//
// A [Breaker] counts the failures in a row of each provider in this process. The one
// that is too many is marked ([clients.Held]): the queue then holds back the account or
// the endpoint, for all workers, and lets one job try it after a time.
//
// What an outcome says of the provider:
//
//	unavailable, unknown             it is down
//	ok, throttled, parked,
//	exhausted                        it answers
//	retryable, permanent, not called,
//	the end of the worker, a panic   nothing
//
// Retryable and permanent answers (a conflict, greylisting, a wrong address) are about
// the one call.
//
// It is safe for concurrent use.
package breaker
