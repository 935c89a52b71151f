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

// eager is a client that would send again what failed. It gives up on an answer
// after so long.
func eager(t *testing.T, addr string, timeout time.Duration) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Addr: addr, DialTimeout: patience, ReadTimeout: timeout, DialerRetries: 1,
		MaxRetries: 3, MinRetryBackoff: ms, MaxRetryBackoff: ms,
		PoolSize: 1000, // after so many failures in a row the client itself tries only once a second
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// patient is a client that waits for an answer, so that only contexts end calls.
func patient(t *testing.T, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: 10 * patience, WriteTimeout: 10 * patience})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// ready makes connections that wait to be used.
func ready(t *testing.T, client *redis.Client, connections int) {
	t.Helper()
	for range connections {
		conn := client.Conn()
		defer conn.Close()
		for deadline := time.Now().Add(patience); conn.Ping(t.Context()).Err() != nil; {
			if time.Now().After(deadline) {
				t.Fatal("no answer to a PING")
			}
		}
	}
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

// TestRedisSilent: with a Redis that is there and says nothing calls end by the
// client's timeouts, also without a deadline. What it does about them later is
// done once, however the client is set to repeat.
func TestRedisSilent(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	for _, q := range append([]question{peek}, questions...) {
		t.Run(q.name, func(t *testing.T) {
			client := eager(t, server.Addr(), 200*ms)
			c, calm := newClocked(t, client, kinds(100)[0]), newClocked(t, patient(t, server.Addr()), kinds(100)[0])
			c.prefix, c.now = calm.prefix, calm.now
			calm.take(1)
			ready(t, client, 20) // or there would be none to repeat a call on
			server.Pause()
			const callers = 8
			said := make(chan outcome, callers)
			for range callers {
				go func() { said <- q.ask(t.Context(), c) }()
			}
			for range callers {
				if got := soon(t, q.name, said); got.err == nil || got.d != (Decision{}) {
					t.Errorf("%+v, %v; want an error", got.d, got.err)
				}
			}
			server.Resume()
			if left := calm.left(); left < 99-callers {
				t.Errorf("%d calls took %d permits", callers, 99-left)
			}
		})
	}
	for name, test := range map[string]struct {
		limit Limit
		end   func(*Reservation) error
		least int64 // of 100, after it was done once
	}{
		"Cancel":  {kinds(100)[0], func(r *Reservation) error { return r.Cancel(t.Context()) }, 98},
		"Settle":  {kinds(100)[0], func(r *Reservation) error { return r.Settle(t.Context(), 5) }, 95},
		"Release": {kinds(100)[6], func(r *Reservation) error { return r.Release(t.Context()) }, 99},
	} {
		t.Run(name, func(t *testing.T) {
			calm := patient(t, server.Addr())
			c := newClocked(t, calm, test.limit)
			var r *Reservation
			for _, key := range []string{"so that the script is known", "k"} {
				if r != nil {
					if err := test.end(r); err != nil {
						t.Fatal(err)
					}
				}
				var err error
				if r, err = c.Reserve(t.Context(), 2, 0, key); err != nil || !r.Allowed {
					t.Fatalf("%+v, %v", r, err)
				}
			}
			hasty := eager(t, server.Addr(), 200*ms)
			ready(t, hasty, 20)
			c.client = hasty
			server.Pause()
			said := make(chan error, 1)
			go func() { said <- test.end(r) }()
			if err := soon(t, name, said); err == nil {
				t.Error("no error from a Redis that says nothing")
			}
			server.Resume()
			c.client = calm
			if left := c.left(); left < test.least {
				t.Errorf("%d of 100 left; %d if it is done once", left, test.least)
			}
		})
	}
}

// TestLateReservationIsGivenBack: the caller of Reserve leaves before Redis answers. What
// was reserved for it comes back when the answer does.
func TestLateReservationIsGivenBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	for name, limit := range map[string]Limit{
		"a slot":   {Name: "l", Algorithm: LeakyBucket, Rate: Rate{Count: 1, Period: time.Hour}},
		"a permit": {Name: "l", Algorithm: Concurrency, Concurrency: 1},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := New(client, "late:"+name, limit)
			if err != nil {
				t.Fatal(err)
			}
			// Only after a slow answer can a caller leave that goes alone.
			server.Pause()
			slowly := make(chan *Reservation, 1)
			go func() {
				r, err := l.Reserve(t.Context(), 1, 0, "another")
				if err != nil {
					t.Error(err)
				}
				slowly <- r
			}()
			time.Sleep(2 * slow)
			server.Resume()
			if r := <-slowly; r != nil {
				_ = r.Release(t.Context())
			}
			server.Pause()
			ctx, cancel := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() {
				_, err := l.Reserve(ctx, 1, 0, "k")
				left <- err
			}()
			gathered(t, l.placing, 1)
			cancel()
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Fatalf("Reserve: %v", err)
			}
			server.Resume()
			for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				flying, _ := l.placing.Pending()
				d, err := l.Peek(t.Context(), 1, "k")
				if err != nil {
					t.Fatal(err)
				}
				if flying == 0 && d.Allowed {
					return
				}
				if time.Now().After(end) {
					t.Fatalf("it was not given back: %+v, %d calls under way", d, flying)
				}
			}
		})
	}
}

// TestContextEndsWhileRedisIsSlow: a call that waits for others to be answered
// leaves at once when its context ends, and takes nothing. The others get their
// answers.
func TestContextEndsWhileRedisIsSlow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := patient(t, server.Addr())
	lines := map[string]func(*clocked) *coalesce.Group[*call]{
		"Take":    func(c *clocked) *coalesce.Group[*call] { return c.taking },
		"Reserve": func(c *clocked) *coalesce.Group[*call] { return c.placing },
		"Wait":    func(c *clocked) *coalesce.Group[*call] { return c.placing },
	}
	for _, q := range questions {
		t.Run(q.name, func(t *testing.T) {
			const callers = 40
			c := newClocked(t, client, kinds(1000)[0])
			server.Pause()
			resume := sync.OnceFunc(server.Resume)
			defer resume()
			said := make([]chan outcome, callers)
			ends := make([]context.CancelFunc, callers)
			for i := range callers {
				var ctx context.Context
				ctx, ends[i] = context.WithCancel(t.Context())
				defer ends[i]()
				said[i] = make(chan outcome, 1)
				go func() { said[i] <- q.ask(ctx, c) }()
				if i < coalesce.MaxFlights { // these go alone, and the others wait for them
					gathered(t, lines[q.name](c), i+1)
				}
			}
			gathered(t, lines[q.name](c), callers)
			leaves := func(i int) bool { return i >= coalesce.MaxFlights && i%2 == 0 }
			stayed := int64(0)
			for i := range callers {
				if leaves(i) {
					ends[i]()
				} else {
					stayed++
				}
			}
			for i := range callers {
				if !leaves(i) {
					continue
				}
				if got := soon(t, "a call whose context has ended", said[i]); !errors.Is(got.err, context.Canceled) || got.d != (Decision{}) {
					t.Errorf("call %d: %+v, %v; want %v", i, got.d, got.err, context.Canceled)
				}
			}
			resume()
			for i := range callers {
				if leaves(i) {
					continue
				}
				if got := soon(t, fmt.Sprint("call ", i), said[i]); got.err != nil || !got.d.Allowed {
					t.Errorf("call %d: %+v, %v; want it answered", i, got.d, got.err)
				}
			}
			if took := 1000 - c.left(); took != stayed {
				t.Errorf("%d permits taken; want one for each of the %d calls that stayed", took, stayed)
			}
		})
	}
}

// TestDeadlineWhileRedisIsSlow: a call that is alone leaves at once, too, if the
// answer before it was slow, and so do those that decide nothing. What Redis does
// about them later is done once.
func TestDeadlineWhileRedisIsSlow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := patient(t, server.Addr())
	for _, q := range slices.Concat(questions[:2], []question{peek}, pauses) {
		t.Run(q.name, func(t *testing.T) {
			c := newClocked(t, client, kinds(1000)[0])
			server.Pause()
			resume := sync.OnceFunc(server.Resume)
			defer resume()
			said := make(chan outcome, 1)
			go func() { said <- q.ask(t.Context(), c) }()
			time.Sleep(2 * slow)
			resume()
			if got := soon(t, "the slow call", said); got.err != nil {
				t.Fatal(got.err)
			}
			server.Pause()
			defer server.Resume()
			ctx, end := context.WithTimeout(t.Context(), ms)
			defer end()
			go func() { said <- q.ask(ctx, c) }()
			if got := soon(t, "a call whose deadline has passed", said); !errors.Is(got.err, context.DeadlineExceeded) || got.d != (Decision{}) {
				t.Errorf("%+v, %v; want %v", got.d, got.err, context.DeadlineExceeded)
			}
		})
	}
}

// TestWaitEndsWhileRedisIsSlow: a call that waits for its slot ends with its
// context, though a Redis that says nothing cannot take the slot back.
func TestWaitEndsWhileRedisIsSlow(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	c := newClocked(t, patient(t, server.Addr()), kinds(1)[0])
	c.take(1) // the next slot is an hour away
	ctx, end := context.WithCancel(t.Context())
	defer end()
	said := make(chan outcome, 1)
	go func() { said <- questions[2].ask(ctx, c) }()
	// Redis can answer the first question that sees the slot before it answers the call, if it read both at once.
	for seen := 0; seen < 2; time.Sleep(ms) {
		d, err := c.Peek(t.Context(), 1, "k")
		if err != nil {
			t.Fatal(err)
		}
		if d.RetryAfter > time.Hour {
			seen++
		}
	}
	server.Pause()
	defer server.Resume()
	end()
	if got := soon(t, "a wait whose context has ended", said); !errors.Is(got.err, context.Canceled) || got.d != (Decision{}) {
		t.Errorf("%+v, %v; want %v", got.d, got.err, context.Canceled)
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
