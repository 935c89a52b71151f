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
//		// Try again after d.RetryAfter.
//	}
//
// # How to ask
//
//   - [Limiter.Take] polices: the call goes now, or is refused and told when to
//     try again. It suits servers.
//   - [Limiter.Reserve] shapes: the call gets a slot in the near future and the
//     delay until then. [Reservation.Settle] corrects what the call cost,
//     [Reservation.Cancel] gives its permits back, [Reservation.Release] ends it.
//   - [Limiter.Wait] reserves a slot and sleeps until then. It suits clients.
//   - [Limiter.Peek] and [Limiter.PeekReserve] return what Take and Reserve would
//     return, and take nothing.
//   - [Limiter.Pause] stops a bucket for a time, [Limiter.Resume] ends the pause.
//   - [Limiter.Only] asks some of a limiter's limits.
//
// A call takes n permits of each limit with a rate. Of a [Concurrency] limit it
// holds one permit, whatever n is.
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
// When in doubt, use a token bucket. Use a leaky bucket with Reserve for calls that
// should go out evenly, a log where a single call too many matters and counts are
// small, and a fixed window where the other side counts by the hour or the calendar
// (Location). docs/limits.md has the definitions, plots, and the source of each
// number.
//
// # What always holds
//
//   - Permits are taken from all limits at one moment, or from none.
//   - A refusal is a [Decision], not an error. It names the limit that refused.
//     After RetryAfter the same call is admitted, unless another call comes first
//     or a permit of a concurrency limit is renewed. A refusal writes nothing,
//     unless it is the first call to see a changed limit or a clock that was set
//     back.
//   - Numbers are exact integers. Where they must be rounded, they are rounded
//     against the caller: moments up to the next µs, permits down. The estimate of
//     a sliding window counter is the exception: it is rounded down, because the
//     limit could not sustain its rate otherwise.
//   - The clock is that of Redis. The clocks of processes need not agree: they
//     measure only how long a caller sleeps, and select the calendar windows.
//   - A script is never sent twice, whatever the client's MaxRetries.
//   - A changed limit keeps what was used under the old one.
//   - A bucket's key expires 2 s after the bucket is full.
//
// Only Wait sleeps. A limiter starts no goroutine that outlives the reservations
// it renews or the round trip it waits for. All types are safe for concurrent use.
//
// # When something fails
//
// An error means that the answer is not known, and the caller decides whether to
// go. If Redis does not answer, calls end with their context or with the client's
// timeouts, and what they asked for may have been taken. Asking a replica is an
// error. If the memory of Redis is full, decisions still work. Buckets that were
// lost in a failover or evicted start full, so use noeviction. A clock of Redis
// that is set back makes callers wait longer; one that is set forward gives at most
// what a bucket holds. Redis 7.0 or later is required.
//
// # Hot keys
//
// Concurrent calls of one limiter share round trips without any setting. A call that was
// refused is refused again without a question until it can be admitted, as long as no
// process reserves from that bucket; for windows and logs that is a call of one permit, and
// for concurrency limits none, for a permit may come back at any time. For a key
// that is hotter than one Redis can serve, Shards of [Limit] splits its bucket, and
// [Blocks] takes permits a block at a time. Both document what they cost.
//
// Package [github.com/headgate/headgate/throttle/httplimit] limits HTTP servers and
// clients.
package throttle
