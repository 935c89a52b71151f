package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/throttle"
)

// publish puts the limits of one queue in force.
func publish(options *redis.UniversalOptions, name string, limits queue.QueueLimits, tenants map[string]queue.TenantLimits) {
	client := redis.NewUniversalClient(options)
	defer client.Close()
	err := queue.Publish(context.Background(), client, queue.Limits{
		Queues: map[string]queue.QueueLimits{name: limits}, Tenants: tenants,
	})
	if err != nil {
		panic(err)
	}
}

// A password reset goes before the newsletter of the same tenant.
func ExamplePriority() {
	options, client, done := endsRedis()
	defer done()
	for _, job := range []struct {
		text     string
		priority queue.Priority
	}{{"newsletter", queue.Low}, {"invoice", queue.Normal}, {"password reset", queue.High}} {
		sms := SendSMS.Job("acme", SMS{"Ada", job.text})
		sms.Priority = job.priority
		if _, err := client.Enqueue(context.Background(), sms); err != nil {
			panic(err)
		}
	}
	worker, err := queue.New(queue.Config{Redis: options, Queues: []string{"sms"}, Concurrency: 1})
	if err != nil {
		panic(err)
	}
	sent := make(chan string)
	SendSMS.Handle(worker, func(_ context.Context, sms SMS) error {
		sent <- sms.Text
		return nil
	})
	stop := serve(worker)
	defer stop()
	for range 3 {
		fmt.Println(<-sent)
	}
	// Output:
	// password reset
	// invoice
	// newsletter
}

// Tenants share one account: while both wait, acme gets three parts of it and
// globex one.
func ExampleTenantLimits() {
	ctx, client, stop := exampleRedis()
	defer stop()
	account := queue.Limit{Limit: throttle.Limit{Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(100)}}
	err := queue.Publish(ctx, client, queue.Limits{
		Queues:  map[string]queue.QueueLimits{"sms": {Kinds: []string{"sms"}, Limits: []queue.Limit{account}}},
		Tenants: map[string]queue.TenantLimits{"acme": {Weight: 3}}, // all others have 1
	})
	if err != nil {
		panic(err)
	}
	jobs := queue.NewClient(client)
	for _, tenant := range []string{"acme", "globex"} {
		if _, err := jobs.Enqueue(ctx, SendSMS.Job(tenant, SMS{})); err != nil {
			panic(err)
		}
	}
	page, err := queue.NewInspector(client).ListTenants(ctx, "sms", queue.TenantQuery{Sort: queue.ByTenant, Ascending: true})
	if err != nil {
		panic(err)
	}
	for _, tenant := range page.Tenants {
		fmt.Println(tenant.Tenant, tenant.Waiting, tenant.Weight)
	}
	// Output:
	// acme 1 3
	// globex 1 1
}

// At most two calls of each tenant are under way at a time.
func ExampleLimit_concurrency() {
	options, client, done := endsRedis()
	defer done()
	inFlight := queue.Limit{
		Limit: throttle.Limit{Name: "in-flight", Algorithm: throttle.Concurrency, Concurrency: 2},
		Per:   []string{"tenant"},
	}
	publish(options, "sms", queue.QueueLimits{Kinds: []string{"sms"}, Limits: []queue.Limit{inFlight}}, nil)
	for range 6 {
		if _, err := client.Enqueue(context.Background(), SendSMS.Job("acme", SMS{})); err != nil {
			panic(err)
		}
	}
	worker, err := queue.New(queue.Config{Redis: options, Queues: []string{"sms"}})
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	now, most := 0, 0
	sent := make(chan bool)
	SendSMS.Handle(worker, func(context.Context, SMS) error {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		mu.Lock()
		now--
		mu.Unlock()
		sent <- true
		return nil
	})
	stop := serve(worker)
	for range 6 {
		<-sent
	}
	stop()
	fmt.Println("at most", most)
	// Output: at most 2
}

// A model is asked under a budget of tokens: a job takes an estimate, and what
// the call did not use comes back. At their estimates two of the three would go.
func ExampleSetActual() {
	options, client, done := endsRedis()
	defer done()
	tokens := queue.Limit{
		Limit: throttle.Limit{Name: "tokens", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}, Burst: 1000},
		Per:   []string{"tenant"},
		Unit:  "tokens",
	}
	publish(options, "ai", queue.QueueLimits{Kinds: []string{"ask"}, Limits: []queue.Limit{tokens}}, nil)
	for range 3 {
		job := queue.Job{Kind: "ask", Tenant: "acme", Payload: "why?", Costs: map[string]int64{"tokens": 400}}
		if _, err := client.Enqueue(context.Background(), job); err != nil {
			panic(err)
		}
	}
	worker, err := queue.New(queue.Config{Redis: options, Queues: []string{"ai"}})
	if err != nil {
		panic(err)
	}
	asked := make(chan int64)
	queue.Handle(worker, "ask", func(ctx context.Context, _ string) error {
		job, _ := queue.Current(ctx)
		asked <- job.Costs["tokens"]
		return queue.SetActual(ctx, map[string]int64{"tokens": 90}) // as the provider counted
	})
	stop := serve(worker)
	for range 3 {
		fmt.Println("estimated", <-asked)
	}
	stop()
	// Output:
	// estimated 400
	// estimated 400
	// estimated 400
}

// A budget is a limit with a unit, by the days of a time zone.
func ExampleLimit_budget() {
	options, client, done := endsRedis()
	defer done()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	budget := queue.Limit{
		Limit: throttle.Limit{
			Name: "budget", Algorithm: throttle.FixedWindow,
			Rate: throttle.Rate{Count: 500, Period: 24 * time.Hour}, Location: berlin,
		},
		Per:  []string{"tenant"},
		Unit: "cents",
	}
	publish(options, "ai", queue.QueueLimits{Kinds: []string{"ask"}, Limits: []queue.Limit{budget}}, nil)
	job := queue.Job{Kind: "ask", Tenant: "acme", Payload: "why?", Costs: map[string]int64{"cents": 501}}
	_, err = client.Enqueue(context.Background(), job)
	fmt.Println(err)
	// Output: costs.cents: 501 is more than limit "budget" ever admits at once (500)
}

// An adaptive limit falls by half when the provider asks for fewer calls.
func ExampleLimit_adaptive() {
	limit := queue.Limit{
		Limit:    throttle.Limit{Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(50)},
		Adaptive: true,
	}
	fmt.Println(limit.Validate())
	limit.Limit = throttle.Limit{Name: "account", Algorithm: throttle.Concurrency, Concurrency: 50}
	fmt.Println(limit.Validate())
	// Output:
	// <nil>
	// adaptive: only a limit with a rate adapts
}

// So many jobs of a tenant may wait; others' are still accepted.
func ExampleQueueLimits_backlog() {
	options, client, done := endsRedis()
	defer done()
	publish(options, "sms", queue.QueueLimits{Kinds: []string{"sms"}, MaxBacklog: 2, MaxQueue: 1000}, nil)
	jobs := []queue.Job{
		SendSMS.Job("acme", SMS{}), SendSMS.Job("acme", SMS{}), SendSMS.Job("acme", SMS{}), SendSMS.Job("globex", SMS{}),
	}
	for i, result := range client.EnqueueMany(context.Background(), jobs) {
		fmt.Println(i, result.Err == nil, errors.Is(result.Err, queue.ErrBacklogFull))
	}
	// Output:
	// 0 true false
	// 1 true false
	// 2 false true
	// 3 true false
}
