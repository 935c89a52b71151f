package queue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/validation"
)

// A key makes a job unique in its tenant: enqueueing it again returns the existing job.
func ExampleClient_Enqueue() {
	_, client, done := endsRedis()
	defer done()
	ctx := context.Background()

	job := SendSMS.Job("acme", SMS{"Ada", "on its way"})
	job.Key = "order-4711"
	first, err := client.Enqueue(ctx, job)
	fmt.Println(first.ID, first.Existing, err)

	again, err := client.Enqueue(ctx, job)
	fmt.Println(again.ID, again.Existing, again.State, err)

	job.Payload = SMS{"Ada", "something else"}
	_, err = client.Enqueue(ctx, job)
	fmt.Println(errors.Is(err, queue.ErrConflict))

	job.Tenant = "globex" // each tenant has its own keys
	other, err := client.Enqueue(ctx, job)
	fmt.Println(other.ID, other.Existing, err)
	// Output:
	// acme:order-4711 false <nil>
	// acme:order-4711 true waiting <nil>
	// true
	// globex:order-4711 false <nil>
}

// A job can say how long its key is taken.
func ExampleKeyUntil() {
	options, client, done := endsRedis()
	defer done()
	ctx := context.Background()
	worker, err := queue.New(queue.Config{Redis: options, Queues: []string{"sync"}})
	if err != nil {
		panic(err)
	}
	called := make(chan string)
	queue.Handle(worker, "sync", func(_ context.Context, name string) error {
		called <- name
		return nil
	})

	job := queue.Job{Kind: "sync", Tenant: "acme", Payload: "contacts", Key: "contacts", KeyUntil: queue.Ended}
	first, _ := client.Enqueue(ctx, job)
	second, _ := client.Enqueue(ctx, job)
	fmt.Println("while it waits:", second.ID == first.ID)

	hourly := queue.Job{Kind: "sync", Tenant: "acme", Payload: "prices", Key: "prices", KeyWindow: time.Hour}
	first, _ = client.Enqueue(ctx, hourly)

	stop := serve(worker)
	<-called
	<-called
	stop() // both have ended

	third, _ := client.Enqueue(ctx, job)
	fmt.Println("ended, by KeyUntil:", third.Existing)
	fourth, _ := client.Enqueue(ctx, hourly)
	fmt.Println("ended, by KeyWindow:", fourth.Existing, fourth.ID == first.ID)
	// Output:
	// while it waits: true
	// ended, by KeyUntil: false
	// ended, by KeyWindow: true true
}

// Each job of a batch is accepted or rejected on its own.
func ExampleClient_EnqueueMany() {
	_, client, done := endsRedis()
	defer done()
	one := SendSMS.Job("acme", SMS{To: "Ada"})
	one.Key = "one"
	other := SendSMS.Job("acme", SMS{To: "Grace"})
	other.Key = "one" // taken by another job
	nobody := SendSMS.Job("", SMS{To: "Linus"})
	last := SendSMS.Job("globex", SMS{To: "Ken"})

	for i, result := range client.EnqueueMany(context.Background(), []queue.Job{one, other, nobody, last}) {
		invalid, isInvalid := errors.AsType[*validation.Error](result.Err)
		switch {
		case result.Err == nil:
			fmt.Println(i, "accepted in", result.Queue)
		case errors.Is(result.Err, queue.ErrConflict):
			fmt.Println(i, "the key is another job's")
		case isInvalid:
			fmt.Println(i, "mistake in", invalid.Field)
		default:
			fmt.Println(i, result.Err)
		}
	}
	// Output:
	// 0 accepted in sms
	// 1 the key is another job's
	// 2 mistake in tenant
	// 3 accepted in sms
}

// A job for later, and a job with a deadline.
func ExampleJob_deadline() {
	options, client, done := endsRedis()
	defer done()
	ctx := context.Background()
	later := SendSMS.Job("acme", SMS{To: "Ada", Text: "how was it?"})
	later.In = 7 * 24 * time.Hour
	later.Deadline = time.Now().Add(8 * 24 * time.Hour)
	receipt, err := client.Enqueue(ctx, later)
	fmt.Println(receipt.State, err)

	later.Deadline = time.Now().Add(time.Hour)
	_, err = client.Enqueue(ctx, later)
	fmt.Println(err)

	code := SendSMS.Job("acme", SMS{To: "Ada", Text: "your code is 1234"})
	code.Deadline = time.Now().Add(2 * time.Second)
	receipt, err = client.Enqueue(ctx, code)
	fmt.Println(receipt.State, err)
	time.Sleep(time.Until(code.Deadline) + 10*time.Millisecond)

	worker, err := queue.New(queue.Config{Redis: options, Queues: []string{"sms"}})
	if err != nil {
		panic(err)
	}
	queue.Handle(worker, SendSMS, func(context.Context, SMS) error { panic("it is too late") })
	stop := serve(worker)
	defer stop()
	fmt.Println(ended(client, receipt).Outcome)
	// Output:
	// scheduled <nil>
	// deadline: must be after the job's earliest time (at or in)
	// waiting <nil>
	// expired
}

// ended waits until a job has ended.
func ended(client *queue.Client, receipt queue.Receipt) queue.JobResult {
	for {
		job, err := client.Result(context.Background(), receipt.Queue, receipt.ID)
		if err != nil {
			panic(err)
		}
		if job.Outcome != "" {
			return job
		}
		time.Sleep(10 * time.Millisecond)
	}
}
