package throttle

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed take.lua
var takeLua string

var takeScript = NewScript(takeLua)

// Decision is a limiter's answer to one call.
type Decision struct {
	// Allowed says that the permits were taken.
	Allowed bool

	// Limit names the limit that binds: the one that set the delay or refused.
	// Empty when nothing held the call back.
	Limit string

	// Delay is how long after this answer the call may go; 0: now. Only a
	// reservation has one.
	Delay time.Duration

	// RetryAfter is how long to wait before the same call can be admitted;
	// 0 when Allowed. Rounded up to the next µs.
	RetryAfter time.Duration

	// Remaining is how many permits could still go at once: after an allowed
	// call the least of all limits, after a refused one of the limit that binds.
	Remaining int64

	// At is the moment of the slot on Redis's clock, which is also the moment of
	// the answer plus Delay. Zero when refused.
	At time.Time
}

// CostError reports a cost that a limit can never admit, at any time.
type CostError struct {
	Limit string
	Cost  int64
	Most  int64 // the largest cost the limit admits
}

func (e *CostError) Error() string {
	return fmt.Sprintf("cost %d is more than limit %q ever admits at once (%d)", e.Cost, e.Limit, e.Most)
}

// maxWithin bounds how far ahead a slot may be reserved. Calls with different
// bounds share a bucket, so each looks for slots as far ahead as any may lie.
const maxWithin = 366 * day

// Limiter takes permits from one limit, or from several at one moment.
type Limiter struct {
	client redis.UniversalClient
	prefix string
	limits []Limit
	now    func() time.Time // tests drive the script's clock; nil: TIME of Redis
}

// New makes a limiter over the given limits, whose buckets live in Redis under
// prefix; "" means "headgate:throttle". Limiters with the same prefix and limit
// names share buckets. The error names every limit that is unusable.
func New(client redis.UniversalClient, prefix string, limits ...Limit) (*Limiter, error) {
	if client == nil {
		return nil, errors.New("throttle: New needs a Redis client")
	}
	if prefix == "" {
		prefix = "headgate:throttle"
	}
	if strings.ContainsAny(prefix, "{}") {
		return nil, fmt.Errorf("throttle: prefix %q: braces are reserved for the limiter's own hash tag", prefix)
	}
	if len(limits) == 0 {
		return nil, errors.New("throttle: New needs at least one limit")
	}
	var errs []error
	seen := map[string]bool{}
	for i, limit := range limits {
		if err := limit.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("throttle: limit %d %q: %w", i+1, limit.Name, err))
		}
		if seen[limit.Name] {
			errs = append(errs, fmt.Errorf("throttle: limit %d: the name %q is taken", i+1, limit.Name))
		}
		seen[limit.Name] = true
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Limiter{client: client, prefix: prefix, limits: limits}, nil
}

// Take takes n permits now or none: keys holds one key for each limit, in the
// order of [New], or a single one for all. A refusal is a Decision; an error
// means that the answer is not known, or that the question is unusable
// ([CostError], n < 1, a wrong number of keys).
func (l *Limiter) Take(ctx context.Context, n int64, keys ...string) (Decision, error) {
	return l.run(ctx, n, -1, keys)
}

// Reserve takes n permits at the first moment at which every limit admits them,
// if that is at most within away, and says how long to wait. The caller must
// not go earlier; a slot that is not used is lost. within <= 0 accepts only now;
// the longest is a year. Keys and errors are those of [Limiter.Take].
func (l *Limiter) Reserve(ctx context.Context, n int64, within time.Duration, keys ...string) (Decision, error) {
	return l.run(ctx, n, min(max(within, 0), maxWithin), keys)
}

// run polices when within is negative, and shapes otherwise.
func (l *Limiter) run(ctx context.Context, n int64, within time.Duration, keys []string) (Decision, error) {
	if n < 1 {
		return Decision{}, fmt.Errorf("throttle: %d permits: a call takes at least 1", n)
	}
	if len(keys) != 1 && len(keys) != len(l.limits) {
		return Decision{}, fmt.Errorf("throttle: %d keys for %d limits", len(keys), len(l.limits))
	}
	shaping := within >= 0
	buckets := make([]string, len(l.limits))
	args := make([]any, 0, 3+6*len(l.limits))
	args = append(args, n, max(within, 0).Microseconds(), l.clock())
	for i, limit := range l.limits {
		most := limit.Most(shaping)
		if most > 0 && n > most {
			return Decision{}, &CostError{Limit: limit.Name, Cost: n, Most: most}
		}
		if limit.Algorithm != FixedWindow && !limit.Rate.fits(n) {
			return Decision{}, &CostError{Limit: limit.Name, Cost: n, Most: limit.countable()}
		}
		buckets[i] = l.bucket(limit, keys[min(i, len(keys)-1)])
		spec := limit.Spec(shaping, maxWithin)
		args = append(args, spec.Algorithm, spec.Permit, spec.Flow, spec.Burst, spec.Ahead, l.windows(limit, spec, within))
	}
	reply, err := takeScript.Run(ctx, l.client, buckets, args...)
	if err != nil {
		return Decision{}, fmt.Errorf("throttle: take %d of %q: %w", n, clip(keys[0]), err)
	}
	return l.decide(reply, n, shaping)
}

// countable is the largest cost that stays exact.
func (l Limit) countable() int64 {
	return int64(sort.Search(exact, func(n int) bool { return !l.Rate.fits(int64(n)) })) - 1
}

func (l *Limiter) clock() string {
	if l.now == nil {
		return ""
	}
	return strconv.FormatInt(l.now().UnixMicro(), 10)
}

// windows is the last of a limit's arguments: the window's length, or the
// calendar from before now until after the longest wait.
func (l *Limiter) windows(limit Limit, spec Spec, within time.Duration) string {
	if limit.Algorithm != FixedWindow || spec.Window > 0 {
		return strconv.FormatInt(spec.Window, 10)
	}
	now := time.Now()
	if l.now != nil {
		now = l.now()
	}
	var b strings.Builder
	for _, start := range limit.Windows(now, 3+int(max(within, 0)/day)) {
		b.WriteString(strconv.FormatInt(start, 10))
		b.WriteByte(',')
	}
	return b.String()
}

// bucket is the key of one limit's state. All limits of a limiter share a hash
// tag, so that a decision is one slot of a cluster; a single limit needs no
// company and spreads by its key.
func (l *Limiter) bucket(limit Limit, key string) string {
	if len(l.limits) == 1 {
		return l.prefix + ":" + Escape(limit.Name) + ":{" + Escape(key) + "}"
	}
	return "{" + l.prefix + "}:" + Escape(limit.Name) + ":" + Escape(key)
}

// Escape makes text safe as a part of a Redis key: bytes other than letters,
// digits, '.', '_', '~', '-' and '@' become %XX, so that no two texts share a
// key and none reaches another's.
func Escape(text string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("._~-@", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

func (l *Limiter) decide(reply any, n int64, shaping bool) (Decision, error) {
	values, ok := reply.([]any)
	if !ok || len(values) != 5 {
		return Decision{}, fmt.Errorf("throttle: unexpected reply %v", reply)
	}
	var v [5]int64
	for i := range v {
		if v[i], ok = values[i].(int64); !ok {
			return Decision{}, fmt.Errorf("throttle: unexpected reply %v", reply)
		}
	}
	taken, binding, delay := v[0], v[1], time.Duration(v[2])*time.Microsecond
	decision := Decision{Allowed: taken == 1, Remaining: v[3]}
	if binding > 0 {
		decision.Limit = l.limits[binding-1].Name
	}
	switch taken {
	case -1:
		return Decision{}, &CostError{Limit: decision.Limit, Cost: n, Most: l.limits[binding-1].Most(shaping)}
	case 1:
		decision.Delay = delay
		decision.At = time.UnixMicro(v[4]).Add(delay)
	default:
		decision.RetryAfter = delay
	}
	return decision, nil
}
