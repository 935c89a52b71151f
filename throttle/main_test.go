package throttle

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
)

func TestMain(m *testing.M) {
	testlong.SameCases()
	flag.Parse()
	_ = flag.Set("rapid.checks", strconv.Itoa(randomCases))
	if testing.Short() {
		randomCases /= 5 // which rapid does by itself
	}
	redistest.Main(m)
}

// randomCases is how many cases a property is tested with.
var randomCases = testlong.Of(25, 100)

// onBoth runs a test on the real Redis and on the embedded one.
func onBoth(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Run("redis-server", func(t *testing.T) { test(t, redistest.Shared(t).Client()) })
	t.Run("miniredis", func(t *testing.T) { test(t, redistest.Embedded(t)) })
}

var prefixes atomic.Int64

// clocked is a limiter on buckets of its own, whose clock the test moves.
type clocked struct {
	*Limiter
	t   *testing.T
	now time.Time
}

func newClocked(t *testing.T, client redis.UniversalClient, limits ...Limit) *clocked {
	t.Helper()
	prefix := fmt.Sprintf("test:%s:%d", strconv.FormatInt(time.Now().UnixNano(), 36), prefixes.Add(1))
	limiter, err := New(client, prefix, limits...)
	if err != nil {
		t.Fatal(err)
	}
	c := &clocked{Limiter: limiter, t: t, now: time.Now().Truncate(time.Hour)}
	limiter.now = func() time.Time { return c.now }
	return c
}

// change puts the buckets under other limits.
func (c *clocked) change(limits ...Limit) {
	c.t.Helper()
	limiter, err := New(c.client, c.prefix, limits...)
	if err != nil {
		c.t.Fatal(err)
	}
	limiter.now = c.Limiter.now
	c.Limiter = limiter
}

func (c *clocked) take(n int64, keys ...string) Decision {
	c.t.Helper()
	d, err := c.Take(context.Background(), n, keysOr(keys)...)
	if err != nil {
		c.t.Fatal(err)
	}
	return d
}

func (c *clocked) reserve(n int64, within time.Duration, keys ...string) Decision {
	c.t.Helper()
	r, err := c.Reserve(context.Background(), n, within, keysOr(keys)...)
	if err != nil {
		c.t.Fatal(err)
	}
	return r.Decision
}

// decision is a reservation's, for tests that ask for nothing else.
func decision(r *Reservation, err error) (Decision, error) {
	if err != nil {
		return Decision{}, err
	}
	return r.Decision, nil
}

func keysOr(keys []string) []string {
	if len(keys) == 0 {
		return []string{"k"}
	}
	return keys
}

func bucket(rate string, burst int64) Limit {
	return Limit{Name: "tb", Algorithm: TokenBucket, Rate: mustRate(rate), Burst: burst}
}

func leaky(rate string, capacity int64) Limit {
	return Limit{Name: "lb", Algorithm: LeakyBucket, Rate: mustRate(rate), Capacity: capacity}
}

func window(rate string, loc *time.Location) Limit {
	return Limit{Name: "fw", Algorithm: FixedWindow, Rate: mustRate(rate), Location: loc}
}

func logged(rate string) Limit {
	return Limit{Name: "sl", Algorithm: SlidingWindowLog, Rate: mustRate(rate)}
}

func counted(rate string) Limit {
	return Limit{Name: "sc", Algorithm: SlidingWindowCounter, Rate: mustRate(rate)}
}

func inFlightOf(n int64, lease time.Duration) Limit {
	return Limit{Name: "cc", Algorithm: Concurrency, Concurrency: n, Lease: lease}
}

func mustRate(text string) Rate {
	rate, err := ParseRate(text)
	if err != nil {
		panic(err)
	}
	return rate
}
