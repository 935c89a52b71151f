// Package sandbox simulates providers: servers on loopback that accept calls and enforce their
// own limits, for tests, demos and development.
//
// [HTTP], [SMTP], [SES], [Resend], [Stripe] and [AI] are a [Provider] with a protocol. A provider
// admits a call if the [Limit] of its tenant and that of the account allow it, and otherwise
// refuses it like a real one. It fails on demand and keeps a log of calls and their times.
//
// Guarantee: for any two admitted calls i ≤ j
//
//	count(i..j) ≤ burst + rate × (t_j − t_i + tolerance)
//
// exactly, and at a constant cost per call. A refused call uses no permits. The limits are
// implemented independently in this package, so that it can verify any limiter. Times are
// monotonic. Everything is safe for concurrent use.
package sandbox
