package throttle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/coalesce"
	"github.com/headgate/headgate/internal/test/redistest"
)

// patience bounds what must end by itself. It measures nothing.
const patience = 30 * time.Second

// kinds are one limit of each algorithm, each of them full with so many permits.
func kinds(most int64) []Limit {
	rate := Rate{Count: most, Period: time.Hour}
	return []Limit{
		{Name: "token", Algorithm: TokenBucket, Rate: rate, Burst: most},
		{Name: "leaky", Algorithm: LeakyBucket, Rate: rate, Capacity: most},
		{Name: "window", Algorithm: FixedWindow, Rate: rate},
		{Name: "calendar", Algorithm: FixedWindow, Rate: Rate{Count: most, Period: day}, Location: time.UTC},
		{Name: "counter", Algorithm: SlidingWindowCounter, Rate: rate},
		{Name: "log", Algorithm: SlidingWindowLog, Rate: rate},
		{Name: "concurrency", Algorithm: Concurrency, Concurrency: most, Lease: time.Hour},
	}
}

// soon waits for what must not take for ever.
func soon[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: still waiting after %v", what, patience)
		panic("unreachable")
	}
}

// gathered waits until so many calls of a limiter wait for an answer, or for
// others to be answered.
func gathered(t *testing.T, q *coalesce.Group[*call], calls int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(ms) {
		flights, waiting := q.Pending()
		n := flights + waiting
		if n >= calls {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d calls under way after %v", n, calls, patience)
		}
	}
}

// outcome is what a call of a limiter returned.
type outcome struct {
	d   Decision
	err error
}

// question is one way to ask a limiter.
type question struct {
	name string
	ask  func(context.Context, *clocked) outcome
}

var questions = []question{
	{"Take", func(ctx context.Context, c *clocked) outcome {
		d, err := c.Take(ctx, 1, "k")
		return outcome{d, err}
	}},
	{"Reserve", func(ctx context.Context, c *clocked) outcome {
		d, err := decision(c.Reserve(ctx, 1, time.Minute, "k"))
		return outcome{d, err}
	}},
	{"Wait", func(ctx context.Context, c *clocked) outcome {
		d, err := decision(c.Wait(ctx, 1, "k"))
		return outcome{d, err}
	}},
}

var peek = question{"Peek", func(ctx context.Context, c *clocked) outcome {
	d, err := c.Peek(ctx, 1, "k")
	return outcome{d, err}
}}

var pauses = []question{
	{"Pause", func(ctx context.Context, c *clocked) outcome {
		return outcome{err: c.Pause(ctx, c.limits[0].Name, "k", c.now.Add(time.Hour), "why")}
	}},
	{"Resume", func(ctx context.Context, c *clocked) outcome {
		return outcome{err: c.Resume(ctx, c.limits[0].Name, "k")}
	}},
}

// left is what a bucket still has.
func (c *clocked) left() int64 {
	c.t.Helper()
	d, err := c.Peek(context.Background(), 1, "k")
	if err != nil {
		c.t.Fatal(err)
	}
	return d.Remaining
}

// TestRedisAway: without a Redis every call is an error and no decision, soon;
// nothing is taken; and the first call after it came back is answered.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	client := eager(t, server.Addr(), patience)
	for _, limit := range kinds(10) {
		t.Run(limit.Name, func(t *testing.T) {
			c := newClocked(t, client, limit)
			c.take(1)
			held, err := c.Reserve(t.Context(), 1, time.Hour, "k")
			if err != nil || !held.Allowed {
				t.Fatalf("%+v, %v", held, err)
			}
			server.Kill()
			for _, q := range append([]question{peek}, append(questions, pauses...)...) {
				said := make(chan outcome, 1)
				go func() { said <- q.ask(t.Context(), c) }()
				if got := soon(t, q.name, said); got.err == nil || got.d != (Decision{}) {
					t.Errorf("%s: %+v, %v; want an error", q.name, got.d, got.err)
				}
			}
			server.Restart()
			if d, err := c.Peek(t.Context(), 1, "k"); err != nil || d.Remaining != 8 {
				t.Errorf("%+v, %v; want 8 left of 10 after two calls", d, err)
			}
			if err := held.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
			if d := c.take(1); !d.Allowed || d.Remaining != 8 {
				t.Errorf("%+v; want 8 left, as one of three was given back", d)
			}
		})
	}
}

// TestContextHasEnded: a call whose context is done takes nothing.
func TestContextHasEnded(t *testing.T) {
	client := redistest.Shared(t).Client()
	done, end := context.WithCancel(t.Context())
	end()
	for _, limit := range kinds(100) {
		c := newClocked(t, client, limit)
		for _, q := range append([]question{peek}, questions...) {
			for range 20 {
				if got := q.ask(done, c); !errors.Is(got.err, context.Canceled) || got.d != (Decision{}) {
					t.Errorf("%s, %s: %+v, %v; want %v", limit.Name, q.name, got.d, got.err, context.Canceled)
				}
			}
		}
		if left := c.left(); left != 100 {
			t.Errorf("%s: %d of 100 left", limit.Name, left)
		}
	}
}

// TestLostReplyOfMany: a reply that many calls wait for is lost. Redis counted
// each of them, once, though the client is set to repeat; those that got no answer
// say so, and the others are right.
func TestLostReplyOfMany(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, cut := range []bool{false, true} {
		t.Run(map[bool]string{false: "reply lost", true: "wire cut"}[cut], func(t *testing.T) {
			const callers = 60
			var wire redistest.Wire
			client := redis.NewClient(&redis.Options{
				Addr: server.Addr(), Dialer: wire.Dial, ReadTimeout: patience, MaxRetries: 3, MinRetryBackoff: ms, MaxRetryBackoff: ms, DialerRetries: 1,
			})
			defer client.Close()
			c := newClocked(t, client, kinds(1000)[0])
			c.take(1)
			server.Pause()
			said := make(chan outcome, callers)
			call := func(key string) {
				go func() {
					d, err := c.Take(t.Context(), 1, key)
					said <- outcome{d, err}
				}()
			}
			// As many as go alone, and then those that share.
			for i := range coalesce.MaxFlights {
				call("alone")
				gathered(t, c.taking, i+1)
			}
			for range callers - coalesce.MaxFlights {
				call("k")
			}
			gathered(t, c.taking, callers)
			if cut {
				wire.Cut()
			} else {
				wire.LoseReply(c.bucket(c.limits[0], "k"))
			}
			server.Resume()
			allowed, unknown := 0, 0
			for range callers {
				switch got := soon(t, "Take", said); {
				case got.err == nil && got.d.Allowed:
					allowed++
				case got.err == nil:
					t.Errorf("refused: %+v", got.d)
				case got.d != (Decision{}):
					t.Errorf("%+v beside %v", got.d, got.err)
				default:
					unknown++
				}
			}
			wire.Mend()
			took := 999 - c.left()
			if cut {
				if unknown != callers || took > callers {
					t.Errorf("%d of %d calls without an answer took %d permits", unknown, callers, took)
				}
			} else if wire.Lost() != 1 || unknown != callers-coalesce.MaxFlights || took != callers-coalesce.MaxFlights {
				t.Errorf("%d replies lost: %d calls allowed, %d without an answer, %d permits taken; want one reply lost and each call counted once", wire.Lost(), allowed, unknown, took)
			}
		})
	}
}

// scripts is how many scripts a server was asked to run since the last call.
func scripts(t *testing.T, server *redistest.Server) int {
	t.Helper()
	n := redistest.Calls(t, server.Client(), "evalsha") + redistest.Calls(t, server.Client(), "eval")
	if err := server.Client().ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFullMemory: at maxmemory, where Redis refuses writes, decisions go on, for
// buckets that are there and for new ones, and what was reserved comes back.
func TestFullMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	// A leaky bucket would move the slots of all layers.
	layers := slices.DeleteFunc(kinds(10), func(limit Limit) bool { return limit.Algorithm == LeakyBucket })
	all := map[string]*clocked{"layers": newClocked(t, client, layers...)}
	for _, limit := range kinds(10) {
		all[limit.Name] = newClocked(t, client, limit)
	}
	for _, c := range all {
		c.take(1)
	}
	server.FillMemory()
	if err := client.Set(t.Context(), "x", "y", 0).Err(); !redis.IsOOMError(err) {
		t.Fatalf("SET: %v; want it refused, or the test shows nothing", err)
	}
	for _, unknown := range []bool{false, true} {
		if unknown {
			if err := client.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for name, c := range all {
			key := fmt.Sprint("k", unknown)
			if d := c.take(3, key); !d.Allowed {
				t.Errorf("%s: a new bucket: %+v", name, d)
			}
			before := c.left()
			if d := c.take(2); !d.Allowed {
				t.Errorf("%s: %+v", name, d)
			}
			r, err := c.Reserve(t.Context(), 2, time.Hour, "k")
			if err != nil || !r.Allowed {
				t.Errorf("%s: Reserve: %+v, %v", name, r, err)
				continue
			}
			want := before - 4
			if name == "concurrency" {
				want = before - 2 // calls and not permits
			}
			if left := c.left(); left != want {
				t.Errorf("%s: %d left after %d", name, left, before)
			}
			if err := r.Cancel(t.Context()); err != nil {
				t.Errorf("%s: Cancel: %v", name, err)
			}
			again, err := c.Reserve(t.Context(), 1, time.Hour, "k")
			if err != nil || !again.Allowed {
				t.Errorf("%s: Reserve: %+v, %v", name, again, err)
				continue
			}
			if err := again.Settle(t.Context(), 2); err != nil {
				t.Errorf("%s: Settle: %v", name, err)
			}
			if name == "concurrency" || name == "layers" {
				continue
			}
			if err := c.Pause(t.Context(), name, key, c.now.Add(time.Minute), "why"); err != nil {
				t.Errorf("%s: Pause: %v", name, err)
			}
			if d := c.take(1, key); d.Allowed || d.Paused != "why" {
				t.Errorf("%s: paused: %+v", name, d)
			}
			if err := c.Resume(t.Context(), name, key); err != nil {
				t.Errorf("%s: Resume: %v", name, err)
			}
		}
	}
}

// TestScriptsFlushedInAStorm: scripts that are forgotten again and again cost
// round trips, and neither an answer nor a permit.
func TestScriptsFlushedInAStorm(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const callers, each, most = 64, 20, 500
	for _, limit := range kinds(most) {
		t.Run(limit.Name, func(t *testing.T) {
			c := newClocked(t, server.Client(), limit)
			var allowed, flushes atomic.Int64
			done := make(chan struct{})
			var flushing, calling sync.WaitGroup
			held := make([][]*Reservation, callers)
			flushing.Go(func() {
				for {
					if err := server.Client().ScriptFlush(context.Background()).Err(); err != nil {
						t.Error(err)
					}
					flushes.Add(1)
					select {
					case <-done:
						return
					default:
					}
				}
			})
			for caller := range callers {
				calling.Go(func() {
					for i := range each {
						if i%2 == 0 {
							d, err := c.Take(t.Context(), 1, "k")
							if err != nil {
								t.Error(err)
							} else if d.Allowed {
								allowed.Add(1)
							}
							continue
						}
						r, err := c.Reserve(t.Context(), 1, 0, "k")
						if err != nil {
							t.Error(err)
						} else if r.Allowed {
							allowed.Add(1)
							held[caller] = append(held[caller], r)
						}
					}
				})
			}
			calling.Wait()
			close(done)
			flushing.Wait()
			if allowed.Load() != most {
				t.Errorf("%d permits of %d went at once, with %d flushes among %d calls", allowed.Load(), most, flushes.Load(), callers*each)
			}
			for _, r := range slices.Concat(held...) {
				if err := r.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
