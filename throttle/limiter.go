package throttle

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/coalesce"
	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/rediskey"
)

//go:embed plain.lua
var plainLua string

//go:embed windows.lua
var windowsLua string

//go:embed log.lua
var logLua string

//go:embed slots.lua
var slotsLua string

//go:embed permits.lua
var permitsLua string

//go:embed take.lua
var takeLua string

var (
	plainScript   = limitlua.NewScript(plainLua).AllowOOM()
	windowsScript = limitlua.NewScript(windowsLua).AllowOOM()
	logScript     = limitlua.NewScript(logLua).AllowOOM()
	slotsScript   = limitlua.NewScript(slotsLua).AllowOOM()
	permitsScript = limitlua.NewScript(permitsLua).AllowOOM()
	takeScript    = limitlua.NewScript(takeLua).AllowOOM()
)

// maxWithin bounds how far ahead a slot may be reserved. Calls with different
// bounds share a bucket, so each looks for slots as far ahead as any may lie.
const maxWithin = 366 * day

// Limiter takes permits from one limit, or from several at one moment. Use [New] to
// make one. It need not be closed.
//
// Concurrent calls share round trips: while some are under way, others gather and go
// together. A call that is alone goes at once.
type Limiter struct {
	client  redis.UniversalClient
	prefix  string
	limits  []Limit
	company bool              // buckets share a hash tag, as limits that are taken together need
	shards  []*Limiter        // instead of buckets of its own; nil: it has its own
	load    *shardLoad        // of the shards
	now     func() time.Time  // tests drive the script's clock; nil: TIME of Redis
	maxKey  int               // bytes
	names   []string          // of the limits
	observe func(Observation) // nil: nobody observes

	specs   [2][]any  // of the limits, as the scripts read them: police, shape
	short   [2]*short // the same; nil: none knows them
	taking  *coalesce.Group[*call]
	placing *coalesce.Group[*call]
	ending  *coalesce.Group[*call] // of permits of concurrency limits
	leases  leases
}

const (
	police = 0
	shape  = 1
)

// New returns a limiter over 1 to 16 limits with different names. Their buckets are
// kept in Redis under prefix, which must not contain braces; "" means
// "headgate:throttle".
//
// A bucket is shared by all limiters, in all processes, that have the same prefix and
// a limit of this name, and were made with one limit each or with several each:
// several limits keep their buckets under other keys than a limit that is alone. Use
// [Limiter.Only] to ask some of several limits.
//
// To change a limit, make a new limiter: a bucket keeps what was used of it under
// another rate, size or algorithm. The error joins a [FieldError] for everything that is
// wrong with the limits, or is about the client or the prefix. New does not connect to
// Redis.
func New(client redis.UniversalClient, prefix string, limits ...Limit) (*Limiter, error) {
	if client == nil {
		return nil, errors.New("throttle: New needs a Redis client")
	}
	prefix = cmp.Or(prefix, "headgate:throttle")
	if strings.ContainsAny(prefix, "{}") {
		return nil, fmt.Errorf("throttle: prefix %q: braces are reserved for the limiter's own hash tag", clip(prefix))
	}
	if len(limits) == 0 {
		return nil, errors.New("throttle: New needs at least one limit")
	}
	var errs []error
	if len(limits) > maxLimits {
		errs = append(errs, fmt.Errorf("throttle: %d limits; the maximum is %d", len(limits), maxLimits))
	}
	var names []string
	seen := map[string]bool{}
	for i, limit := range limits {
		which := fmt.Sprintf("limit %d %q", i+1, clip(limit.Name))
		faults := limit.faults()
		if seen[limit.Name] {
			faults = append(faults, &FieldError{Field: "name", Reason: "it is taken by another limit; names must differ"})
		}
		seen[limit.Name] = true
		names = append(names, limit.Name)
		if limit.Shards > 1 && len(limits) > 1 {
			faults = append(faults, &FieldError{Field: "shards", Reason: "limits that are taken together must be in one slot of a cluster, so none of them can be split"})
		}
		for _, fault := range faults {
			fault.Limit = which
			errs = append(errs, fault)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	l := &Limiter{client: client, prefix: prefix, limits: limits, company: len(limits) > 1, maxKey: maxKey, names: names}
	for form := range l.specs {
		l.specs[form], l.short[form] = l.specArgs(form == shape), newShort(limits, form)
	}
	l.taking, l.placing, l.ending = together(l.deciding(modeTake)), together(l.deciding(modeReserve)), together(l.release)
	if limits[0].Shards > 1 {
		if err := l.split(); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Only returns a limiter over the limits of l that have the given names, in the order
// of the names. It takes from the same buckets as l, but shares no round trips with it.
// The error names a limit that l does not have, or that is named twice.
func (l *Limiter) Only(names ...string) (*Limiter, error) {
	limits := make([]Limit, 0, len(names))
	for _, name := range names {
		i := slices.IndexFunc(l.limits, func(limit Limit) bool { return limit.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("throttle: there is no limit %q", clip(name))
		}
		limits = append(limits, l.limits[i])
	}
	return l.with(limits, l.now)
}

// WithClock returns a limiter over the limits and buckets of l that goes by now instead of
// the clock of Redis. It is for tests, which can move such a clock by hours: processes
// that share buckets must not have clocks of their own. Two things still take real time:
// the sleep of [Limiter.Wait], and the expiry of a key, 2 s after its bucket would be full.
func (l *Limiter) WithClock(now func() time.Time) *Limiter {
	clocked, err := l.with(l.limits, now)
	if err != nil {
		panic(err) // impossible: l was made of the same limits
	}
	return clocked
}

// with returns a limiter over buckets of l, with its observer.
func (l *Limiter) with(limits []Limit, now func() time.Time) (*Limiter, error) {
	some, err := New(l.client, l.prefix, limits...)
	if err != nil {
		return nil, err
	}
	some.company, some.now = l.company, now
	some.observe = l.observe
	for _, shard := range some.shards {
		shard.now = now
	}
	return some, nil
}

// maxLimits bounds the time that one decision may keep Redis busy.
const maxLimits = 16

// Take takes n permits now, or none. keys holds one key for each limit, in the order
// of [New], or a single key for all of them. A key is any text of up to 4096 bytes.
//
// A refusal is a Decision, not an error. An error means that the answer is not known,
// or that the question is invalid: [CostError], n < 1, a wrong number of keys, or a key
// that is too long.
//
// Use [Limiter.Reserve] for calls that can wait, and for concurrency limits: a permit
// that Take took from one comes back only when its lease ends.
func (l *Limiter) Take(ctx context.Context, n int64, keys ...string) (Decision, error) {
	began := l.began()
	d, err := l.take(ctx, n, keys)
	l.tell(Observation{Decision: d, Err: err, Took: l.since(began)})
	return d, err
}

func (l *Limiter) take(ctx context.Context, n int64, keys []string) (Decision, error) {
	if l.shards != nil {
		return l.takeSharded(ctx, n, keys)
	}
	if d, refused := l.refused(n, keys); refused && ctx.Err() == nil {
		return d, nil
	}
	c, err := l.ask(police, n, 0, keys)
	if err != nil {
		return Decision{}, err
	}
	if err := decide(ctx, l.taking, c, nil); err != nil {
		return Decision{}, err
	}
	return c.decision, nil
}

// Peek returns the Decision that [Limiter.Take] would return, but takes nothing, so
// that Remaining is what is there now. Its errors are those of Take.
func (l *Limiter) Peek(ctx context.Context, n int64, keys ...string) (Decision, error) {
	if l.shards != nil {
		return l.peekSharded(n, keys, func(shard *Limiter, key string) (Decision, error) { return shard.Peek(ctx, n, key) })
	}
	return l.look(ctx, modePeekTake, n, 0, keys)
}

// PeekReserve returns the Decision that [Limiter.Reserve] would return, but takes nothing.
// Its errors are those of Take.
func (l *Limiter) PeekReserve(ctx context.Context, n int64, within time.Duration, keys ...string) (Decision, error) {
	if l.shards != nil {
		return l.peekSharded(n, keys, func(shard *Limiter, key string) (Decision, error) { return shard.PeekReserve(ctx, n, within, key) })
	}
	return l.look(ctx, modePeekReserve, n, within, keys)
}

// look asks in a mode that takes nothing.
func (l *Limiter) look(ctx context.Context, mode string, n int64, within time.Duration, keys []string) (Decision, error) {
	c, err := l.ask(form(mode), n, within, keys)
	if err != nil {
		return Decision{}, err
	}
	r := l.takeRequest(mode, []*call{c})
	reply, err := takeScript.RunUntilDone(ctx, l.client, r.keys, r.args...)
	if err := cmp.Or(l.answer(r, reply, err), c.err); err != nil {
		return Decision{}, err
	}
	return c.decision, nil
}

// ask checks a question.
func (l *Limiter) ask(mode int, n int64, within time.Duration, keys []string) (*call, error) {
	if n < 1 {
		return nil, &invalidError{fmt.Sprintf("%d permits: a call takes at least 1", n)}
	}
	if err := l.checkKeys(keys); err != nil {
		return nil, err
	}
	c := &call{n: n, within: min(max(within, 0), maxWithin)}
	if len(l.limits) > len(c.one) {
		c.buckets = make([]string, len(l.limits))
	} else {
		c.buckets = c.one[:]
	}
	for i, limit := range l.limits {
		if highest := limit.maxCost(mode == shape); highest > 0 && n > highest {
			return nil, &CostError{Limit: limit.Name, Cost: n, Max: highest}
		}
		if limit.drains() && !limit.Rate.fits(n) {
			return nil, &CostError{Limit: limit.Name, Cost: n, Max: limit.countable()}
		}
		if limit.Algorithm == Concurrency && c.id == "" {
			c.id = newID()
		}
		c.buckets[i] = l.bucket(limit, keys[min(i, len(keys)-1)])
	}
	return c, nil
}

func (l *Limiter) checkKeys(keys []string) error {
	if len(keys) != 1 && len(keys) != len(l.limits) {
		return &invalidError{fmt.Sprintf("%d keys for %d limits", len(keys), len(l.limits))}
	}
	for i, key := range keys {
		if len(key) > l.maxKey {
			return &invalidError{fmt.Sprintf("key %d is longer than %d bytes", i+1, l.maxKey)}
		}
	}
	return nil
}

// maxKey keeps a hostile key from filling Redis.
const maxKey = 4096

// drains reports whether the limit is a bucket that refills at its rate.
func (l Limit) drains() bool { return l.Algorithm == TokenBucket || l.Algorithm == LeakyBucket }

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

// specArgs returns six arguments for each limit, which limit_read reads.
func (l *Limiter) specArgs(shaping bool) []any {
	args := make([]any, 0, 6*len(l.limits))
	for _, limit := range l.limits {
		spec := limit.lua().Spec(shaping, maxWithin)
		digits, text := spec.Code()
		span, last := spec.Ahead, digits+text
		if spec.Window > 0 {
			last = strconv.FormatInt(spec.Window, 10)
		}
		if limit.Algorithm == Concurrency {
			span = limit.lease().Microseconds()
		}
		args = append(args, spec.Algorithm, spec.Permit, spec.Flow, spec.Burst, span, last)
	}
	return args
}

// appendSpecs adds the limits for a script, with the calendars around now and
// until after the longest wait.
func (l *Limiter) appendSpecs(args []any, mode int, within time.Duration) []any {
	from := len(args)
	args = append(args, l.specs[mode]...)
	for i, limit := range l.limits {
		if limit.Location != nil {
			args[from+6*i+5] = l.calendar(limit, within)
		}
	}
	return args
}

func (l *Limiter) calendar(limit Limit, within time.Duration) string {
	shortest := limit.Rate.Period
	if limit.Rate.Months > 0 {
		shortest = 28 * day
	}
	var b strings.Builder
	// Three are the ends of the current window and of two after it: this clock may be behind that of Redis.
	for _, start := range limit.lua().Windows(l.time(), 3+int(within/shortest)) {
		b.WriteString(strconv.FormatInt(start, 10))
		b.WriteByte(',')
	}
	return b.String()
}

// bucket is the key of one limit's state. Limits that are taken together share a hash
// tag, because a decision has to lie in one slot of a cluster. A limit that never has
// company spreads by its key.
func (l *Limiter) bucket(limit Limit, key string) string {
	var room [128]byte
	return string(l.appendBucket(room[:0], limit.Name, key))
}

func (l *Limiter) appendBucket(b []byte, limit, key string) []byte {
	if !l.company {
		b = append(append(b, l.prefix...), ':')
		b = append(rediskey.AppendEscaped(b, limit), ":{"...)
		return append(rediskey.AppendEscaped(b, key), '}')
	}
	b = append(append(append(b, '{'), l.prefix...), "}:"...)
	b = append(rediskey.AppendEscaped(b, limit), ':')
	return rediskey.AppendEscaped(b, key)
}
