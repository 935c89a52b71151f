package throttle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/coalesce"
	"github.com/headgate/headgate/internal/test/redistest"
)

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
