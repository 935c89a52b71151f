package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/stage"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

// TestPaymentsUnderFaults: a thousand charges, of which Stripe's sandbox cuts the
// connection before and after the work, with one of two workers killed, and with
// a failover to a replica that lacks the last fifty charges. No job is charged
// twice, none is lost, and exactly what nobody knows is listed.
//
// Redis copies to its replicas after it has answered. So a failover can lose what
// was accepted last: the jobs of this test are on the replica before it begins,
// but for the last hundred, which their producer sends again with the same keys.
// What it loses of jobs that were made is their end: they are made again, with
// the idempotency key that Stripe knows.
func TestPaymentsUnderFaults(t *testing.T) {
	t.Parallel()
	const jobs, last = 1000, 100
	stripe, err := sandbox.NewStripe(sandbox.Config{Password: "sk_test_e2e"})
	if err != nil {
		t.Fatal(err)
	}
	defer stripe.Close()
	stripe.Slow(100 * time.Millisecond) // so that faults meet calls under way
	var undecided atomic.Int64          // Stripe answers every repeat of these calls with the same error
	stripe.Inject(func(n int) sandbox.StripeFault {
		if n > jobs {
			return sandbox.StripeFine // a job that is struck for the fifth time pauses for ten seconds
		}
		switch n % 20 {
		case 1, 2:
			return sandbox.StripeCutBefore
		case 5, 6:
			return sandbox.StripeCutAfter
		case 9:
			return sandbox.StripeErrorBefore
		}
		if n%100 == 17 {
			undecided.Add(1)
			return sandbox.StripeErrorAfter
		}
		return sandbox.StripeFine
	})

	primary := redistest.Start(t)
	replica := primary.StartReplica()
	s := stage.Bare(t, `
queues:
  payment: {kinds: [payment], limits: [{name: account, algorithm: leaky_bucket, rate: 150/s}]}
`, primary)
	s.URL = primary.StartSentinel(replica).URL()
	var lines strings.Builder
	id := func(n int) string { return fmt.Sprintf("acme:charge-%d", n) }
	for n := range jobs {
		fmt.Fprintf(&lines, `{"kind":"payment","tenant":"acme","key":"charge-%d","payload":{"action":"create_and_confirm","amount":%d,"currency":"usd","payment_method":"pm_card_visa"}}`+"\n", n, 100+n)
	}
	all := strings.SplitAfter(lines.String(), "\n")
	s.Bulk(strings.Join(all[:jobs-last], ""))
	primary.Sync(replica)

	env := []string{
		"HEADGATE_STRIPE_KEY=sk_test_e2e", "HEADGATE_STRIPE_URL=" + stripe.URL(),
		"HEADGATE_BREAKER_PAUSE=1s", // cuts in a row are not to take half a minute
	}
	charged := func(n int) {
		t.Helper()
		s.Until(20*time.Second, fmt.Sprintf("%d charges", n), func() bool { return len(stripe.Ledger()) >= n })
	}
	victim := s.Worker(env...)
	s.Worker(env...)
	charged(200)
	s.Until(5*time.Second, "calls are under way", func() bool { return stripe.InFlight() >= 5 })
	victim.Signal(syscall.SIGKILL)
	<-victim.Done
	s.Worker(env...)
	charged(400)

	// The replica loses its primary, which goes on for a while and then dies.
	before := len(stripe.Ledger())
	if err := replica.Client().ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	s.Bulk(strings.Join(all[jobs-last:], ""))
	charged(before + 50)
	between := len(stripe.Ledger()) - before
	primary.Kill()
	options, err := queue.ParseRedisURL(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewUniversalClient(options)
	defer client.Close()
	began := time.Now()
	s.Until(20*time.Second, "a new primary", func() bool { return client.Set(t.Context(), "probe", 1, time.Minute).Err() == nil })
	t.Logf("a new primary after %v, which knows nothing of the last %d charges", time.Since(began), between)
	again := s.Send(strings.Join(all, "")) // as a producer does that was told nothing
	t.Logf("%d of the last %d jobs were lost with the old primary, and sent again", again, last)
	if again != last {
		t.Errorf("%d jobs were sent again; want the last %d, and none that the replica had", again, last)
	}

	failed := time.Now()
	ended := func(state string) int64 { return client.ZCard(t.Context(), "asynq:{payment}:"+state).Val() }
	s.Until(40*time.Second, "all jobs have ended", func() bool { return ended("completed")+ended("archived") == jobs })

	t.Logf("all jobs have ended, %v later", time.Since(failed).Round(time.Millisecond))

	unknown := map[string]bool{}
	inspector, query := inspect.New(client), inspect.JobQuery{State: lifecycle.StateArchived}
	for first := true; first || query.Cursor != ""; first = false {
		page, err := inspector.ListJobs(t.Context(), "payment", query)
		if err != nil {
			t.Fatal(err)
		}
		query.Cursor = page.Next
		for _, job := range page.Jobs {
			if job.Outcome != lifecycle.Unknown {
				t.Errorf("%s was archived as %s: %s", job.ID, job.Outcome, job.Reason)
			}
			unknown[job.ID] = true
		}
	}
	charges := map[string]int{}
	for _, entry := range stripe.Ledger() {
		charges[entry.Job]++
	}
	for n := range jobs {
		result, err := queue.NewClient(client).Result(t.Context(), "payment", id(n))
		switch {
		case err != nil:
			t.Fatal(err)
		case charges[id(n)] > 1:
			t.Errorf("%s was charged %d times", id(n), charges[id(n)])
		case result.State == "completed" && charges[id(n)] == 1 && strings.Contains(string(result.Result), `"succeeded"`):
		case result.State == "archived" && charges[id(n)] == 1 && unknown[id(n)]:
		default:
			t.Errorf("%s was charged %d times, and is %s: %s", id(n), charges[id(n)], result.State, result.Result)
		}
	}
	if n := stripe.Doubles(); n != 0 || len(charges) > jobs {
		t.Errorf("%d charges were made twice, %d jobs were charged", n, len(charges))
	}
	requests := len(stripe.Calls())
	t.Logf("%d jobs charged once, of which %d are listed as unknown; %d requests", len(charges), len(unknown), requests)
	if len(unknown) == 0 || requests <= jobs {
		t.Error("the faults did not show: no unknown payment, or no request was repeated")
	}
	// All others are known once the call is repeated with its key.
	if n := int(undecided.Load()); len(unknown) > n {
		t.Errorf("%d payments are listed as unknown; at most %d are: %v", len(unknown), n, slices.Sorted(maps.Keys(unknown)))
	}
}
