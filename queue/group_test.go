package queue

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// perGroup is a limit of 10 calls an hour that each group has for itself.
func perGroup() limits.Limit {
	return limits.Limit{Name: "group", Per: []string{limits.GroupAttribute}, Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 10, Period: time.Hour}, Burst: 10}
}

// TestGroups: the tenants of a group share its limit, which may differ from that of other groups; a tenant without a
// group is not held. A tenant that is put into another group is held by that group's limit from then on, with the jobs
// that wait already.
func TestGroups(t *testing.T) {
	t.Parallel()
	set := limitsOf(perGroup())
	set.Tenants = map[string]limits.Tenant{"a": {Group: "reseller"}, "b": {Group: "reseller"}, "c": {Group: "large"}}
	large := limits.Change{Rate: &throttle.Rate{Count: 25, Period: time.Hour}, Burst: new(int64(25))}
	publish := func(r *rig) {
		t.Helper()
		of := limits.Set{
			Queues: map[string]limits.Queue{r.queue: set.Queues[""]}, Tenants: set.Tenants,
			Groups: map[string]limits.Group{"reseller": {}, "large": {Limits: map[string]map[string]limits.Change{r.queue: {"group": large}}}},
		}
		if err := operate.Publish(t.Context(), r.server.Client(), of); err != nil {
			t.Fatal(err)
		}
	}
	r := startRig(t, 0, limitsOf(), nil)
	r.served(t)
	publish(r)
	of, counted := map[string]string{}, 0
	for _, tenant := range []string{"a", "b", "c", "d"} {
		for range 30 {
			of[r.add(t, func(job *Job) { job.Tenant = tenant })] = tenant
		}
	}
	d := r.dispatcher()
	next := func() map[string]int {
		t.Helper()
		ids, went := r.release(t, d, 1000), map[string]int{}
		for _, id := range ids[counted:] {
			went[of[id]]++
		}
		counted = len(ids)
		return went
	}
	// They cost more than the limit of a group ever admits.
	for tenant, accepted := range map[string]bool{"a": false, "d": true} {
		_, err := r.client.Enqueue(t.Context(), Job{Kind: "call", Queue: r.queue, Tenant: tenant, Cost: 30, Key: "costly", In: time.Hour})
		if (err == nil) != accepted {
			t.Errorf("a job of %s that costs 30: %v", tenant, err)
		}
	}
	first := next()
	if went := first; went["a"]+went["b"] != 10 || min(went["a"], went["b"]) < 3 || went["c"] != 25 || went["d"] != 30 {
		t.Errorf("%v went, want 10 of a and b together, 25 of c and all of d", went)
	}
	in := inspect.New(r.server.Client())
	names := func(tenant string) (all []string) {
		t.Helper()
		limits, err := inspect.LimitsInForce(t.Context(), r.server.Client(), r.queue, tenant)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range limits {
			all = append(all, l.Name+" "+l.Rate+" "+l.From)
		}
		return all
	}
	if a, c, d := names("a"), names("c"), names("d"); strings.Join(a, ";") != "group 10/h queue" || strings.Join(c, ";") != "group 25/h tenant" || len(d) != 0 {
		t.Errorf("limits in force: %v of a, %v of c, %v of d", a, c, d)
	}
	detail, err := in.Tenant(t.Context(), r.queue, "c")
	if err != nil || len(detail.Limits) != 1 || detail.Limits[0].Scope != "group large" || detail.Own["in group"] != "large" || detail.HeldBy == nil {
		t.Errorf("%+v, %v", detail, err)
	}
	if detail, err := in.Tenant(t.Context(), r.queue, "d"); err != nil || len(detail.Limits) != 0 {
		t.Errorf("of a tenant without a group: %+v, %v", detail, err)
	}
	published, err := operate.Published(t.Context(), r.server.Client(), r.queue)
	if err != nil || published.Tenants["a"].Group != "reseller" || len(published.Groups) != 2 || published.Groups["large"].Limits[r.queue]["group"].String() != "rate 1/2m24s, burst 25" || len(published.Tenants["c"].Limits[r.queue]) != 0 {
		t.Errorf("published: groups %+v, tenants %+v, %v", published.Groups, published.Tenants, err)
	}
	set.Tenants = maps.Clone(set.Tenants)
	set.Tenants["d"] = limits.Tenant{Group: "reseller"}
	set.Tenants["a"] = limits.Tenant{Group: "new"}
	set.Tenants["b"] = limits.Tenant{}
	if err := (limits.Set{Queues: set.Queues, Tenants: set.Tenants}).Validate(); err == nil {
		t.Error("groups that nobody made were accepted")
	}
	set.Tenants["a"] = limits.Tenant{Group: "large"}
	publish(r)
	if went := next(); went["a"] != 0 || went["b"] != 30-first["b"] {
		t.Errorf("%v went after a came to a group whose limit is used up, and b left its group; want all of b", went)
	}
}

// TestGroupIsNoAttribute: a job has no group of its own, and a limit per group does not differ for a tenant.
func TestGroupIsNoAttribute(t *testing.T) {
	t.Parallel()
	set := limitsOf(perGroup())
	r := startRig(t, 0, set, nil)
	_, err := r.client.Enqueue(t.Context(), Job{Kind: "call", Queue: r.queue, Tenant: "a", Attributes: map[string]string{"group": "x"}})
	if invalid, ok := errors.AsType[*validation.Error](err); !ok || invalid.Field != "attributes" || !strings.Contains(invalid.Reason, "group is set for the tenant") {
		t.Errorf("%v", err)
	}
	err = operate.SetOverride(t.Context(), r.server.Client(), r.queue, "a", "group", operate.Override{Change: limits.Change{Burst: new(int64(5))}, Actor: "ann", Reason: "a test"})
	if err == nil || !strings.Contains(err.Error(), "change it for the group, in the limits file") {
		t.Errorf("%v", err)
	}
}
