// Package clients says what came of a call to a provider, in words that all
// providers share.
//
// A client (one folder below this one for each protocol) makes exactly one call
// and answers nil, or an error that says what to do next:
//
//   - [Throttled]: the provider wants fewer calls; no attempt is spent.
//   - [Exhausted]: the account can do nothing for now; no attempt is spent.
//   - [ParkUntil]: not this call before a known moment; no attempt is spent. [RepeatAt]
//     is the same for a failure that the client ends after some time.
//   - [Permanent]: never; the job is archived with the reason.
//   - [Unknown]: sent, but the answer never came; [Undecided]: and no repeat is safe.
//   - [Unavailable]: the provider failed, and not the call; an attempt is spent.
//   - [Retryable], and every other error: an attempt is spent.
//
// Callers ask for the behaviour (an error with RetryAfter() time.Duration, with
// Permanent() bool, …), not for these types; [Holds] does so in words. What a [Call]
// carries to every provider is here, too.
//
// What always holds: error texts are one short line that is fit for a log and
// holds no credentials; clients never repeat a call that may have arrived; all
// of them are safe for concurrent use.
package clients
