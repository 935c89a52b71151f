// Package clients defines the outcomes of calls to providers, for all providers.
//
// A client (one package below this one for each protocol) makes exactly one call and returns
// nil, or an error that says what to do next:
//
//   - [Throttled]: the provider wants fewer calls. No attempt is spent.
//   - [Exhausted]: the account is used up for now. [KeyRefused]: its key is not valid. No attempt
//     is spent.
//   - [PostponeUntil]: this call must wait until a known time. No attempt is spent. [RepeatAt]
//     is the same for a failure that the client ends after some time.
//   - [Permanent]: the call can never succeed. The job is archived with the reason.
//   - [Unknown]: the call was sent, but no answer came. [Undecided]: and no repeat is safe.
//   - [Unavailable]: the provider failed, not the call. An attempt is spent.
//   - [Retryable], and every other error: an attempt is spent.
//
// Callers check for behaviour (an error with RetryAfter() time.Duration, with
// Permanent() bool, …), not for these types. [Call] is what every call tells its provider.
//
// Error texts are one short line that can be logged and has no credentials. Clients never
// repeat a call that may have arrived. All clients are safe for concurrent use.
package clients
