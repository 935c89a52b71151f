package throttle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
)

// Algorithm says how a limit spreads its rate over time. The package
// documentation compares them.
type Algorithm string

const (
	// TokenBucket admits a burst of up to Burst permits at once and its rate
	// in the long run: never more than Burst + Rate × t in any time t.
	TokenBucket Algorithm = "token_bucket"

	// LeakyBucket shapes with Reserve and in a queue: one permit per interval
	// and never a burst, with up to Capacity waiting. With Take it polices, as a
	// meter: a bucket that drains at the rate, and level + n <= Capacity.
	LeakyBucket Algorithm = "leaky_bucket"

	// FixedWindow admits Rate.Count in each window. Windows are aligned to the
	// epoch, or to the calendar of Location. Around the edge of two windows up
	// to twice the count may go.
	FixedWindow Algorithm = "fixed_window"

	// SlidingWindowLog admits Rate.Count in any Rate.Period, exactly: in every
	// (t - Period, t]. It remembers the moment of every permit, up to 10,000.
	SlidingWindowLog Algorithm = "sliding_window_log"

	// SlidingWindowCounter admits what a weighted estimate leaves room for: the
	// count of the window before, times the part of it that still lies within
	// Rate.Period and rounded down, and the count of this window are never more
	// than Rate.Count. Windows are aligned to the epoch.
	SlidingWindowCounter Algorithm = "sliding_window_counter"

	// Concurrency admits up to Limit.Concurrency calls at a time, whatever they
	// cost. It has no rate. See [Reservation].
	Concurrency Algorithm = "concurrency"
)

var algorithms = []Algorithm{TokenBucket, LeakyBucket, FixedWindow, SlidingWindowLog, SlidingWindowCounter, Concurrency}

const (
	// maxLogged bounds the memory of a log, 10 bytes for a permit, and the time
	// one call may keep Redis busy.
	maxLogged = 10_000

	maxConcurrency = 100_000

	// DefaultLease is how long a permit of a concurrency limit outlives a
	// process that died with it.
	DefaultLease = 30 * time.Second
)

// Limit is a rule for the calls of one key. The zero Limit is none: Name,
// Algorithm, and Rate or Concurrency are required. [New] checks it.
type Limit struct {
	// Name tells limits apart, in answers and in Redis: 1 to 64 bytes. Changing
	// it starts anew.
	Name string

	// Algorithm has no default.
	Algorithm Algorithm

	// Rate is required, but for Concurrency, which has none.
	Rate Rate

	// Burst is how many permits a full token bucket holds; 0 means 1.
	// It must be 0 for the other algorithms.
	Burst int64

	// Capacity bounds a leaky bucket, in permits: with Take what it holds
	// (0 means 1), with Reserve how many may wait (0: bounded by time alone).
	// It must be 0 for the other algorithms.
	Capacity int64

	// Location puts the windows of FixedWindow on its calendar: the rate is
	// then per day, week (from Monday) or month. nil: windows of
	// Rate.Period, aligned to the Unix epoch. It must be nil for the others.
	Location *time.Location

	// Concurrency is how many calls may be under way at once, 1 to
	// 100,000. It must be 0 for the other algorithms.
	Concurrency int64

	// Lease is how long a permit of Concurrency lives without being renewed, 1 s
	// to a day; 0 means [DefaultLease]. It must be 0 for the other algorithms.
	Lease time.Duration

	// Shards splits the bucket of a key over that many Redis keys, for one that is
	// hotter than a node of a cluster can serve: 0 to 64, 0 means 1. No more goes
	// than without; but a call may be refused while parts that it did not ask have
	// permits, and none can cost more than its part holds. A LeakyBucket cannot be
	// split, nor a limit beside others. docs/limits.md has the numbers.
	Shards int
}

// Validate reports everything that makes the limit unusable, one problem per
// line, or nil.
func (l Limit) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if l.Name == "" {
		wrong("name: a limit needs one")
	}
	if len(l.Name) > 64 {
		wrong("name: longer than 64 bytes")
	}
	var rateErr error
	switch {
	case l.Algorithm == "":
		wrong("algorithm: a limit needs one: %s", listed(algorithms))
	case !slices.Contains(algorithms, l.Algorithm):
		wrong("algorithm: %q is none of %s", clip(string(l.Algorithm)), listed(algorithms))
	}
	if l.Algorithm != Concurrency {
		if rateErr = l.Rate.Validate(); rateErr != nil {
			wrong("rate: %w", rateErr)
		}
	} else if l.Rate != (Rate{}) {
		wrong("rate: a %s has none", Concurrency)
	}
	only := func(algorithm Algorithm, field string, value int64) {
		switch {
		case value < 0:
			wrong("%s: %d is negative", field, value)
		case value > 0 && l.Algorithm != algorithm:
			wrong("%s: only a %s has one", field, algorithm)
		}
	}
	only(TokenBucket, "burst", l.Burst)
	only(LeakyBucket, "capacity", l.Capacity)
	if l.Concurrency > 0 && l.Algorithm != Concurrency {
		wrong("concurrency: a limit has a rate or a concurrency, not both")
	} else {
		only(Concurrency, "concurrency", l.Concurrency)
	}
	only(Concurrency, "lease", int64(l.Lease))
	if l.Location != nil && l.Algorithm != FixedWindow {
		wrong("timezone: only a %s has one", FixedWindow)
	}
	if l.Rate.Months != 0 && l.Algorithm != FixedWindow {
		wrong("rate: months differ in length, so only a %s with a timezone counts by them", FixedWindow)
		rateErr = errors.New("said")
	}
	if rateErr == nil {
		if problem := l.unusable(); problem != "" {
			wrong("%s", problem)
		}
	}
	switch {
	case l.Shards < 0 || l.Shards > maxShards:
		wrong("shards: %d is not within 0 to %d", l.Shards, maxShards)
	case l.Shards > 1 && l.Algorithm == LeakyBucket:
		wrong("shards: a %s lets calls go one by one, which its shards would do side by side", LeakyBucket)
	case l.Shards > 1 && len(errs) == 0:
		if whole := l.whole().quota(false); int64(l.Shards) > whole {
			wrong("shards: %d shards for %d permits leave some without any", l.Shards, whole)
		} else if err := l.shard(l.Shards - 1).Validate(); err != nil {
			wrong("shards: each of %d: %w", l.Shards, err)
		}
	}
	return errors.Join(errs...)
}

// unusable says what is wrong with a limit whose rate is right by itself.
func (l Limit) unusable() string {
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		if full := max(l.Burst, l.Capacity, 1); !l.Rate.fits(full) {
			return fmt.Sprintf("burst or capacity: %d permits at %v cannot be counted exactly; use fewer or a shorter period", full, l.Rate)
		}
	case FixedWindow:
		switch {
		case l.Location == nil && l.Rate.Months != 0:
			return "timezone: windows of a month need one, such as Europe/Berlin or UTC"
		case l.Location != nil && l.Rate.Months == 0 && l.Rate.Period != day && l.Rate.Period != 7*day:
			return "rate: calendar windows are per day, week or month"
		case l.Rate.Count >= exact/2:
			return fmt.Sprintf("rate: %d permits cannot be counted exactly", l.Rate.Count)
		}
	case SlidingWindowCounter:
		if l.Rate.Count >= exact/1024 {
			return fmt.Sprintf("rate: %d permits cannot be weighed exactly", l.Rate.Count)
		}
	case SlidingWindowLog:
		if l.Rate.Count > maxLogged {
			return fmt.Sprintf("rate: a log of %d permits is more than %d; use a %s", l.Rate.Count, maxLogged, SlidingWindowCounter)
		}
	case Concurrency:
		switch {
		case l.Concurrency < 1 || l.Concurrency > maxConcurrency:
			return fmt.Sprintf("concurrency: %d is not within 1 to %d", l.Concurrency, maxConcurrency)
		case l.Lease != 0 && (l.Lease < time.Second || l.Lease > day):
			return fmt.Sprintf("lease: %v is not within 1s to 24h", l.Lease)
		}
	}
	return ""
}

func listed(algorithms []Algorithm) string {
	names := make([]string, len(algorithms))
	for i, algorithm := range algorithms {
		names[i] = string(algorithm)
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// maxCost is the largest cost that one call may have, in permits, when it is
// reserved (shaping) or taken; 0 means that any will do. Of a limit with shards
// it is what the smallest of them holds.
func (l Limit) maxCost(shaping bool) int64 {
	if l.Shards > 1 {
		l = l.shard(l.Shards - 1)
	}
	return l.lua().MaxCost(shaping)
}

// Quota is how many permits a bucket of the limit holds when nothing was taken, as
// [Decision] reports it: of a valid limit at least 1, and of one with shards what the
// smallest of them holds.
func (l Limit) Quota() int64 { return l.quota(false) }

// quota is Quota; of a leaky bucket that shapes, how many permits may wait.
func (l Limit) quota(shaping bool) int64 {
	if l.Algorithm == Concurrency {
		return l.Concurrency
	}
	return max(l.maxCost(shaping), 1)
}

// lua is the limit as scripts need it.
func (l Limit) lua() limitlua.Limit {
	return limitlua.Limit{
		Algorithm: string(l.Algorithm), Count: l.Rate.Count, Period: l.Rate.Period, Months: l.Rate.Months, Location: l.Location,
		Burst: l.Burst, Capacity: l.Capacity, Concurrency: l.Concurrency, Lease: l.Lease,
	}
}
