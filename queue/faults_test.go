package queue

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/chores"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// TestFaults: faults reported by scripts are listed by time, whatever texts they quote.
func TestFaults(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	ctx, client := t.Context(), r.server.Client()
	if faults, err := inspect.Faults(ctx, client, r.queue); err != nil || len(faults) != 0 {
		t.Fatalf("without any: %v, %v", faults, err)
	}
	client.HSet(ctx, store.Key(r.queue, "faults"),
		"job 17", "1700000000000002 WRONGTYPE it is a list",
		"lane \x1b[31m\nacme\x9b", "1700000000000001 \x1b[2Jfield\r\nhg_cost is \xff",
		"bucket b", "no time at all",
		"lane "+strings.Repeat("x", 5000), "1700000000000003 "+strings.Repeat("y", 5000),
	)
	faults, err := inspect.Faults(ctx, client, r.queue)
	if err != nil || len(faults) != 4 {
		t.Fatalf("%+v, %v", faults, err)
	}
	for i, want := range []inspect.Fault{
		{What: "bucket b", Reason: "no time at all"},
		{What: "lane  [31m acme?", Reason: " [2Jfield  hg_cost is ?", At: time.UnixMicro(1700000000000001)},
		{What: "job 17", Reason: "WRONGTYPE it is a list", At: time.UnixMicro(1700000000000002)},
	} {
		if faults[i] != want {
			t.Errorf("%d: %+v; want %+v", i, faults[i], want)
		}
	}
	if long := faults[3]; len(long.What) > store.MaxFaultText || len(long.Reason) > store.MaxFaultText {
		t.Errorf("%d and %d bytes", len(long.What), len(long.Reason))
	}
	overview, err := inspect.New(client).Overview(ctx, r.queue)
	if err != nil || len(overview.Faults) != 4 {
		t.Errorf("the overview has %v, %v", overview.Faults, err)
	}
	if gauges, err := inspect.New(client).Gauges(ctx, r.queue); err != nil || gauges.Faults != 4 {
		t.Errorf("the gauges have %d, %v", gauges.Faults, err)
	}

	// The key of the faults may have another type.
	client.Del(ctx, store.Key(r.queue, "faults"))
	client.Set(ctx, store.Key(r.queue, "faults"), "x", 0)
	faults, err = inspect.Faults(ctx, client, r.queue)
	if err != nil || len(faults) != 1 || faults[0].What != store.Key(r.queue, "faults") || !strings.Contains(faults[0].Reason, "WRONGTYPE") {
		t.Errorf("a key of another type: %+v, %v", faults, err)
	}
	if gauges, err := inspect.New(client).Gauges(ctx, r.queue); err != nil || gauges.Faults != 1 {
		t.Errorf("a key of another type: the gauges have %d, %v", gauges.Faults, err)
	}
}

// TestScriptsReportFaults: a script that cannot read a key reports a fault and goes on with
// the other keys.
func TestScriptsReportFaults(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(100)), nil)
	ctx, client := t.Context(), r.server.Client()
	r.add(t, nil)
	client.Set(ctx, asynqwire.Key(r.queue, "pending"), "x", 0)
	if gauges, err := inspect.New(client).Gauges(ctx, r.queue); err != nil || gauges.Waiting != 1 || gauges.Pending != 0 {
		t.Errorf("the gauges of a queue of which one key is damaged: %+v, %v", gauges, err)
	}
	faults, err := inspect.Faults(ctx, client, r.queue)
	if err != nil || len(faults) == 0 || !strings.Contains(faults[0].Reason, "WRONGTYPE") || time.Since(faults[0].At).Abs() > time.Hour {
		t.Errorf("%+v, %v", faults, err)
	}
}

// TestFaultsAreLoggedOnce: the worker logs each new fault once, and again only if it comes
// back after it was forgotten.
func TestFaultsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	ctx, client := t.Context(), r.server.Client()
	logged := &logtest.Buffer{}
	c := chores.New(r.queue, partition.Layout{Queue: r.queue, N: 1}, client, nil, slog.New(slog.NewTextHandler(logged, nil)))
	look := func(want ...string) {
		t.Helper()
		logged.Reset()
		if err := c.LogFaults(ctx); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(logged.String(), "level=ERROR"); n != len(want) {
			t.Errorf("%d lines; want %d:\n%s", n, len(want), logged)
		}
		for _, what := range want {
			if !strings.Contains(logged.String(), fmt.Sprintf("queue=%s what=%q", r.queue, what)) {
				t.Errorf("nothing about %s:\n%s", what, logged)
			}
		}
	}
	look()
	client.HSet(ctx, store.Key(r.queue, "faults"), "job 17", "1700000000000002 odd", "job 18", "1700000000000002 odd")
	look("job 17", "job 18")
	look()
	client.HSet(ctx, store.Key(r.queue, "faults"), "job 19", "1700000000000003 odd")
	look("job 19")
	client.Del(ctx, store.Key(r.queue, "faults"))
	look()
	client.HSet(ctx, store.Key(r.queue, "faults"), "job 17", "1700000000000009 odd")
	look("job 17")
}

// TestWorkerLogsFaults: the worker logs faults even while dispatch fails, when they matter
// most.
func TestWorkerLogsFaults(t *testing.T) {
	t.Parallel()
	logged := &logtest.Buffer{}
	r := startRig(t, 0, limitsOf(), func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(logged, nil)) })
	client := r.server.Client()
	client.Set(t.Context(), store.Key(r.queue, "waiting"), "x", 0)
	r.run(t)
	until(t, "logged", func() bool { return strings.Contains(logged.String(), "a script found damaged data in Redis") })
	client.Del(t.Context(), store.Key(r.queue, "waiting")) // or the end of the worker is logged as a failure
}

// TestDamagedQueueKeys: if a key of the whole queue is damaged, the queue goes on without it,
// or nothing goes; but not every round fails with an error.
func TestDamagedQueueKeys(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		damaged string
		goes    bool
	}{
		{"totals", true}, {"deadlines", true}, {"retry", true}, {"scheduled", true},
		{"pending", true}, {"waiting", false}, {"ready", false},
	} {
		t.Run(test.damaged, func(t *testing.T) {
			r := startRig(t, -1, limitsOf(perTenant(1000)), nil)
			client, ctx := r.server.Client(), t.Context()
			r.enqueue(t, "a", 1)
			name := store.Key(r.queue, test.damaged)
			if slices.Contains([]string{"retry", "scheduled", "pending"}, test.damaged) {
				name = asynqwire.Key(r.queue, test.damaged)
			}
			kept := client.Dump(ctx, name).Val()
			client.Del(ctx, name)
			client.Set(ctx, name, "damaged", 0)
			d := r.dispatcher()
			for range 2 {
				if _, err := d.round(ctx, 100); err != nil {
					t.Fatal(err)
				}
			}
			faults, err := inspect.Faults(ctx, client, r.queue)
			if err != nil || len(faults) != 1 {
				t.Errorf("faults %+v, %v; want one", faults, err)
			}
			active := asynqwire.Key(r.queue, "active")
			if n := client.LLen(ctx, active).Val(); (n == 1) != test.goes {
				t.Errorf("%d jobs went", n)
			}
			client.Del(ctx, name)
			if kept != "" {
				client.Restore(ctx, name, 0, kept)
			}
			if ids := r.release(t, d, 100); len(ids) != 1 {
				t.Errorf("%d jobs went after it was mended", len(ids))
			}
		})
	}
}

// faultsOf returns what the scripts reported for a queue, without times.
func faultsOf(t *testing.T, r *rig) string {
	t.Helper()
	faults, err := inspect.Faults(t.Context(), r.server.Client(), r.queue)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range faults {
		all = append(all, f.What+": "+f.Reason)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// TestDamagedCountsRefuseNothing: a queue whose counts cannot be read accepts jobs in spite of its caps, and says so.
func TestDamagedCountsRefuseNothing(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limits.Set{Queues: map[string]limits.Queue{"": {MaxQueue: 1}}}, nil)
	r.add(t, nil)
	r.server.Client().HSet(t.Context(), store.TenantsKey(r.queue), "*", "no counts")
	r.add(t, nil)
	if text := faultsOf(t, r); !strings.Contains(text, `tenant *: "no counts" are no counts`) {
		t.Errorf("faults: %s", text)
	}
}

// TestSweepOfDamagedLimits: a sweep of a queue whose limits cannot be read moves nothing and ends.
func TestSweepOfDamagedLimits(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	r.add(t, nil)
	// A lane that asynq's tools made, whose name has its parts in another order than ours.
	odd := "a;kind=call;endpoint=x"
	client.ZAdd(t.Context(), asynqwire.Key(r.queue, "g:"+odd), redis.Z{Score: 1, Member: "y"})
	client.SAdd(t.Context(), asynqwire.Key(r.queue, "groups"), odd)
	sweep := func() string {
		t.Helper()
		reply, err := store.SweepScript.Run(t.Context(), client, store.ScriptKeys(r.queue), r.queue, "0", "", "", 1)
		return fmt.Sprint(reply, err)
	}
	if got := sweep(); !strings.HasPrefix(got, "[0 ") {
		t.Errorf("a sweep answers %s", got)
	}
	if kinds := client.SMembers(t.Context(), store.Key(r.queue, "kinds")).Val(); !slices.Equal(kinds, []string{"call"}) {
		t.Errorf("the kinds are %q", kinds)
	}
	client.HSet(t.Context(), store.Key(r.queue, "limits"), "*", "{")
	if got := sweep(); got != "[0 0] <nil>" {
		t.Errorf("with damaged limits a sweep answers %s", got)
	}
	if text := faultsOf(t, r); !strings.HasPrefix(text, "limits: ") {
		t.Errorf("faults: %s", text)
	}
}
