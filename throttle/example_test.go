package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/throttle"
)

// Police what comes in: admit it now, or say when to come back.
func ExampleLimiter_Take() {
	ctx, client, stop := exampleRedis()
	defer stop()
	limiter, err := throttle.New(client, "", throttle.Limit{
		Name: "user", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}, Burst: 2,
	})
	if err != nil {
		panic(err)
	}
	for range 3 {
		d, err := limiter.Take(ctx, 1, "alice")
		if err != nil {
			panic(err) // Redis did not answer: the answer is not known
		}
		fmt.Println(d.Allowed, d.Remaining, "of", d.Quota, d.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true 1 of 2 0s
	// true 0 of 2 0s
	// false 0 of 2 1h0m0s
}

// Several limits are taken together or not at all, and a refusal names the one
// that held the call back. Each has a key of its own.
func ExampleLimiter_Take_layers() {
	ctx, client, stop := exampleRedis()
	defer stop()
	limiter, err := throttle.New(client, "api",
		throttle.Limit{Name: "user", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}, Burst: 2},
		throttle.Limit{Name: "account", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 3, Period: time.Hour}},
	)
	if err != nil {
		panic(err)
	}
	for _, user := range []string{"alice", "alice", "alice", "bob", "bob"} {
		d, err := limiter.Take(ctx, 1, user, "acme")
		if err != nil {
			panic(err)
		}
		fmt.Println(user, d.Allowed, d.Limit)
	}
	// Alice's third call took nothing from the account, so Bob's first one fits.

	// Output:
	// alice true user
	// alice true user
	// alice false user
	// bob true account
	// bob false account
}

// Shape what goes out: every call gets a slot of its own, one interval behind
// the one before.
func ExampleLimiter_Reserve() {
	ctx, client, stop := exampleRedis()
	defer stop()
	limiter, err := throttle.New(client, "", throttle.Limit{
		Name: "sms", Algorithm: throttle.LeakyBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour},
	})
	if err != nil {
		panic(err)
	}
	for range 3 {
		r, err := limiter.Reserve(ctx, 1, 90*time.Minute, "account")
		if err != nil {
			panic(err)
		}
		if r.Allowed {
			fmt.Println("call in", r.Delay.Round(time.Minute))
		} else {
			fmt.Println("not within 90 minutes, but in", r.Delay.Round(time.Minute), "- ask again in", r.RetryAfter.Round(time.Minute))
		}
	}
	// Output:
	// call in 0s
	// call in 1h0m0s
	// not within 90 minutes, but in 2h0m0s - ask again in 30m0s
}

// A call holds its permit of a concurrency limit until its reservation ends.
func ExampleLimiter_Reserve_concurrency() {
	ctx, client, stop := exampleRedis()
	defer stop()
	limiter, err := throttle.New(client, "", throttle.Limit{Name: "in-flight", Algorithm: throttle.Concurrency, Concurrency: 1})
	if err != nil {
		panic(err)
	}
	reserve := func() *throttle.Reservation {
		r, err := limiter.Reserve(ctx, 1, 0, "reports")
		if err != nil {
			panic(err)
		}
		return r
	}
	first := reserve()
	fmt.Println("first:", first.Allowed)
	fmt.Println("beside it:", reserve().Allowed)
	// The call is made here. Should first.Lost() be closed meanwhile, others may
	// have been admitted in its place.
	if err := first.Release(ctx); err != nil {
		panic(err)
	}
	next := reserve()
	fmt.Println("after it:", next.Allowed)
	if err := next.Release(ctx); err != nil {
		panic(err)
	}
	// Output:
	// first: true
	// beside it: false
	// after it: true
}

// Wait sleeps until the slot, but not for one behind the deadline.
func ExampleLimiter_Wait() {
	ctx, client, stop := exampleRedis()
	defer stop()
	limiter, err := throttle.New(client, "", throttle.Limit{
		Name: "crawler", Algorithm: throttle.LeakyBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for range 2 {
		r, err := limiter.Wait(ctx, 1, "example.com")
		if refused, ok := errors.AsType[*throttle.RefusedError](err); ok {
			fmt.Println("too late by", refused.Limit)
			return
		}
		if err != nil {
			panic(err)
		}
		fmt.Println("call now")
		if err := r.Release(ctx); err != nil {
			panic(err)
		}
	}
	// Output:
	// call now
	// too late by crawler
}

// A budget of a model's tokens: what a call costs is known when it is over.
func ExampleReservation_Settle() {
	ctx, client, stop := exampleRedis()
	defer stop()
	limiter, err := throttle.New(client, "", throttle.Limit{
		Name: "tokens", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 10_000, Period: 7 * 24 * time.Hour}, Location: time.UTC,
	})
	if err != nil {
		panic(err)
	}
	left := func() int64 {
		d, err := limiter.Peek(ctx, 1, "team")
		if err != nil {
			panic(err)
		}
		return d.Remaining
	}
	for _, actual := range []int64{1_200, 5_500} {
		r, err := limiter.Reserve(ctx, 4_000, 0, "team") // the most it is expected to take
		if err != nil {
			panic(err)
		}
		fmt.Println("reserved:", left())
		// The call is made here, and its answer says how many it took.
		if err := r.Settle(ctx, actual); err != nil {
			panic(err)
		}
		fmt.Println("settled:", left())
	}
	// Output:
	// reserved: 6000
	// settled: 8800
	// reserved: 4800
	// settled: 3300
}

// A call that is not made after all gives its permits back.
func ExampleReservation_Cancel() {
	ctx, client, stop := exampleRedis()
	defer stop()
	limiter, err := throttle.New(client, "", throttle.Limit{
		Name: "mail", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}, Burst: 5,
	})
	if err != nil {
		panic(err)
	}
	r, err := limiter.Reserve(ctx, 3, 0, "acme")
	if err != nil {
		panic(err)
	}
	fmt.Println(r.Allowed, r.Remaining)
	if err := r.Cancel(ctx); err != nil {
		panic(err)
	}
	d, err := limiter.Peek(ctx, 1, "acme")
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Remaining)
	// Output:
	// true 2
	// 5
}

// Whoever is told by a provider to stop, stops all processes.
func ExampleLimiter_Pause() {
	ctx, client, stop := exampleRedis()
	defer stop()
	limiter, err := throttle.New(client, "", throttle.Limit{
		Name: "provider", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}, Burst: 10,
	})
	if err != nil {
		panic(err)
	}
	take := func() {
		d, err := limiter.Take(ctx, 1, "account")
		if err != nil {
			panic(err)
		}
		fmt.Printf("%v, %d left, again in %v, %q\n", d.Allowed, d.Remaining, d.RetryAfter.Round(time.Minute), d.Paused)
	}
	if err := limiter.Pause(ctx, "provider", "account", time.Now().Add(10*time.Minute), "429 Too Many Requests"); err != nil {
		panic(err)
	}
	take()
	if err := limiter.Resume(ctx, "provider", "account"); err != nil {
		panic(err)
	}
	take() // One permit, and then the rate: not the burst of 10.
	take()
	// Output:
	// false, 0 left, again in 10m0s, "429 Too Many Requests"
	// true, 0 left, again in 0s, ""
	// false, 0 left, again in 1h0m0s, ""
}

// Peek shows what is left, as a status page does.
func ExampleLimiter_Peek() {
	ctx, client, stop := exampleRedis()
	defer stop()
	limiter, err := throttle.New(client, "", throttle.Limit{
		Name: "exports", Algorithm: throttle.SlidingWindowCounter, Rate: throttle.Rate{Count: 100, Period: 24 * time.Hour},
	})
	if err != nil {
		panic(err)
	}
	if _, err := limiter.Take(ctx, 30, "acme"); err != nil {
		panic(err)
	}
	for range 2 {
		d, err := limiter.Peek(ctx, 1, "acme")
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Remaining, "of", d.Quota)
	}
	// Output:
	// 70 of 100
	// 70 of 100
}

// A hot key takes 100 permits in one round trip and hands them out in process.
func ExampleNewBlocks() {
	ctx, client, stop := exampleRedis()
	defer stop()
	limiter, err := throttle.New(client, "", throttle.Limit{
		Name: "events", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1000, Period: 24 * time.Hour}, Burst: 1000,
	})
	if err != nil {
		panic(err)
	}
	blocks, err := throttle.NewBlocks(limiter, 100, time.Minute)
	if err != nil {
		panic(err)
	}
	for range 3 {
		d, err := blocks.Take(ctx, 1, "sensor")
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Allowed, d.Remaining)
	}
	if err := blocks.Close(ctx); err != nil { // gives back what was not handed out
		panic(err)
	}
	d, err := limiter.Peek(ctx, 1, "sensor")
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Remaining, "left in Redis")
	// Output:
	// true 99
	// true 98
	// true 97
	// 997 left in Redis
}

// The bucket of a key that is too hot for one node of a cluster is split.
func ExampleLimit_shards() {
	ctx, client, stop := exampleRedis()
	defer stop()
	limiter, err := throttle.New(client, "", throttle.Limit{
		Name: "global", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1000, Period: 24 * time.Hour}, Burst: 1000, Shards: 4,
	})
	if err != nil {
		panic(err)
	}
	d, err := limiter.Take(ctx, 1, "all")
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Allowed, d.Remaining, "left in the part that was asked")
	if d, err = limiter.Peek(ctx, 1, "all"); err != nil {
		panic(err)
	}
	fmt.Println(d.Remaining, "left in all")
	// Output:
	// true 249 left in the part that was asked
	// 999 left in all
}

// A cost that can never be admitted is a mistake of the caller and no refusal.
func ExampleCostError() {
	ctx, client, stop := exampleRedis()
	defer stop()
	limiter, err := throttle.New(client, "", throttle.Limit{
		Name: "bulk", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 50, Period: time.Minute},
	})
	if err != nil {
		panic(err)
	}
	_, err = limiter.Take(ctx, 80, "acme")
	if cost, ok := errors.AsType[*throttle.CostError](err); ok {
		fmt.Println(cost.Limit, cost.Cost, cost.Max)
	}
	fmt.Println(err)
	// Output:
	// bulk 80 50
	// throttle: cost 80 is more than limit "bulk" ever admits at once (50)
}

// A test moves the clock instead of waiting.
func ExampleLimiter_WithClock() {
	ctx, client, stop := exampleRedis()
	defer stop()
	limiter, err := throttle.New(client, "", throttle.Limit{
		Name: "mails", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 1, Period: 24 * time.Hour},
	})
	if err != nil {
		panic(err)
	}
	now := time.Date(2026, 5, 4, 23, 0, 0, 0, time.UTC)
	limiter = limiter.WithClock(func() time.Time { return now })
	for range 3 {
		d, err := limiter.Take(ctx, 1, "acme")
		if err != nil {
			panic(err)
		}
		fmt.Println(now.Format(time.TimeOnly), d.Allowed, d.RetryAfter)
		now = now.Add(d.RetryAfter)
	}
	// Output:
	// 23:00:00 true 0s
	// 23:00:00 false 1h0m0s
	// 00:00:00 true 0s
}

// exampleRedis is a Redis for one example.
func exampleRedis() (context.Context, *redis.Client, func()) {
	server, err := embedded.Start(embedded.Options{Miniredis: true})
	if err != nil {
		panic(err)
	}
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		panic(err)
	}
	client := redis.NewClient(options)
	return context.Background(), client, func() { client.Close(); server.Close() }
}
