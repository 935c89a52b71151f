package queue_test

import (
	"context"
	"errors"
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
	type receipt struct{ ID string }
	const charge queue.ResultKind[order, receipt] = "charge"
	const mail queue.Kind[string] = "mail"
	queue.HandleResult(worker, charge, func(_ context.Context, o order) (receipt, error) {
		return receipt{fmt.Sprintf("ch_%d", o.Cents)}, nil
	})
	sent := make(chan string)
	queue.Handle(worker, mail, func(ctx context.Context, text string) error {
		job, _ := queue.Current(ctx)
		switch paid, err := charge.ParentResult(job); {
		case err == nil:
			text += " " + paid.ID
		case !errors.Is(err, queue.ErrNoResult):
			return err
		}
		sent <- text
		return nil
	})

	thanks, sorry := mail.Job("acme", "Thank you! Your charge is"), mail.Job("acme", "Sorry, we could not charge you.")
	thanks.Queue, sorry.Queue = "shop", "shop"
	job := charge.Job("acme", order{Cents: 4200})
	job.Queue, job.OnSuccess, job.OnFailure = "shop", &thanks, &sorry
	if _, err = client.Enqueue(context.Background(), job); err != nil {
		panic(err)
	}
	stop := serve(worker)
	fmt.Println(<-sent)
	stop()
	// Output: Thank you! Your charge is ch_4200
}

// The result of a call is kept with its job.
func ExampleHandleResult() {
	options, client, done := endsRedis()
	defer done()
	worker, err := queue.New(queue.Config{Redis: options, Queues: []string{"summary"}})
	if err != nil {
		panic(err)
	}
	type summary struct{ Text string }
	const summarize queue.ResultKind[string, summary] = "summary"
	queue.HandleResult(worker, summarize, func(_ context.Context, text string) (summary, error) {
		// The model is asked here.
		return summary{text[:5]}, nil
	})
	ctx := context.Background()
	job := summarize.Job("acme", "Hello, world")
	job.Retention = time.Hour
	receipt, err := client.Enqueue(ctx, job)
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
		if job.Outcome == "" {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		result, err := summarize.ResultOf(job)
		fmt.Println(job.Outcome, result.Text, err)
		return
	}
	// Output: done Hello <nil>
}
