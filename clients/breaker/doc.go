// Package breaker detects providers that are down because calls to them keep failing.
//
// A [Breaker] counts the consecutive failures of each provider in this process. After too many
// it marks the failure ([clients.Held]): the queue then holds back the account or the endpoint,
// for all workers, and after some time lets one job try it.
//
// What an outcome says about the provider:
//
//	unavailable, unknown             it is down
//	ok, throttled, postponed,
//	exhausted                        it answers
//	retryable, permanent, not called,
//	worker shutdown, a panic         nothing
//
// Retryable and permanent answers (a conflict, greylisting, a wrong address) are about the
// call only.
//
// A Breaker is safe for concurrent use.
package breaker
