// Package throttle decides when an outbound call may go.
//
// A [Limit] is a rule: a [Rate] and an [Algorithm]. A [Limiter] holds one limit
// or several to be taken together, and keeps their buckets in Redis, so that
// all processes share them. It answers in one round trip:
//
//   - [Limiter.Take] polices: go now, or come back after RetryAfter.
//   - [Limiter.Reserve] shapes: the call is given a slot, and how long to wait
//     for it; it is refused only when the slot lies too far away.
//
// What always holds: permits are taken from all limits at one moment, or from
// none; a refusal names the limit that binds and writes nothing, but for the
// first one after a rate was changed or the clock set back; the clock is Redis's;
// numbers are exact integers and are never rounded in the caller's favour; a
// bucket's key expires by itself once its bucket is full again.
//
// Limiters never sleep: waiting is the caller's choice. All of them are safe
// for concurrent use. Redis 7.0 or later is needed.
package throttle
