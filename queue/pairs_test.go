package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// aspect is something that can be true of a job, with what it needs around the job.
type aspect struct {
	name string
	job  func(*Job)
	// after is done once the jobs are enqueued, and before the worker starts.
	after func(t *testing.T, r *rig, ids []string)
}

var bystander = operate.Operator{Actor: "ann", Reason: "a test"}

// aspects are the states that a job can be in besides plainly waiting.
var aspects = []aspect{
	{name: "limited"}, // all of them are: ten a second
	{name: "scheduled", job: func(job *Job) { job.In = time.Second }},
	{name: "priority", job: func(job *Job) { job.Priority = High }},
	{
		name: "paused",
		after: func(t *testing.T, r *rig, _ []string) {
			until := time.Now().Add(1500 * time.Millisecond)
			if _, err := operate.PauseJobs(t.Context(), r.server.Client(), r.queue, inspect.Scope{Tenant: "a"}, until, bystander); err != nil {
				t.Fatal(err)
			}
		},
	},
	{name: "concurrency", job: func(job *Job) { job.Attributes = map[string]string{"narrow": "yes"} }},
	{name: "retrying", job: func(job *Job) { job.Payload = json.RawMessage(`{"fails":1}`) }},
	{
		name: "cancelled",
		after: func(t *testing.T, r *rig, ids []string) {
			for _, id := range ids {
				tally, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.Cancel, operate.Filter{ID: id}, bystander, nil)
				if err != nil || tally.Jobs != 1 {
					t.Fatal(tally, err)
				}
			}
		},
	},
	{name: "expired", job: func(job *Job) { job.Deadline = time.Now().Add(3200 * time.Millisecond) },
		after: func(t *testing.T, r *rig, _ []string) {
			// Nothing goes before the deadline has passed.
			if _, err := operate.PauseJobs(t.Context(), r.server.Client(), r.queue, inspect.Scope{}, time.Now().Add(3500*time.Millisecond), bystander); err != nil {
				t.Fatal(err)
			}
		},
	},
}

// TestPairs: with any two aspects, a job ends as exactly one of done, cancelled and expired,
// its call is made exactly as often as it should be, no more calls run at a time than its
// concurrency limit allows, and nothing of it is left in Redis.
func TestPairs(t *testing.T) {
	t.Parallel()
	for i, one := range aspects {
		for _, other := range aspects[i:] {
			t.Run(one.name+" "+other.name, func(t *testing.T) {
				t.Parallel()
				pair(t, one, other)
			})
		}
	}
}

func pair(t *testing.T, one, other aspect) {
	const each = 3
	is := func(name string) bool { return one.name == name || other.name == name }
	narrow := limits.Limit{Name: "narrow", Algorithm: throttle.Concurrency, Concurrency: 1, Per: []string{"narrow"}}
	limits := limitsOf(perTenant(20))
	if is("concurrency") {
		limits = limitsOf(perTenant(20), narrow)
	}
	r := startRig(t, 1, limits, nil)
	calls := newLedger()
	lasts := time.Duration(0)
	if is("concurrency") {
		lasts = 120 * time.Millisecond // longer than two slots: without the limit, calls would overlap
	}
	Handle(r.worker, "call", func(ctx context.Context, p struct {
		Fails int `json:"fails"`
	}) error {
		job, _ := Current(ctx)
		n := calls.begin(job)
		defer calls.end(job)
		time.Sleep(lasts)
		if n <= p.Fails {
			return fmt.Errorf("it fails the first time")
		}
		return nil
	})
	var ids []string
	for range each {
		ids = append(ids, r.add(t, func(job *Job) {
			for _, a := range []aspect{one, other} {
				if a.job != nil {
					a.job(job)
				}
			}
			job.Retention = time.Hour
		}))
	}
	plain := r.add(t, func(job *Job) { job.Tenant, job.Retention = "b", time.Hour })
	for _, a := range []aspect{one, other} {
		if a.after != nil {
			a.after(t, r, ids)
		}
		if one.name == other.name {
			break
		}
	}
	r.run(t)
	want := lifecycle.Done
	switch {
	case is("cancelled"):
		want = lifecycle.Cancelled
	case is("expired"):
		want = lifecycle.Expired
	}
	if want == lifecycle.Cancelled {
		r.seen.wait(t, string(lifecycle.Done), 1)
	} else {
		r.seen.wait(t, string(want), each)
	}
	if want != lifecycle.Done {
		r.seen.wait(t, string(lifecycle.Done), 1)
	} else {
		r.seen.wait(t, string(lifecycle.Done), each+1)
	}
	r.stop()

	for _, id := range append(ids, plain) {
		result, err := r.client.Result(t.Context(), r.queue, id)
		if err != nil {
			t.Fatal(err)
		}
		outcome, made := want, 0
		switch {
		case id == plain:
			outcome, made = lifecycle.Done, 1
		case want == lifecycle.Done && is("retrying"):
			made = 2
		case want == lifecycle.Done:
			made = 1
		}
		if result.Outcome != outcome || calls.of(id) != made {
			t.Errorf("job %s ended as %q after %d calls; want %q after %d", id, result.Outcome, calls.of(id), outcome, made)
		}
	}
	if calls.most > 1 && is("concurrency") {
		t.Errorf("%d calls at a time; want one", calls.most)
	}
	r.empty(t)
}

// empty checks that nothing is left of a queue whose jobs have all ended.
func (r *rig) empty(t *testing.T) {
	t.Helper()
	client := r.server.Client()
	for state, n := range r.states(t) {
		if n > 0 && state != "completed" && state != "archived" {
			t.Errorf("%d jobs are left as %s", n, state)
		}
	}
	for tenant, text := range client.HGetAll(t.Context(), store.TenantsKey(r.queue)).Val() {
		if n := store.ReadCounts(text); n.Waiting != 0 || n.Tenants != 0 {
			t.Errorf("%+v jobs of %s are left in the count", n, tenant)
		}
	}
	r.rightlyCounted(t)
	for _, name := range []string{"waiting", "ready", "skips"} {
		if n := client.Exists(t.Context(), store.Key(r.queue, name)).Val(); n != 0 {
			t.Errorf("%s is left behind", name)
		}
	}
	for _, key := range redistest.Keys(t, client, store.Key(r.queue, "*")) {
		if strings.Contains(key, "}:b:narrow") || strings.Contains(key, "}:blocked:") || strings.Contains(key, "}:unique:") {
			t.Errorf("%s is left behind", key)
		}
	}
}
