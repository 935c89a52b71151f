package queue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// publish puts the limits of one queue in force.
func publish(options *redis.UniversalOptions, name string, set limits.Queue, tenants map[string]limits.Tenant) {
	client := redis.NewUniversalClient(options)
	defer client.Close()
	err := operate.Publish(context.Background(), client, limits.Set{
		Queues: map[string]limits.Queue{name: set}, Tenants: tenants,
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
	queue.Handle(worker, SendSMS, func(_ context.Context, sms SMS) error {
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

// Jobs take an estimate from a budget of tokens, and get back what the call did not use. If
// the estimates stayed charged, only two of the three jobs would go.
func ExampleSetActual() {
	options, client, done := endsRedis()
	defer done()
	tokens := limits.Limit{
		Name: "tokens", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}, Burst: 1000,
		Per:  []string{"tenant"},
		Unit: "tokens",
	}
	publish(options, "ai", limits.Queue{Kinds: []string{"ask"}, Limits: []limits.Limit{tokens}}, nil)
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
