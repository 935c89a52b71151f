package queue_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
)

// A program sets its periodic jobs whenever it starts. Workers fire them.
func ExampleClient_SetPeriodic() {
	ctx, store, stop := redistest.Example()
	defer stop()
	client := queue.NewClient(store)
	type Report struct{ Day string }
	err := client.SetPeriodic(ctx, queue.Periodic{
		ID: "morning-report", Spec: "30 7 * * mon-fri", Zone: "Europe/Berlin",
		Job: queue.Job{Kind: "report", Tenant: "acme", Payload: Report{Day: "yesterday"}},
	})
	if err != nil {
		panic(err)
	}
	err = client.SetPeriodic(ctx, queue.Periodic{
		ID: "cleanup", Spec: "0 0 30 2 *", Job: queue.Job{Kind: "cleanup"},
	})
	fmt.Println(err)
	entries, err := client.ListPeriodic(ctx)
	if err != nil {
		panic(err)
	}
	for _, entry := range entries {
		fmt.Println(entry.ID, entry.Spec, entry.Zone, entry.LastFired.IsZero(), entry.Next.UTC().Minute())
	}
	// Output:
	// zone: it is required; write a name such as Europe/Berlin or UTC
	// job.tenant: it is empty
	// morning-report 30 7 * * mon-fri Europe/Berlin true 30
}

// A handler can read the tick of its job.
func ExampleRunning_tick() {
	worker, err := queue.New(queue.Config{Redis: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}}, Queues: []string{"report"}})
	if err != nil {
		panic(err)
	}
	queue.Handle(worker, "report", func(ctx context.Context, _ struct{ Day string }) error {
		job, _ := queue.Current(ctx)
		if job.Periodic != "" {
			fmt.Println("the report of", job.Tick.AddDate(0, 0, -1).Format("Monday"))
		}
		return nil
	})
}
