package queue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/limitmetrics"
)

// Prometheus counts what the limits of a queue decide of direct calls.
func ExampleClient_Observe() {
	options, client, done := endsRedis()
	defer done()
	publish(options, "email", limits.Queue{Limits: []limits.Limit{
		{Name: "account", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}},
	}}, nil)

	registry := prometheus.NewRegistry()
	client.Observe(limitmetrics.New(registry).Observe)
	for range 2 {
		_, err := client.Take(context.Background(), queue.Job{Kind: "email", Queue: "email", Tenant: "acme"})
		fmt.Println(err == nil)
	}

	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if n := metric.GetCounter().GetValue(); n > 0 {
				decision, limit := metric.GetLabel()[0], metric.GetLabel()[1]
				fmt.Println(limit.GetValue(), decision.GetValue(), n)
			}
		}
	}
	// Output:
	// true
	// false
	// email allowed 1
	// email/account allowed 1
	// email/account refused 1
}
