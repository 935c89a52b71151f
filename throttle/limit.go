package throttle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/limitlua"
)

// Algorithm says how a limit spreads its rate over time. The package
// documentation compares them.
type Algorithm string

const (
	// TokenBucket admits a burst of up to Burst permits at once and its rate
	// in the long run: never more than Burst + Rate × t in any time t.
	TokenBucket Algorithm = "token_bucket"

	// LeakyBucket shapes with Reserve and in a queue: it admits one permit per
	// interval and never a burst, and up to Capacity permits wait. With Take it
	// polices as a meter: the bucket drains at the rate, and level + n <= Capacity.
	LeakyBucket Algorithm = "leaky_bucket"

	// FixedWindow admits Rate.Count in each window. Windows are aligned to the
	// Unix epoch, or to the calendar of Location. Around the edge of two windows
	// up to twice the count may go.
	FixedWindow Algorithm = "fixed_window"

	// SlidingWindowLog admits exactly Rate.Count in any Rate.Period, that is in
	// every (t - Period, t]. It stores the moment of each permit: Rate.Count is at most
	// 10,000, and with what was reserved for later there are at most 20,000.
	SlidingWindowLog Algorithm = "sliding_window_log"

	// SlidingWindowCounter admits what a weighted estimate leaves room for. The
	// estimate is the count of this window plus that of the window before, weighted
	// by the part of it that still lies within Rate.Period and rounded down; it is
	// never more than Rate.Count. Windows are aligned to the Unix epoch.
	SlidingWindowCounter Algorithm = "sliding_window_counter"

	// Concurrency admits up to Limit.Concurrency calls at a time, whatever they
	// cost. It has no rate. [Reservation] describes how permits are held.
	Concurrency Algorithm = "concurrency"
)

var algorithms = []Algorithm{TokenBucket, LeakyBucket, FixedWindow, SlidingWindowLog, SlidingWindowCounter, Concurrency}

const (
	// maxLogged bounds the memory of a log, 10 bytes for a permit, and the time
	// for which one call keeps Redis busy.
	maxLogged = 10_000

	maxConcurrency = 100_000

	// DefaultLease is how long a permit of a concurrency limit is kept after the
	// process that held it died.
	DefaultLease = 30 * time.Second
)

// Limit is a rule for the calls of one key. The zero Limit is not valid: Name,
// Algorithm, and either Rate or Concurrency are required. [New] validates limits.
type Limit struct {
	// Name identifies the limit in answers and in Redis: 1 to 64 bytes of UTF-8. A limit
	// with another name has new buckets.
	Name string

	// Algorithm is required; there is no default.
	Algorithm Algorithm

	// Rate is required for all algorithms but Concurrency, where it must be zero.
	Rate Rate

	// Burst is how many permits a full token bucket holds; 0 means 1.
	// It must be 0 for the other algorithms.
	Burst int64

	// Capacity bounds a leaky bucket, in permits. With Take it is what the bucket
	// holds, and 0 means 1. With Reserve it is how many permits may wait, and 0
	// means that only their delay is bounded. It must be 0 for the other algorithms.
	Capacity int64

	// Location aligns the windows of FixedWindow to the calendar of a time zone;
	// the rate is then per day, week (from Monday) or month. nil means windows of
	// Rate.Period that are aligned to the Unix epoch. It must be nil for the other
	// algorithms.
	Location *time.Location

	// Concurrency is how many calls may be in flight at once, 1 to 100,000. It must
	// be 0 for the other algorithms.
	Concurrency int64

	// Lease is how long a permit of Concurrency is kept without being renewed, 1 s
	// to 24 h; 0 means [DefaultLease]. It must be 0 for the other algorithms.
	Lease time.Duration

	// Shards splits the bucket of a key over that many Redis keys, for a key that is
	// hotter than a node of a cluster can serve: 0 to 64, and 0 means 1. The limit
	// holds as before, but a call may be refused while shards that it did not ask
	// have permits, and no call can cost more than a shard holds. On a single Redis
	// shards only cost time: a refusal asks two of them, and concurrent calls share
	// fewer round trips. A LeakyBucket and a SlidingWindowCounter cannot be split, nor can one of
	// several limits of a limiter.
	// docs/limits.md has the numbers.
	Shards int
}

// FieldError reports a field that is not valid, of a [Limit] or a [Rate].
type FieldError struct {
	Limit  string // which argument of [New] it is of, such as `limit 2 "user"`; "" of other funcs
	Field  string // as in a limits file, such as "burst"
	Reason string // what is wrong with it, and what to write instead
}

// Error is one line with all fields.
func (e *FieldError) Error() string {
	if e.Limit != "" {
		return "throttle: " + e.Limit + ": " + e.Field + ": " + e.Reason
	}
	return "throttle: " + e.Field + ": " + e.Reason
}

// Validate returns a [FieldError] for everything that is wrong with the limit, joined, or
// nil if the limit is valid.
func (l Limit) Validate() error {
	var errs []error
	for _, wrong := range l.faults() {
		errs = append(errs, wrong)
	}
	return errors.Join(errs...)
}

// faults returns everything that is wrong with the limit. Of a limit without a known
// algorithm nothing else can be said, because fields depend on it.
func (l Limit) faults() (all []*FieldError) {
	wrong := func(field, format string, args ...any) {
		all = append(all, &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if l.Name == "" {
		wrong("name", "required")
	}
	if len(l.Name) > 64 {
		wrong("name", "must be at most 64 bytes")
	}
	if !utf8.ValidString(l.Name) {
		wrong("name", "must be valid UTF-8, because it is a label of metrics; encode it, or use ASCII")
	}
	switch {
	case l.Algorithm == "":
		wrong("algorithm", "required: %s", listed(algorithms))
		return all
	case !slices.Contains(algorithms, l.Algorithm):
		wrong("algorithm", "%q must be %s", clip(string(l.Algorithm)), listed(algorithms))
		return all
	}
	rate := ""
	if l.Algorithm != Concurrency {
		if rate = l.Rate.fault(); rate != "" {
			wrong("rate", "%s", rate)
		}
	} else if l.Rate != (Rate{}) {
		wrong("rate", "a %s has none", Concurrency)
	}
	only := func(algorithm Algorithm, field string, value int64) {
		switch {
		case value < 0:
			wrong(field, "%d must not be negative", value)
		case value > 0 && l.Algorithm != algorithm:
			wrong(field, "only a %s has one", algorithm)
		}
	}
	if l.Burst > 0 && l.Algorithm == LeakyBucket {
		wrong("burst", "only a %s has one; a %s has a capacity", TokenBucket, LeakyBucket)
	} else {
		only(TokenBucket, "burst", l.Burst)
	}
	only(LeakyBucket, "capacity", l.Capacity)
	if l.Concurrency > 0 && l.Algorithm != Concurrency {
		wrong("concurrency", "a limit has a rate or a concurrency, not both")
	} else {
		only(Concurrency, "concurrency", l.Concurrency)
	}
	only(Concurrency, "lease", int64(l.Lease))
	if l.Location != nil && l.Algorithm != FixedWindow {
		wrong("timezone", "only a %s has one", FixedWindow)
	}
	if rate == "" {
		if l.Rate.Months != 0 && l.Algorithm != FixedWindow {
			wrong("rate", "months differ in length, so only a %s with a timezone counts by them", FixedWindow)
		} else if fault := l.unusable(); fault != nil {
			all = append(all, fault)
		}
	}
	switch {
	case l.Shards < 0 || l.Shards > maxShards:
		wrong("shards", "%d must be 0 to %d", l.Shards, maxShards)
	case l.Shards > 1 && l.Algorithm == LeakyBucket:
		wrong("shards", "a %s cannot be split: it lets calls go one by one, and its shards would do so side by side", LeakyBucket)
	case l.Shards > 1 && l.Algorithm == SlidingWindowCounter:
		wrong("shards", "a %s cannot be split: each shard would round its estimate down, so together they would exceed the limit; use a %s, a %s or a %s", SlidingWindowCounter, FixedWindow, SlidingWindowLog, TokenBucket)
	case l.Shards > 1 && len(all) == 0:
		if whole := l.whole().Quota(); int64(l.Shards) > whole {
			wrong("shards", "%d shards for %d permits leave some without any", l.Shards, whole)
		} else if faults := l.shard(l.Shards - 1).faults(); len(faults) > 0 {
			wrong("shards", "each of %d: %s: %s", l.Shards, faults[0].Field, faults[0].Reason)
		}
	}
	return all
}

// unusable returns what is wrong with a limit whose rate is valid; nil if nothing is.
func (l Limit) unusable() *FieldError {
	wrong := func(field, format string, args ...any) *FieldError {
		return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		if full := max(l.Burst, l.Capacity, 1); !l.Rate.fits(full) {
			field := "burst"
			if l.Algorithm == LeakyBucket {
				field = "capacity"
			}
			return wrong(field, "%d permits at %v cannot be counted exactly; use fewer or a shorter period", full, l.Rate)
		}
	case FixedWindow:
		switch {
		case l.Location == nil && l.Rate.Months != 0:
			return wrong("timezone", "windows of a month need one, such as Europe/Berlin or UTC")
		case l.Location != nil && l.Rate.Months == 0 && l.Rate.Period != day && l.Rate.Period != 7*day:
			return wrong("rate", "calendar windows are per day, week or month")
		case l.Rate.Count >= exact/2:
			return wrong("rate", "%d permits cannot be counted exactly", l.Rate.Count)
		}
	case SlidingWindowCounter:
		if l.Rate.Count >= exact/1024 {
			return wrong("rate", "%d permits cannot be weighed exactly", l.Rate.Count)
		}
	case SlidingWindowLog:
		if l.Rate.Count > maxLogged {
			return wrong("rate", "a log of %d permits is more than %d; use a %s", l.Rate.Count, maxLogged, SlidingWindowCounter)
		}
	case Concurrency:
		switch {
		case l.Concurrency < 1 || l.Concurrency > maxConcurrency:
			return wrong("concurrency", "%d must be 1 to %d", l.Concurrency, maxConcurrency)
		case l.Lease != 0 && (l.Lease < time.Second || l.Lease > day):
			return wrong("lease", "%v must be 1s to 24h", l.Lease)
		}
	}
	return nil
}

func listed(algorithms []Algorithm) string {
	names := make([]string, len(algorithms))
	for i, algorithm := range algorithms {
		names[i] = string(algorithm)
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// maxCost returns the largest cost that one call may have, in permits, when it is reserved
// (shaping) or taken; 0 means that there is no bound. For a limit with shards it is what
// the smallest of them holds.
func (l Limit) maxCost(shaping bool) int64 {
	if l.Shards > 1 {
		l = l.shard(l.Shards - 1)
	}
	return l.lua().MaxCost(shaping)
}

// Quota returns how many permits a full bucket of the limit holds, as [Limiter.Take]
// reports it in a [Decision]: at least 1 for a valid limit. For a limit with shards it
// is what the smallest of them holds.
func (l Limit) Quota() int64 {
	if l.Shards > 1 {
		l = l.shard(l.Shards - 1)
	}
	if l.Algorithm == Concurrency {
		return l.Concurrency
	}
	return max(l.maxCost(false), 1)
}

// reserveQuota is the Quota of a reservation: a leaky bucket that shapes lets one permit go at a time.
func (l Limit) reserveQuota() int64 {
	if l.Algorithm == LeakyBucket {
		return 1
	}
	return l.Quota()
}

// lua is the limit as scripts need it.
func (l Limit) lua() limitlua.Limit {
	return limitlua.Limit{
		Algorithm: string(l.Algorithm), Count: l.Rate.Count, Period: l.Rate.Period, Months: l.Rate.Months, Location: l.Location,
		Burst: l.Burst, Capacity: l.Capacity, Concurrency: l.Concurrency, Lease: l.Lease,
	}
}
