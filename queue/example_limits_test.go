package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// Two tenants share an account by weight: while both have a backlog, acme gets three
// quarters of it and globex one.
func Example_tenantWeights() {
	ctx, client, stop := redistest.Example()
	defer stop()
	account := limits.Limit{Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(100)}
	err := operate.Publish(ctx, client, limits.Set{
		Queues:  map[string]limits.Queue{"sms": {Kinds: []string{"sms"}, Limits: []limits.Limit{account}}},
		Tenants: map[string]limits.Tenant{"acme": {Weight: 3}}, // the default is 1
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
	page, err := inspect.New(client).ListTenants(ctx, "sms", inspect.TenantQuery{Sort: inspect.ByTenant, Ascending: true})
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

// At most two calls of each tenant are in flight at a time.
func Example_concurrencyLimit() {
	options, client, done := endsRedis()
	defer done()
	inFlight := limits.Limit{
		Name: "in-flight", Algorithm: throttle.Concurrency, Concurrency: 2,
		Per: []string{"tenant"},
	}
	publish(options, "sms", limits.Queue{Kinds: []string{"sms"}, Limits: []limits.Limit{inFlight}}, nil)
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
	queue.Handle(worker, SendSMS, func(context.Context, SMS) error {
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

// A budget is a limit with a unit and a window of a calendar day in a time zone.
func Example_budget() {
	options, client, done := endsRedis()
	defer done()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	budget := limits.Limit{
		Name: "budget", Algorithm: throttle.FixedWindow,
		Rate: throttle.Rate{Count: 500, Period: 24 * time.Hour}, Location: berlin,
		Per:  []string{"tenant"},
		Unit: "cents",
	}
	publish(options, "ai", limits.Queue{Kinds: []string{"ask"}, Limits: []limits.Limit{budget}}, nil)
	job := queue.Job{Kind: "ask", Tenant: "acme", Payload: "why?", Costs: map[string]int64{"cents": 501}}
	_, err = client.Enqueue(context.Background(), job)
	fmt.Println(err)
	// Output: costs.cents: 501 is more than limit "budget" ever admits at once (500)
}

// An adaptive limit is halved when the provider asks for fewer calls.
func Example_adaptiveLimit() {
	limit := limits.Limit{
		Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(50),
		Adaptive: true,
	}
	fmt.Println(limit.Validate())
	limit = limits.Limit{Name: "account", Algorithm: throttle.Concurrency, Concurrency: 50, Adaptive: true}
	fmt.Println(limit.Validate())
	// Output:
	// <nil>
	// adaptive: only a limit with a rate adapts
}

// A backlog cap bounds the waiting jobs of one tenant. Other tenants are not affected.
func Example_backlog() {
	options, client, done := endsRedis()
	defer done()
	publish(options, "sms", limits.Queue{Kinds: []string{"sms"}, MaxBacklog: 2, MaxQueue: 1000}, nil)
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
