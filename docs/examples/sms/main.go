// Command sms runs a worker for a kind of its own, or enqueues a job for it.
//
//	go run ./docs/examples/sms            # the worker
//	go run ./docs/examples/sms +49…       # a job for it
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// SMS is the payload of a job.
type SMS struct{ To, Text string }

// sendSMS is shared by producer and worker, so another payload type does not compile.
const sendSMS queue.Kind[SMS] = "sms"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	options, err := queue.ParseRedisURL("redis://127.0.0.1:6379")
	if err != nil {
		log.Fatal(err)
	}
	if len(os.Args) > 1 {
		err = enqueue(ctx, options, SMS{To: os.Args[1], Text: "Your order is on its way."})
	} else {
		err = work(ctx, options)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func enqueue(ctx context.Context, options *redis.UniversalOptions, sms SMS) error {
	client := redis.NewUniversalClient(options)
	defer client.Close()
	receipt, err := queue.NewClient(client).Enqueue(ctx, sendSMS.Job("acme", sms))
	fmt.Println(receipt.ID)
	return err
}

func work(ctx context.Context, options *redis.UniversalOptions) error {
	client := redis.NewUniversalClient(options)
	defer client.Close()
	perTenant := limits.Limit{Name: "tenant", Rate: throttle.PerSecond(10), Burst: 20, Algorithm: throttle.TokenBucket, Per: []string{"tenant"}}
	err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{
		"sms": {Kinds: []string{"sms"}, Limits: []limits.Limit{perTenant}},
	}})
	if err != nil {
		return err
	}
	worker, err := queue.New(queue.Config{Redis: options, Queues: []string{"sms"}, Logger: slog.Default()})
	if err != nil {
		return err
	}
	queue.Handle(worker, sendSMS, func(_ context.Context, sms SMS) error {
		fmt.Println("to", sms.To, ":", sms.Text) // call the provider here
		return nil
	})
	return worker.Run(ctx)
}
