package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
	"github.com/headgate/headgate/throttle"
)

// TestProvidersBesideLimits: what a provider said last is beside what the limits assume that count the same, with a rate
// that the quota has lowered and what is left in the bucket.
func TestProvidersBesideLimits(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	bucket := func(name, unit string, count int64, adaptive bool, per ...string) limits.Limit {
		return limits.Limit{Name: name, Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: count, Period: time.Minute}, Burst: 50, Unit: unit, Per: per, Adaptive: adaptive}
	}
	if err := operate.Publish(t.Context(), r.redis, limits.Set{Queues: map[string]limits.Queue{r.queue: {Limits: []limits.Limit{
		bucket("requests", "", 120, true),
		bucket("fixed", "", 600, false),
		bucket("calls", "", 120, true, "tenant"),
		bucket("tokens", "input_tokens", 6000, true, "tenant"),
		bucket("hosts", "", 120, true, "tenant", limits.EndpointAttribute),
		{Name: "at-once", Algorithm: throttle.Concurrency, Concurrency: 5},
	}}}}); err != nil {
		t.Fatal(err)
	}

	// The provider said this of its account, and of acme's, in answers to calls without a job.
	client, began := queue.NewClient(r.redis), time.Now()
	say := func(tenant string, q queue.Quota) {
		t.Helper()
		permit, err := client.Take(t.Context(), queue.Job{Queue: r.queue, Kind: "call", Tenant: tenant, Costs: map[string]int64{"input_tokens": 1}})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(permit.SetQuota(t.Context(), q), permit.Release(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	say("acme", queue.Quota{Of: queue.QuotaOfTenant, Unit: "input_tokens", Limit: 1500, Window: time.Minute, Remaining: new(int64(7))})
	say("globex", queue.Quota{Limit: 30, Window: time.Minute, Remaining: new(int64(3))})

	kind, now := "calls-of-"+r.queue, time.Now().UTC().Truncate(time.Millisecond)
	report := func(id string, quotas ...Quota) {
		t.Helper()
		details, err := json.Marshal(WorkerDetails{Providers: []ProviderDetails{{Kind: kind, Quotas: quotas}}})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(workers.Info{ID: id, Queues: []string{r.queue}, Kinds: []string{kind}, Details: details})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.redis.Set(t.Context(), workers.Key(id), text, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		if err := r.redis.ZAdd(t.Context(), workers.ListKey, redis.Z{Score: float64(now.Add(time.Hour).UnixMilli()), Member: id}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	report("a-"+r.queue, Quota{Name: "requests", Limit: 30, WindowSeconds: 60, Remaining: new(int64(3)), SaidAt: now, ResetsAt: now.Add(time.Minute)},
		Quota{Name: "images", Limit: 5}, Quota{Name: "old", Remaining: new(int64(9))},
		Quota{Account: "acme", Name: "input-tokens", Limit: 1500, WindowSeconds: 60, Remaining: new(int64(7)), SaidAt: now},
		Quota{Account: "initech", Name: "requests", Limit: 7}, Quota{Name: "mails/s", Limit: 8, LimitName: "fixed"})
	report("b-"+r.queue, Quota{Name: "requests", Limit: 60, Remaining: new(int64(1)), SaidAt: now.Add(-time.Minute)}, Quota{Name: "old", Remaining: new(int64(4))})

	after := map[string]float64{"requests": 3, "fixed": 48, "calls": 50, "tokens": 7} // what is left of 50
	read := func() (found []string) {
		for _, p := range r.want(200, "", "GET", "/providers", "").get(t, "providers").([]any) {
			p := p.(map[string]any)
			if p["kind"] != kind {
				continue
			}
			for _, q := range p["quotas"].([]any) {
				q := q.(map[string]any)
				line := fmt.Sprintf("%v %v: %v in %v, %v left, said %v;", q["account"], q["name"], q["limit"], q["window_seconds"], q["remaining"], q["said_at"])
				for _, l := range q["limits"].([]any) {
					l := l.(map[string]any)
					// Permits come back while the test runs, until the first one is taken at the rate before.
					left, level := l["level"].(float64), "?"
					if least := after[l["name"].(string)]; left >= least && left <= least+1+l["rate_per_second"].(float64)/l["adapted"].(float64)*time.Since(began).Seconds() {
						level = fmt.Sprint(least)
					}
					line += fmt.Sprintf(" %v %v follows %v, %v of it: %v/s, %v of %v", l["name"], l["rule"], l["follows"], l["adapted"], l["rate_per_second"], level, l["full"])
				}
				found = append(found, line)
			}
		}
		return found
	}
	found := read()
	// For the time that its program has to make it, a call counts as one that may still come.
	for slices.ContainsFunc(found, func(line string) bool { return strings.Contains(line, "?") }) && time.Since(began) < time.Second {
		found = read()
	}
	said := now.Format(momentLayout)
	for i, want := range []string{
		" requests: 30 in 60, 3 left, said " + said + "; requests 120/min follows true, 0.25 of it: 0.5/s, 3 of 50 fixed 600/min follows false, 1 of it: 10/s, 48 of 50",
		" images: 5 in <nil>, <nil> left, said <nil>;",
		" old: <nil> in <nil>, 4 left, said <nil>;",
		"acme input-tokens: 1500 in 60, 7 left, said " + said + "; tokens 6000/min follows true, 0.25 of it: 25/s, 7 of 50",
		"initech requests: 7 in <nil>, <nil> left, said <nil>; calls 120/min follows true, 1 of it: 2/s, 50 of 50",
		" mails/s: 8 in <nil>, <nil> left, said <nil>; fixed 600/min follows true, 1 of it: 10/s, 48 of 50",
	} {
		if i >= len(found) || found[i] != want {
			t.Errorf("quota %d of\n%s\nwant %s", i, strings.Join(found, "\n"), want)
		}
	}

	// The page of a tenant says why a limit is lowered.
	lowered := map[string]any{}
	for _, l := range r.want(200, "", "GET", "/queues/"+r.queue+"/tenants/acme", "").get(t, "limits").([]any) {
		l := l.(map[string]any)
		lowered[l["name"].(string)] = l["lowered_by"]
	}
	if lowered["requests"] != "quota" || lowered["tokens"] != "quota" || lowered["calls"] != nil || lowered["fixed"] != nil {
		t.Errorf("lowered by: %v", lowered)
	}
}
