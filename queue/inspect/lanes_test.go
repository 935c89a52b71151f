package inspect_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// gated blocks the reading of all lanes.
type gated struct {
	held atomic.Int64
	open chan struct{}
}

func (*gated) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gated) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (g *gated) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Name() == "sscan" }) {
			g.held.Add(1)
			select {
			case <-g.open:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return next(ctx, cmds)
	}
}

// TestNobodyWaitsForManyLanes: while the lanes are read again, questions are answered
// from the last reading, except that the job itself is read anew.
func TestNobodyWaitsForManyLanes(t *testing.T) {
	t.Parallel()
	r := newRig(t, perTenant(100), sharedBy(1000))
	var id string
	for i := range 21 {
		id = r.add(t, func(job *queue.Job) { job.Tenant, job.Key = "last", fmt.Sprint(i) })
	}
	for i := range store.MaxKeys {
		r.add(t, func(job *queue.Job) { job.Tenant = fmt.Sprint("tenant-", i) })
	}
	client := redis.NewUniversalClient(r.server.Options())
	t.Cleanup(func() { client.Close() })
	gate := &gated{open: make(chan struct{})}
	close(gate.open)
	client.AddHook(gate)
	inspector := inspect.New(client)
	explain := func() inspect.Explanation {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		e, err := inspector.Explain(ctx, r.queue, id)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	before := explain()
	if before.Position != 20 || before.At.IsZero() || before.Confidence != inspect.Steady {
		t.Fatalf("%+v", before)
	}
	gate.open = make(chan struct{})
	release := sync.OnceFunc(func() { close(gate.open) })
	defer release()
	renewed := inspector.AgeForecast(r.queue) // the forecast has become too old
	if _, err := operate.Apply(t.Context(), client, r.queue, operate.Cancel, operate.Filter{ID: "last:0"}, operate.Operator{Actor: "ann", Reason: "a test"}, nil); err != nil {
		t.Fatal(err)
	}
	until.Done(t, "a new reading has begun", func() bool { return explain().Position == 19 && gate.held.Load() == 2 })
	after := explain()
	if after.Position != 19 || after.Waiting != 20 || !after.Now.After(before.Now) || gate.held.Load() != 2 {
		t.Errorf("%+v, and %d readings", after, gate.held.Load())
	}
	release()
	until.Done(t, "the new reading is used", func() bool {
		explain()
		is, err := renewed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return is
	})
}

// TestVeryManyLanesAreDrawn: a forecast of very many lanes reads some that are drawn at
// random, which stand for all.
func TestVeryManyLanesAreDrawn(t *testing.T) {
	t.Parallel()
	const all = inspect.MaxLanes + 1000
	r := newRig(t, perTenant(10))
	names := make([]any, all)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%06d;kind=call", i)
	}
	if err := r.client.SAdd(t.Context(), asynqwire.Key(r.queue, "groups"), names...).Err(); err != nil {
		t.Fatal(err)
	}
	drawn := map[string]bool{}
	for range 60 {
		lanes, part, err := inspect.DrawLanes(t.Context(), r.client, r.queue)
		if err != nil {
			t.Fatal(err)
		}
		if len(lanes) != inspect.DrawnLanes || part != float64(inspect.DrawnLanes)/all {
			t.Fatalf("%d lanes, which are %v of %d", len(lanes), part, all)
		}
		for _, lane := range lanes {
			drawn[lane] = true
		}
	}
	// A lane that is drawn with a probability of 1/6 each time is missed by all 60 draws
	// in one of 50,000 cases.
	if len(drawn) < all*9/10 {
		t.Errorf("%d of %d lanes were drawn", len(drawn), all)
	}
}

// TestForecastNamesWhatScriptsName: lanes and buckets have the same names in Go and in
// Lua, however odd the tenant.
func TestForecastNamesWhatScriptsName(t *testing.T) {
	t.Parallel()
	domain := limits.Limit{Name: "domain", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(5), Per: []string{"domain", "tenant"}}
	tokens := sharedBy(1000)
	tokens.Name, tokens.Unit = "tokens", "tokens"
	r := newRig(t, domain, perTenant(5), tokens)
	attributes := map[string]string{"domain": "a b;c=d}:x"}
	id := r.add(t, func(job *queue.Job) {
		job.Tenant, job.Attributes, job.Costs = "ä;x=1%", attributes, map[string]int64{"tokens": 500}
	})
	e, err := inspect.New(r.client).Explain(t.Context(), r.queue, id)
	if err != nil {
		t.Fatal(err)
	}
	names, err := inspect.ReadNames(t.Context(), r.client, r.queue, "ä;x=1%", attributes, e.Lane, id)
	if err != nil {
		t.Fatal(err)
	}
	if names.Lane != e.Lane {
		t.Errorf("lane %q, the scripts say %q", names.Lane, e.Lane)
	}
	if len(names.BucketsOfScripts) != 3 || names.Cost["tokens"] != 500 {
		t.Fatalf("%+v", names)
	}
	for _, bucket := range names.BucketsOfScripts {
		if !slices.Contains(names.Buckets, bucket) {
			t.Errorf("bucket %q is none of %q", bucket, names.Buckets)
		}
	}
	if e.Tenant != "ä;x=1%" || e.HeldBy != nil && e.HeldBy.Scope == "" {
		t.Errorf("%+v", e)
	}
}

// TestQuestionsChangeNothingShared: what a question about another lane reads beside its buckets stays its own. Others may
// ask at the same time.
func TestQuestionsChangeNothingShared(t *testing.T) {
	t.Parallel()
	limit := perTenant(10)
	limit.Adaptive = true
	r := newRig(t, limit)
	r.add(t, func(job *queue.Job) { job.Tenant = "a" })
	shared, asked, err := inspect.CountBeside(t.Context(), r.client, r.queue, "b;kind=call")
	if err != nil || shared != 1 || asked != 2 {
		t.Errorf("the shared forecast knows %d states, and the question %d, %v; want 1 and 2", shared, asked, err)
	}
}
