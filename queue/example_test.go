package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
)

type SMS struct{ To, Text string }

// One constant for the producer and the handler.
const SendSMS queue.Kind[SMS] = "sms"

func newWorker() *queue.Worker {
	worker, err := queue.New(queue.Config{Redis: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}}, Queues: []string{"sms"}})
	if err != nil {
		panic(err)
	}
	return worker
}

func ExampleHandle() {
	worker := newWorker()
	queue.Handle(worker, SendSMS, func(ctx context.Context, sms SMS) error {
		job, _ := queue.Current(ctx)
		fmt.Printf("to %s for %s: %s\n", sms.To, job.Tenant, sms.Text)
		return nil
	})
	// worker.Run serves the queue; Call makes one call, without a queue.
	outcome, err := worker.Call(context.Background(), SendSMS.Job("acme", SMS{"Ada", "on its way"}))
	fmt.Println(outcome, err)
	// Output:
	// to Ada for acme: on its way
	// done <nil>
}

func ExampleWorker_Use() {
	worker := newWorker()
	worker.Use(func(next queue.Handler) queue.Handler {
		return func(ctx context.Context, payload []byte) error {
			err := next(ctx, payload)
			if outcome := queue.OutcomeOf(ctx, err); outcome == lifecycle.Archived {
				fmt.Println("tell somebody:", err)
			}
			return err
		}
	})
	queue.Handle(worker, SendSMS, func(context.Context, SMS) error { return errors.New("no such number") })

	job := SendSMS.Job("acme", SMS{To: "Ada"})
	job.MaxAttempts = 1
	_, _ = worker.Call(context.Background(), job)
	// Output: tell somebody: no such number
}

func ExampleLogging() {
	worker := newWorker()
	stable := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "took" || a.Key == "job" {
			return slog.Attr{}
		}
		return a
	}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: stable}))
	worker.Use(queue.Logging(logger, slog.LevelInfo))
	queue.Handle(worker, SendSMS, func(context.Context, SMS) error { return nil })
	_, _ = worker.Call(context.Background(), SendSMS.Job("acme", SMS{To: "Ada"}))
	// Output: level=INFO msg=call queue=sms kind=sms tenant=acme attempt=1 outcome=done
}

type tenantKey struct{}

func ExampleClient_Use() {
	connection := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer connection.Close()
	client := queue.NewClient(connection)
	client.Use(func(ctx context.Context, job *queue.Job) error {
		tenant, ok := ctx.Value(tenantKey{}).(string) // as a web server's middleware found it
		if !ok {
			return errors.New("nobody is signed in")
		}
		job.Tenant = tenant
		return nil
	})
	_, err := client.Enqueue(context.Background(), SendSMS.Job("", SMS{To: "Ada"}))
	fmt.Println(err)
	// Output: nobody is signed in
}
