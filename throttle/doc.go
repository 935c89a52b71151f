// Package throttle answers one question: when may this call go?
//
// A [Limit] is a rule: a [Rate] and an [Algorithm], or a number of calls at a
// time. A [Limiter] holds one limit, or several to be taken together, and keeps
// their buckets in Redis, one for each key, so that all processes share them:
//
//	limiter, err := throttle.New(client, "", throttle.Limit{
//		Name: "user", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(10), Burst: 20,
//	})
//	...
//	d, err := limiter.Take(ctx, 1, "alice")
//	if err != nil {
//		// The answer is not known.
//	} else if !d.Allowed {
//		// Come back after d.RetryAfter.
//	}
//
// # How to ask
//
//   - [Limiter.Take] polices: now, or come back after RetryAfter.
//   - [Limiter.Reserve] shapes: a slot, and how long to wait for it; refused
//     where it lies too far away. [Reservation.Settle] corrects what it cost,
//     [Reservation.Cancel] gives it back, [Reservation.Release] ends it.
//   - [Limiter.Wait] reserves and sleeps until the slot.
//   - [Limiter.Peek] is what Take would say, and changes nothing.
//   - [Limiter.Pause] stops a bucket for a time, [Limiter.Resume] starts it.
//
// A call costs n permits of each limit with a rate; of a [Concurrency] limit it
// holds one, whatever it costs.
//
// # Which algorithm
//
//	Algorithm              admits                       in one period, at most  bytes per key
//	FixedWindow            Count in each window         2 × Count, at an edge   218
//	SlidingWindowLog       Count in any period          Count                   282 + 10 × Count
//	SlidingWindowCounter   what an estimate leaves      2 × Count, spread       218
//	TokenBucket            Burst, then the rate         Burst + Count - 1       138 to 394
//	LeakyBucket, Take      Capacity, then the rate      Capacity + Count - 1    138 to 394
//	LeakyBucket, Reserve   one permit per interval      Count                   250 to 394
//	Concurrency            so many calls at a time      has no period           some 130 × calls
//
// In doubt take a token bucket. Take a leaky bucket and Reserve for calls that
// should go out evenly; a log where not one too many will do, and numbers are
// small; a fixed window where the other side counts by the hour or the calendar
// (Location). docs/limits.md has the definitions, plots, and where each number
// comes from.
//
// # What always holds
//
//   - Permits are taken of all limits at one moment, or of none.
//   - A refusal is a [Decision] and no error. It names the limit that the call
//     waits for, and after RetryAfter the same call is admitted if nobody else
//     comes first, nor renews a permit of a concurrency limit. It writes nothing,
//     but where it is the first to see a changed limit or a clock that was set
//     back.
//   - Numbers are exact integers, and rounded against the caller where they have
//     to be: moments up to the next µs, permits down. The estimate of a sliding
//     window counter alone is rounded down, or it could not sustain its rate.
//   - The clock is Redis's. The processes' clocks need not agree; they only say
//     how long a caller sleeps, and in which calendar windows to look.
//   - No call is sent twice, whatever the client's MaxRetries.
//   - A changed limit keeps what was used under the old one.
//   - A bucket's key expires by itself, 2 s after its bucket is full.
//
// Limiters never sleep but in Wait, and start no goroutine that outlives the
// reservations it renews, or the round trip it waits for. All types are safe for
// concurrent use.
//
// # When something fails
//
// An error means that the answer is not known; whether to go then is the
// caller's decision. Calls that run into a silent Redis are ended by their
// context or by the client's own timeouts, and what they asked for may have been
// taken. A replica is an error. Where memory is full, decisions go on. Buckets
// that a failover lost, or that were evicted, start full: use noeviction. A
// clock that is set back costs waiting and gives nothing; one that is set
// forward gives at most what a bucket holds. Redis 7.0 or later is needed.
//
// # Hot keys
//
// Concurrent calls of one limiter share round trips by themselves; nothing needs
// to be set for it. For a key that is hotter than one Redis can serve,
// [Limit].Shards splits its bucket, and [Blocks] takes permits a block at a
// time; both say what they cost.
//
// Package [github.com/headgate/headgate/throttle/httplimit] limits HTTP servers and
// clients.
package throttle
