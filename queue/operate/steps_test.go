package operate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// TestVerbsInShortSteps: the work of a step is bounded, in jobs and in commands, however
// long a lane is and however many lanes there are.
func TestVerbsInShortSteps(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const jobs = 4000
	server := redistest.Start(t)
	// Beside tests that go before all others, an answer can take seconds.
	client, ctx := server.Client().WithTimeout(time.Minute), t.Context()
	if err := Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{"q": {Limits: []limits.Limit{
		{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(10), Per: []string{"tenant"}},
		{Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(300)},
		{Name: "in-flight", Algorithm: throttle.Concurrency, Concurrency: 5, Per: []string{"tenant"}},
	}}}}); err != nil {
		t.Fatal(err)
	}
	var all []queue.Job
	for i := range jobs / 2 {
		all = append(all, queue.Job{Kind: "call", Queue: "q", Tenant: "deep"}, queue.Job{Kind: "call", Queue: "q", Tenant: fmt.Sprint("t", i)})
	}
	for _, result := range queue.NewClient(client).EnqueueMany(ctx, all) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	for _, test := range []struct {
		verb     Verb
		apply    bool
		most     int64
		commands float64
	}{
		{Cancel, false, lookSlice, 400}, {Cancel, true, changeSlice, 1000}, {RetryArchived, true, changeSlice, 1000},
		{RunNow, true, changeSlice, 1000}, {Cancel, true, changeSlice, 1000}, {DeleteArchived, true, changeSlice, 1000},
	} {
		var before Tally
		steps, most, commands := 0, int64(0), 0.0
		known := commandsOf(t, client)
		progress := func(now Tally) {
			calls := commandsOf(t, client)
			most, commands = max(most, now.Jobs-before.Jobs), max(commands, calls-known)
			steps++
			before, known = now, calls
		}
		v := &verbRun{
			client: client, queue: "q", verb: test.verb, began: time.Now().Add(time.Minute).UnixMicro(), progress: progress,
			windows: &effective.Calendars{Queue: "q", Redis: client}, entry: "program {",
		}
		if test.apply {
			v.by = &Operator{Actor: "ann", Reason: "a test"}
		}
		for _, p := range test.verb.places() {
			if p.name == "lanes" {
				if err := v.lanes(ctx); err != nil {
					t.Fatal(err)
				}
			} else if err := v.walk(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%s of %d jobs: %d steps, of at most %d jobs and %.0f commands", test.verb, v.tally.Jobs, steps, most, commands)
		if v.tally.Jobs != jobs || most > test.most || v.longest > test.most {
			t.Errorf("%s: %d jobs, at most %d changed and %d looked at in one step; want %d and at most %d", test.verb, v.tally.Jobs, most, v.longest, jobs, test.most)
		}
		if commands > test.commands {
			t.Errorf("%s: %.0f commands in one step; want at most %.0f", test.verb, commands, test.commands)
		}
	}
	if left := client.Keys(ctx, asynqwire.Key("q", "t:*")).Val(); len(left) > 0 {
		t.Errorf("%d jobs are left of those that were deleted", len(left))
	}
}

// commandsOf returns how many commands a Redis has run, including those of scripts.
func commandsOf(t *testing.T, client *redis.Client) (all float64) {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		_, rest, _ := strings.Cut(line, ":")
		var calls float64
		if _, err := fmt.Sscanf(rest, "calls=%f,", &calls); err == nil {
			all += calls
		}
	}
	return all
}
