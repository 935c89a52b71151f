package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limitsfile"
	"github.com/headgate/headgate/queue/operate"
)

// ofFleets are what operators do, and what many jobs do at once.
var ofFleets = []scenario{
	{
		name: "rolling", fault: "rolling restart of two workers, twenty times",
		jobs: 5000, latency: 50 * time.Millisecond,
		strike: func(x *show) {
			for i := range 20 {
				x.Worker()
				old := x.Workers[i]
				old.Signal(syscall.SIGTERM)
				<-old.Done
			}
		},
		promise: promise{used: 0.9},
	},
	{
		name: "flipping-limits", fault: "the limits change between 100/s and 50/s ten times a second, for 10 s: published, and in the file",
		jobs: 1500, strike: (*show).flip,
		promise: promise{used: 0.4},
	},
	{
		name: "moving", fault: "the tenant moves to another partition of its queue and back, five times",
		limits: inPartition(1), jobs: 2500,
		strike: func(x *show) {
			for i := range 10 {
				x.move(2 - i%2)
				x.moved(2 - i%2)
			}
		},
		promise: promise{used: 0.3},
	},
	{
		name: "moving-killed", fault: "the tenant moves to another partition and back, and each time both workers are killed with -9, one after the other; new ones start",
		limits: inPartition(1), jobs: 2500,
		strike: func(x *show) {
			for i := range 2 {
				x.move(2 - i)
				for k := range 2 {
					x.kill(2*i + k)
					x.heal()
					x.Worker()
				}
				x.moved(2 - i)
			}
		},
		promise: promise{twice: 40, flows: 15 * time.Second, again: 15 * time.Second},
	},
	{
		name: "archive", fault: "11,000 jobs are refused for good and archived",
		rate: 500, jobs: 14000, struck: true,
		strike: func(x *show) {
			x.Order("/fail?n=11000&status=400")
			x.Until(2*time.Minute, "they are archived", func() bool { return x.archived() >= 11000 })
		},
		after: func(x *show) {
			if n := x.archived(); n != 11000 {
				x.T.Errorf("%d jobs are in the archive", n)
			}
			inspector, query, listed := inspect.New(x.Redis.Client()), inspect.JobQuery{State: lifecycle.StateArchived, Limit: 200}, 0
			for first := true; first || query.Cursor != ""; first = false {
				page, err := inspector.ListJobs(x.T.Context(), "webhook", query)
				if err != nil {
					x.T.Fatal(err)
				}
				query.Cursor, listed = page.Next, listed+len(page.Jobs)
			}
			if listed != 11000 {
				x.T.Errorf("%d archived jobs are listed", listed)
			}
		},
		promise: promise{used: 0.8},
	},
	{
		name: "retries", fault: "100,000 retries of another tenant are due at one instant",
		jobs: 8000, strike: (*show).manyRetries,
		after: func(x *show) {
			x.Wait(tenant, x.jobs, 2*time.Minute)
		},
		promise: promise{used: 0.8, unended: true},
	},
}

func inPartition(i int) string {
	return fmt.Sprintf(`queues: {webhook: {kinds: [webhook], partitions: 2, limits: [{name: tenant, per: [tenant], algorithm: token_bucket, rate: 100/s, burst: 1}]}}
tenants: {%s: {partition: %d}}`, tenant, i)
}

// move changes the partition of the tenant in the limits file.
func (x *show) move(partition int) {
	x.T.Helper()
	x.replace(inPartition(partition))
}

// moved waits until the tenant has moved.
func (x *show) moved(partition int) {
	x.T.Helper()
	x.Until(time.Minute, "the tenant has moved", func() bool {
		fields, err := x.Redis.Client().HMGet(x.T.Context(), "headgate:{webhook}:limits", "*", "pins").Result()
		limits, pins := fmt.Sprint(fields[0]), fmt.Sprint(fields[1])
		return err == nil && pins == fmt.Sprintf(`{"%s":%d}`, tenant, partition) && !strings.Contains(limits, `"from":`)
	})
}

// flip changes the limits again and again. A worker does not read a file that still changes, so they are published, too.
func (x *show) flip() {
	x.T.Helper()
	client, ctx := x.Redis.Client(), x.T.Context()
	limit := func(rate int) (inForce string) {
		text := fmt.Sprintf(`queues: {webhook: {kinds: [webhook], limits: [{name: tenant, per: [tenant], algorithm: token_bucket, rate: %d/s}]}}`, rate)
		x.replace(text)
		set, err := limitsfile.Parse([]byte(text))
		if err == nil {
			err = operate.Publish(ctx, client, set)
		}
		if err != nil {
			x.T.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // the fault itself
		if set, err = operate.Published(ctx, client, "webhook"); err != nil {
			x.T.Fatal(err)
		}
		return set.Queues["webhook"].Limits[0].Rate.String()
	}
	was, changes, least := "", 0, 80
	for range 50 {
		for _, rate := range []int{50, 100} {
			if now := limit(rate); now != was {
				was, changes = now, changes+1
			}
		}
	}
	if x.T.Logf("%d limits were in force, one after another", changes); changes < least {
		x.T.Errorf("%d limits were in force, one after another, of at least %d", changes, least)
	}
}

// replace replaces the limits file.
func (x *show) replace(text string) {
	x.T.Helper()
	path := x.Write("limits.new", text)
	if err := os.Rename(path, filepath.Join(x.Dir, "limits.yaml")); err != nil {
		x.T.Fatal(err)
	}
}

func (x *show) archived() int64 {
	client, ctx := x.Redis.Client(), x.T.Context()
	return client.ZCard(ctx, "asynq:{webhook}:archived").Val() + client.ZCard(ctx, "headgate:{webhook}:archive").Val()
}

// manyRetries ends when all of them are back in their lane.
func (x *show) manyRetries() {
	const other, n = "other", 100_000
	x.send(other, n, `,"in":"1h"`)
	client, ctx := x.Redis.Client(), x.T.Context()
	due := time.Now().Add(10 * time.Second).Unix()
	for {
		// As if the calls of all of them had failed at once.
		left, err := client.Eval(ctx, `local ids = redis.call('ZRANGE', KEYS[1], 0, 499)
for _, id in ipairs(ids) do
  redis.call('HSET', 'asynq:{webhook}:t:' .. id, 'state', 'retry')
  redis.call('ZREM', KEYS[1], id)
  redis.call('ZADD', KEYS[2], ARGV[1], id)
end
return redis.call('ZCARD', KEYS[1])`, []string{"asynq:{webhook}:scheduled", "asynq:{webhook}:retry"}, due).Int()
		if err != nil {
			x.T.Fatal(err)
		}
		if left == 0 {
			break
		}
	}
	x.T.Logf("all are to be retried, %v before they are due", time.Until(time.Unix(due, 0)))
	x.began = time.Unix(due, 0)
	x.Until(90*time.Second, "all retries are in their lane", func() bool {
		return time.Now().After(x.began) && client.ZCard(ctx, "asynq:{webhook}:retry").Val() == 0
	})
}
