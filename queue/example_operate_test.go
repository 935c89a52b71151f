package queue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// tooMany is a provider's 429. Package clients has such errors ready-made.
type tooMany struct{ after time.Duration }

func (tooMany) Error() string               { return "429 Too Many Requests" }
func (e tooMany) RetryAfter() time.Duration { return e.after }
func (tooMany) WholeAccount() bool          { return false } // true: the whole queue pauses

// A 429 spends no attempt: the tenant is paused for as long as the provider asks.
func ExampleHandle_throttled() {
	options, client, done := endsRedis()
	defer done()
	worker, err := queue.New(queue.Config{Redis: options, Queues: []string{"sms"}})
	if err != nil {
		panic(err)
	}
	calls := make(chan int, 2)
	refused := false
	queue.Handle(worker, SendSMS, func(ctx context.Context, _ SMS) error {
		job, _ := queue.Current(ctx)
		calls <- job.Attempt
		if !refused {
			refused = true
			return tooMany{300 * time.Millisecond}
		}
		return nil
	})
	job := SendSMS.Job("acme", SMS{To: "Ada"})
	job.MaxAttempts = 1
	if _, err := client.Enqueue(context.Background(), job); err != nil {
		panic(err)
	}
	stop := serve(worker)
	defer stop()
	fmt.Println("attempt", <-calls)
	began := time.Now()
	fmt.Println("attempt", <-calls, "and a pause:", time.Since(began) > 250*time.Millisecond)
	// Output:
	// attempt 1
	// attempt 1 and a pause: true
}

// An operator pauses a tenant's jobs and resumes them.
func ExamplePauseJobs() {
	ctx, client, stop := redistest.Example()
	defer stop()
	if err := operate.Publish(ctx, client, tenantLimit(throttle.PerSecond(10))); err != nil {
		panic(err)
	}
	jobs := queue.NewClient(client)
	by := operate.Operator{Actor: "ann", Reason: "bounces"}
	scope := inspect.Scope{Tenant: "acme"}
	pause, err := operate.PauseJobs(ctx, client, "sms", scope, time.Time{}, by) // until resumed
	fmt.Println(pause.Scope, pause.By, pause.Reason, err)

	receipt, err := jobs.Enqueue(ctx, SendSMS.Job("acme", SMS{To: "Ada"})) // still accepted
	if err != nil {
		panic(err)
	}
	job, err := inspect.New(client).Explain(ctx, receipt.Queue, receipt.ID)
	fmt.Println(job.State, job.Pause != nil, job.Confidence, err)

	resumed, err := operate.ResumeJobs(ctx, client, "sms", scope, by)
	fmt.Println(resumed, err)
	resumed, err = operate.ResumeJobs(ctx, client, "sms", scope, by)
	fmt.Println(resumed, err)
	// Output:
	// tenant acme operator ann: bounces <nil>
	// waiting true none <nil>
	// true <nil>
	// false <nil>
}

// Operators can count, cancel, retry and delete jobs.
func ExampleApply() {
	ctx, client, stop := redistest.Example()
	defer stop()
	jobs := queue.NewClient(client)
	for _, tenant := range []string{"acme", "acme", "globex"} {
		if _, err := jobs.Enqueue(ctx, SendSMS.Job(tenant, SMS{To: "Ada"})); err != nil {
			panic(err)
		}
	}
	by := operate.Operator{Actor: "ann", Reason: "wrong template"}
	acme := operate.Filter{Tenant: "acme"}
	would, err := operate.Count(ctx, client, "sms", operate.Cancel, acme)
	fmt.Println("would cancel", would.Jobs, err)
	for _, verb := range []operate.Verb{operate.Cancel, operate.RetryArchived, operate.Cancel, operate.DeleteArchived} {
		tally, err := operate.Apply(ctx, client, "sms", verb, acme, by, nil)
		fmt.Println(verb, tally.Jobs, err)
		archived, err := inspect.New(client).ListJobs(ctx, "sms", inspect.JobQuery{State: lifecycle.StateArchived})
		if err != nil {
			panic(err)
		}
		for _, job := range archived.Jobs {
			fmt.Println("  archived:", job.Outcome, job.Reason)
		}
	}
	// Output:
	// would cancel 2 <nil>
	// cancel 2 <nil>
	//   archived: cancelled cancelled by ann: wrong template
	//   archived: cancelled cancelled by ann: wrong template
	// retry 2 <nil>
	// cancel 2 <nil>
	//   archived: cancelled cancelled by ann: wrong template
	//   archived: cancelled cancelled by ann: wrong template
	// delete 2 <nil>
}

// tenantLimit is one limit for each tenant of the queue sms.
func tenantLimit(rate throttle.Rate) limits.Set {
	limit := limits.Limit{
		Name: "tenant", Algorithm: throttle.TokenBucket, Rate: rate,
		Per: []string{"tenant"},
	}
	return limits.Set{Queues: map[string]limits.Queue{"sms": {Kinds: []string{"sms"}, Limits: []limits.Limit{limit}}}}
}

// A limit is raised for one tenant for two hours. The audit has who did it.
func ExampleSetOverride() {
	ctx, client, stop := redistest.Example()
	defer stop()
	if err := operate.Publish(ctx, client, tenantLimit(throttle.PerSecond(10))); err != nil {
		panic(err)
	}
	rate := throttle.PerSecond(50)
	err := operate.SetOverride(ctx, client, "sms", "acme", "tenant", operate.Override{
		Change: limits.Change{Rate: &rate}, Until: time.Now().Add(2 * time.Hour), Actor: "ann", Reason: "launch day",
	})
	if err != nil {
		panic(err)
	}
	for _, tenant := range []string{"acme", "globex"} {
		limits, err := inspect.LimitsInForce(ctx, client, "sms", tenant)
		if err != nil {
			panic(err)
		}
		fmt.Println(tenant, limits[0].Name, limits[0].Rate, "from the", limits[0].From)
	}
	cleared, err := operate.ClearOverride(ctx, client, "sms", "acme", "tenant", operate.Operator{Actor: "ann", Reason: "it is over"})
	fmt.Println(cleared, err)

	entries, err := operate.Audit(ctx, client, "sms", 2)
	if err != nil {
		panic(err)
	}
	for _, entry := range entries {
		fmt.Println(entry.Actor, entry.Action, entry.Tenant, entry.Limit, entry.Reason)
	}
	// Output:
	// acme tenant 50/s from the override
	// globex tenant 10/s from the queue
	// true <nil>
	// ann clear acme tenant it is over
	// ann override acme tenant launch day
}

// Why does a job wait, and when will it go?
func ExampleInspector_Explain() {
	ctx, client, stop := redistest.Example()
	defer stop()
	if err := operate.Publish(ctx, client, tenantLimit(throttle.Rate{Count: 1, Period: time.Minute})); err != nil {
		panic(err)
	}
	var receipt queue.Receipt
	for range 4 {
		var err error
		if receipt, err = queue.NewClient(client).Enqueue(ctx, SendSMS.Job("acme", SMS{To: "Ada"})); err != nil {
			panic(err)
		}
	}
	job, err := inspect.New(client).Explain(ctx, receipt.Queue, receipt.ID)
	if err != nil {
		panic(err)
	}
	fmt.Println(job.State, "behind", job.Position, "held by", job.HeldBy)
	fmt.Println("in", job.At.Sub(job.Now).Round(10*time.Second), job.Confidence)
	// Output:
	// waiting behind 3 held by limit "tenant" (1/min)
	// in 3m0s steady
}

// When would these jobs be done?
func ExampleInspector_Estimate() {
	ctx, client, stop := redistest.Example()
	defer stop()
	if err := operate.Publish(ctx, client, tenantLimit(throttle.PerSecond(10))); err != nil {
		panic(err)
	}
	inspector := inspect.New(client)
	estimate, err := inspector.Estimate(ctx, "sms", inspect.Batch{Tenant: "acme", Jobs: 6000})
	if err != nil {
		panic(err)
	}
	fmt.Println(estimate.Last.Sub(estimate.Now).Round(10*time.Second), estimate.HeldBy, estimate.Confidence)

	// Nothing was enqueued.
	overview, err := inspector.Overview(ctx, "sms")
	fmt.Println(overview.Enqueued, err)
	// Output:
	// 10m0s limit "tenant" (10/s) steady
	// 0 <nil>
}
