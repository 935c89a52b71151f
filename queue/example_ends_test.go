package queue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/queue"
)

// endsRedis returns a client of a Redis that only one example uses.
func endsRedis() (*redis.UniversalOptions, *queue.Client, func()) {
	server, err := embedded.Start(embedded.Options{Miniredis: true})
	if err != nil {
		panic(err)
	}
	options, err := queue.ParseRedisURL(server.URL())
	if err != nil {
		panic(err)
	}
	client := redis.NewUniversalClient(options)
	return options, queue.NewClient(client), func() { client.Close(); server.Close() }
}

// serve runs a worker until the function that it returns is called.
func serve(worker *queue.Worker) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			panic(err)
		}
	}
}

// A job with follow-ups: a receipt if the charge succeeded, an apology if it failed.
func ExampleJob_chain() {
	options, client, done := endsRedis()
	defer done()
	worker, err := queue.New(queue.Config{Redis: options, Queues: []string{"shop"}})
	if err != nil {
		panic(err)
	}
	type order struct{ Cents int }
	type charge struct{ ID string }
	queue.HandleResult(worker, "charge", func(_ context.Context, o order) (charge, error) {
		return charge{fmt.Sprintf("ch_%d", o.Cents)}, nil
	})
	sent := make(chan string)
	queue.Handle(worker, "mail", func(ctx context.Context, text string) error {
		job, _ := queue.Current(ctx)
		sent <- fmt.Sprintf("%s %s", text, job.ParentResult)
		return nil
	})

	_, err = client.Enqueue(context.Background(), queue.Job{
		Kind: "charge", Tenant: "acme", Queue: "shop", Payload: order{Cents: 4200},
		OnSuccess: &queue.Job{Kind: "mail", Queue: "shop", Payload: "Thank you! Your charge is"},
		OnFailure: &queue.Job{Kind: "mail", Queue: "shop", Payload: "Sorry, we could not charge you."},
	})
	if err != nil {
		panic(err)
	}
	stop := serve(worker)
	fmt.Println(<-sent)
	stop()
	// Output: Thank you! Your charge is {"ID":"ch_4200"}
}

// The result of a call is kept with its job.
func ExampleSetResult() {
	options, client, done := endsRedis()
	defer done()
	worker, err := queue.New(queue.Config{Redis: options, Queues: []string{"ai"}})
	if err != nil {
		panic(err)
	}
	queue.Handle(worker, "summary", func(ctx context.Context, text string) error {
		// The model is asked here.
		return queue.SetResult(ctx, map[string]string{"summary": text[:5]})
	})
	ctx := context.Background()
	receipt, err := client.Enqueue(ctx, queue.Job{
		Kind: "summary", Tenant: "acme", Queue: "ai", Payload: "Hello, world", Retention: time.Hour,
	})
	if err != nil {
		panic(err)
	}
	stop := serve(worker)
	defer stop()
	for {
		job, err := client.Result(ctx, receipt.Queue, receipt.ID)
		if err != nil {
			panic(err)
		}
		if job.Outcome != "" {
			fmt.Println(job.Outcome, string(job.Result))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	// Output: done {"summary":"Hello"}
}
