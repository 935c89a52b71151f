// Package sandbox plays the providers: servers on loopback that take calls and
// police their own limits, for tests, demos and development.
//
// [HTTP], [SMTP], [SES], [Resend], [Stripe] and [AI] are a [Provider] behind a
// protocol. A provider admits a call when its tenant's [Limit] and the account's
// allow it, refuses it otherwise as real ones do, fails on demand, and keeps a log
// of what arrived and when.
//
// What always holds: with the calls it admitted, every window obeys
//
//	count(i..j) ≤ burst + rate × (t_j − t_i + tolerance)
//
// for any two of them i ≤ j, exactly, and at a fixed cost per call; a refused
// call uses up nothing. The limits are judged by this package alone, so that it
// can bear witness for or against any limiter. Times are monotonic. Everything
// is safe for concurrent use.
package sandbox
