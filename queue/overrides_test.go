package queue

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// republish puts other limits in force in the rig's queue.
func (r *rig) republish(t *testing.T, tenants map[string]limits.Tenant, set ...limits.Limit) {
	t.Helper()
	err := operate.Publish(t.Context(), r.server.Client(), limits.Set{Queues: map[string]limits.Queue{r.queue: {Limits: set}}, Tenants: tenants})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) override(t *testing.T, tenant, limit string, change limits.Change) {
	t.Helper()
	if err := operate.SetOverride(t.Context(), r.server.Client(), r.queue, tenant, limit, operate.Override{Change: change, Reason: "a test", Actor: "ann"}); err != nil {
		t.Fatal(err)
	}
}

// inForce describes the limits in force of a tenant, by name.
func (r *rig) inForce(t *testing.T, tenant string) map[string]limits.Effective {
	t.Helper()
	all, err := inspect.LimitsInForce(t.Context(), r.server.Client(), r.queue, tenant)
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]limits.Effective{}
	for _, f := range all {
		set[f.Name] = f
	}
	return set
}

func (r *rig) wantLimit(t *testing.T, tenant, limit, from, want string) {
	t.Helper()
	if f := r.inForce(t, tenant)[limit]; f.String() != want || f.From != from {
		t.Errorf("limit %s of %s: %s from %q; want %s from %q", limit, tenant, f, f.From, want, from)
	}
}

func daily(count int64, in *time.Location) limits.Limit {
	return limits.Limit{Per: []string{"tenant"}, Name: "daily", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: count, Period: 24 * time.Hour}, Location: in}
}

func rateOfChange(count int64, period time.Duration) limits.Change {
	return limits.Change{Rate: &throttle.Rate{Count: count, Period: period}}
}

// TestOverrideOutlivesTheCalendar: an override stays in force, in the new windows, when its
// limit gets or loses a time zone.
func TestOverrideOutlivesTheCalendar(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(daily(500, time.UTC)), nil)
	r.enqueue(t, "a", 5)
	r.enqueue(t, "b", 5)
	r.override(t, "a", "daily", rateOfChange(2, 24*time.Hour))
	for i, in := range []*time.Location{nil, time.UTC, nil} {
		r.republish(t, nil, daily(500, in))
		r.wantLimit(t, "a", "daily", "override", "2/day")
		d := r.dispatcher()
		ids := r.release(t, d, 100)
		if len(ids) != 7 {
			t.Errorf("publication %d: %d jobs went; want 2 of a and 5 of b", i, len(ids))
		}
	}
}

// TestOverrideKeepsWhatItDoesNotChange: an override changes only what the operator set, on
// top of the tenant's limit at the time.
func TestOverrideKeepsWhatItDoesNotChange(t *testing.T) {
	t.Parallel()
	bucket := func(rate, burst int64) limits.Limit {
		limit := perTenant(rate)
		limit.Burst = burst
		return limit
	}
	r := startRig(t, 0, limitsOf(bucket(10, 5)), nil)
	plan := func(rate int64) map[string]limits.Tenant {
		change := rateOfChange(rate, time.Second)
		return map[string]limits.Tenant{"gold": {Limits: map[string]map[string]limits.Change{r.queue: {"tenant": change}}}}
	}
	burst := int64(50)
	r.republish(t, plan(100), bucket(10, 5))
	for _, tenant := range []string{"plain", "gold"} {
		r.override(t, tenant, "tenant", limits.Change{Burst: &burst})
	}
	r.wantLimit(t, "plain", "tenant", "override", "10/s, burst 50")
	r.wantLimit(t, "gold", "tenant", "override", "100/s, burst 50")
	r.republish(t, plan(200), bucket(20, 5))
	r.wantLimit(t, "plain", "tenant", "override", "20/s, burst 50")
	r.wantLimit(t, "gold", "tenant", "override", "200/s, burst 50")
	r.republish(t, nil, bucket(20, 5))
	r.wantLimit(t, "gold", "tenant", "override", "20/s, burst 50")
}

// TestOverrideThatDoesNotFit: an override whose limit is gone or has another algorithm is
// kept and listed, but not in force. It is in force again as soon as it fits.
func TestOverrideThatDoesNotFit(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(10)), nil)
	client := r.server.Client()
	r.override(t, "a b", "tenant", rateOfChange(25, time.Second))
	calls := limits.Limit{Per: []string{"tenant"}, Name: "tenant", Algorithm: throttle.Concurrency, Concurrency: 3}
	shared := perTenant(10)
	shared.Per = nil
	for _, test := range []struct {
		limits []limits.Limit
		why    string // it is not in force; "": it is
	}{
		{[]limits.Limit{calls}, "rate: a concurrency has none"},
		{nil, "the queue no longer has this limit"},
		{[]limits.Limit{shared}, "all tenants share this limit, so it cannot differ for one of them"},
		{[]limits.Limit{perTenant(7)}, ""},
	} {
		r.enqueue(t, "a b", 1)
		r.republish(t, nil, test.limits...)
		if _, err := r.dispatcher().round(t.Context(), 1000); err != nil {
			t.Errorf("%v: %v", test.limits, err)
		}
		want := ""
		if test.why != "" {
			want = "override (rate 25/s, by ann) is not in force: " + test.why
		}
		all, err := inspect.Overrides(t.Context(), client, r.queue)
		if err != nil || len(all) != 1 {
			t.Fatalf("Overrides = %+v, %v", all, err)
		}
		o := all[0]
		if o.Tenant != "a b" || o.Name != "tenant" || o.NotInEffect != want || o.Actor != "ann" || o.Reason != "a test" || (o.From == "override") != (want == "") {
			t.Errorf("Overrides = %+v; want %q", o, want)
		}
		if in, there := r.inForce(t, "a b")["tenant"]; there && in.NotInEffect != want {
			t.Errorf("LimitsInForce = %+v; want %q", in, want)
		}
		entries, err := operate.Audit(t.Context(), client, r.queue, 1)
		if err != nil || !strings.Contains(entries[0].After["a b: override of tenant"], want) {
			t.Errorf("the audit says %+v, %v; want %q", entries, err, want)
		}
	}
	r.republish(t, nil)
	if was, err := operate.ClearOverride(t.Context(), client, r.queue, "a b", "tenant", ann); err != nil || !was {
		t.Errorf("ClearOverride of a limit that is gone = %v, %v", was, err)
	}
	if all, err := inspect.Overrides(t.Context(), client, r.queue); err != nil || len(all) != 0 {
		t.Errorf("Overrides = %+v, %v", all, err)
	}
}

// TestPublishWithManyOverrides: publishing writes many overrides in pieces, and drops ended
// ones.
func TestPublishWithManyOverrides(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(10)), nil)
	client := r.server.Client()
	r.override(t, "t0", "tenant", rateOfChange(25, time.Second))
	text := client.HGet(t.Context(), store.Key(r.queue, "overrides"), "t0").Val()
	var fields []any
	for i := range 2500 {
		fields = append(fields, fmt.Sprint("t", i), text)
	}
	fields = append(fields, "ended", strings.Replace(text, `"until":0`, `"until":1`, 1))
	client.HSet(t.Context(), store.Key(r.queue, "overrides"), fields...)
	changed := perTenant(10)
	changed.Burst = 7
	r.republish(t, nil, changed)
	for _, tenant := range []string{"t0", "t2499"} {
		r.wantLimit(t, tenant, "tenant", "override", "25/s, burst 7")
	}
	if n := client.HLen(t.Context(), store.Key(r.queue, "overrides")).Val(); n != 2500 {
		t.Errorf("%d tenants with overrides; want 2500", n)
	}
	if left := redistest.Keys(t, client, store.Key(r.queue, "overrides:*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if ttl := client.TTL(t.Context(), store.Key(r.queue, "overrides")).Val(); ttl != -1 {
		t.Errorf("the overrides expire in %v", ttl)
	}
}

// TestOverrideWhilePublishing: an override that is set while limits are published is based
// on the limits in force.
func TestOverrideWhilePublishing(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	r := startRig(t, 0, limitsOf(daily(500, nil)), nil)
	client, ctx := r.server.Client(), t.Context()
	ended := make(chan error)
	go func() {
		for i := range 100 {
			set := limits.Set{Queues: map[string]limits.Queue{r.queue: {Limits: []limits.Limit{daily(500, []*time.Location{time.UTC, nil}[i%2])}}}}
			if err := operate.Publish(ctx, client, set); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
		client.Del(ctx, store.Key(r.queue, "overrides")) // the first override of a tenant is made alone
		r.override(t, "a", "daily", rateOfChange(7, 24*time.Hour))
		pipe := client.TxPipeline()
		set, overrides := pipe.HGetAll(ctx, store.Key(r.queue, "limits")), pipe.HGetAll(ctx, store.Key(r.queue, "overrides"))
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		e, err := effective.Read(set.Val(), overrides.Val(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if published, spec := e.Queue.Limits[0], e.Spec(0, "a"); spec.Burst != 7 || spec.Window != published.Spec.Window {
			t.Fatalf("the override is %+v beside the limit %+v", spec, published)
		}
	}
}

// limitsModel is a model of published limits and overrides, without Redis.
type limitsModel struct {
	limits    []limits.Limit
	tenants   map[string]map[string]limits.Change
	overrides map[string]map[string]limits.Change
}

// of returns the limit that should be in force for a tenant.
func (m *limitsModel) of(limit limits.Limit, tenant string) (limits.Limit, string) {
	from := "queue"
	if change, ok := m.tenants[tenant][limit.Name]; ok {
		limit, from = limit.With(change), "tenant"
	}
	if change, ok := m.overrides[tenant][limit.Name]; ok && limit.CheckChange(change) == nil {
		limit, from = limit.With(change), "override"
	}
	return limit, from
}

func randomRate(random *rand.Rand, limit limits.Limit) throttle.Rate {
	rate := throttle.Rate{Count: 1 + random.Int64N(300), Period: []time.Duration{time.Second, time.Minute, 7 * time.Second, 24 * time.Hour}[random.IntN(4)]}
	if limit.Location != nil && random.IntN(8) > 0 {
		rate.Period = limit.Rate.Period
		rate.Months = limit.Rate.Months
	}
	return rate
}

func randomLimit(random *rand.Rand, name string) limits.Limit {
	for {
		limit := limits.Limit{Per: []string{"tenant"}, Name: name}
		if random.IntN(8) == 0 {
			limit.Per = nil
		}
		limit.Algorithm = []throttle.Algorithm{
			throttle.TokenBucket, throttle.LeakyBucket, throttle.FixedWindow, throttle.SlidingWindowLog, throttle.SlidingWindowCounter, throttle.Concurrency,
		}[random.IntN(6)]
		switch {
		case limit.Algorithm == throttle.Concurrency:
			limit.Concurrency = 1000 + random.Int64N(1000)
		case limit.Algorithm == throttle.FixedWindow && random.IntN(2) == 0:
			limit.Location = time.UTC
			limit.Rate = []throttle.Rate{{Count: 500, Period: 24 * time.Hour}, {Count: 500, Period: 7 * 24 * time.Hour}, {Count: 500, Months: 1}}[random.IntN(3)]
		default:
			limit.Rate = randomRate(random, limit)
		}
		if limit.Algorithm == throttle.TokenBucket {
			limit.Burst = random.Int64N(20)
		}
		if limit.Algorithm == throttle.LeakyBucket {
			limit.Capacity = random.Int64N(20)
		}
		if limit.Per == nil { // it must not hide what the others do
			limit.Rate.Count *= 1000
		}
		if limit.Validate() == nil {
			return limit
		}
	}
}

func randomChange(random *rand.Rand, limit limits.Limit) limits.Change {
	var change limits.Change
	n := 1 + random.Int64N(30)
	if random.IntN(2) == 0 {
		rate := randomRate(random, limit)
		change.Rate = &rate
	}
	switch random.IntN(5) {
	case 0:
		change.Burst = &n
	case 1:
		change.Capacity = &n
	case 2:
		n += 1000
		change.Concurrency = &n
	}
	return change
}

// TestOverridesFollowTheLimits: after any sequence of published limits and overrides, each
// tenant has its published limit with the changes of its override, if they fit, and a round
// of dispatch can read it.
func TestOverridesFollowTheLimits(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	r := startRig(t, 0, limitsOf(), nil)
	client := r.server.Client()
	names, tenants := []string{"x", "y"}, []string{"a", "b:c", "d"}
	model := limitsModel{overrides: map[string]map[string]limits.Change{}}
	for _, tenant := range tenants {
		model.overrides[tenant] = map[string]limits.Change{}
	}
	publish := func() {
		model.limits, model.tenants = nil, map[string]map[string]limits.Change{}
		own := map[string]limits.Tenant{}
		for _, name := range names {
			if random.IntN(5) > 0 {
				model.limits = append(model.limits, randomLimit(random, name))
			}
		}
		for _, tenant := range tenants {
			model.tenants[tenant] = map[string]limits.Change{}
			for _, limit := range model.limits {
				if change := randomChange(random, limit); change != (limits.Change{}) && limit.CheckChange(change) == nil {
					model.tenants[tenant][limit.Name] = change
				}
			}
			own[tenant] = limits.Tenant{Limits: map[string]map[string]limits.Change{r.queue: model.tenants[tenant]}}
		}
		r.republish(t, own, model.limits...)
	}
	override := func() {
		tenant, name := tenants[random.IntN(len(tenants))], names[random.IntN(len(names))]
		if random.IntN(4) == 0 {
			_, had := model.overrides[tenant][name]
			delete(model.overrides[tenant], name)
			if was, err := operate.ClearOverride(t.Context(), client, r.queue, tenant, name, ann); was != had || err != nil && had {
				t.Fatalf("ClearOverride = %v, %v; want %v", was, err, had)
			}
			return
		}
		i := slices.IndexFunc(model.limits, func(l limits.Limit) bool { return l.Name == name })
		var limit limits.Limit
		if i >= 0 {
			limit = model.limits[i]
		}
		change := randomChange(random, limit)
		fits := false
		if i >= 0 && change != (limits.Change{}) {
			bare := model
			bare.overrides = nil
			published, _ := bare.of(limit, tenant)
			fits = published.CheckChange(change) == nil
		}
		err := operate.SetOverride(t.Context(), client, r.queue, tenant, name, operate.Override{Change: change, Reason: "a test", Actor: "ann"})
		if (err == nil) != fits {
			t.Fatalf("override of %+v with %s: %v; want it to fit: %v", limit, change, err, fits)
		}
		if fits {
			model.overrides[tenant][name] = change
		}
	}
	check := func(step int) {
		for _, tenant := range tenants {
			all := r.inForce(t, tenant)
			if len(all) != len(model.limits) {
				t.Fatalf("step %d: %d limits in force, want %d", step, len(all), len(model.limits))
			}
			aside := 0
			for _, limit := range model.limits {
				got := all[limit.Name]
				want, from := model.of(limit, tenant)
				if _, is := model.overrides[tenant][limit.Name]; is && from != "override" {
					aside++
				}
				var rate throttle.Rate
				if got.Rate != "" {
					if err := rate.UnmarshalText([]byte(got.Rate)); err != nil {
						t.Fatal(err)
					}
				}
				same := rate == want.Rate
				if want.Algorithm == throttle.TokenBucket || want.Algorithm == throttle.LeakyBucket { // 60/min is 1/s
					same = rate.Count*int64(want.Rate.Period) == want.Rate.Count*int64(rate.Period)
				}
				burst := want.Burst
				if want.Algorithm == throttle.TokenBucket {
					burst = cmp.Or(burst, 1)
				}
				if !same || got.Burst != burst || got.Capacity != want.Capacity || got.Concurrency != want.Concurrency || got.Algorithm != want.Algorithm || got.From != from {
					t.Fatalf("step %d: %s of %s is %+v; want %+v from %q", step, limit.Name, tenant, got, want, from)
				}
			}
			for name := range model.overrides[tenant] {
				if !slices.ContainsFunc(model.limits, func(l limits.Limit) bool { return l.Name == name }) {
					aside++
				}
			}
			listed, err := inspect.Overrides(t.Context(), client, r.queue, tenant)
			if err != nil || len(listed) != len(model.overrides[tenant]) {
				t.Fatalf("step %d: Overrides of %s = %+v, %v; want those of %v", step, tenant, listed, err, slices.Collect(maps.Keys(model.overrides[tenant])))
			}
			for _, o := range listed {
				if o.NotInEffect != "" {
					aside--
				}
			}
			if aside != 0 {
				t.Fatalf("step %d: Overrides of %s = %+v; %d more are not in force", step, tenant, listed, aside)
			}
			r.enqueue(t, tenant, 2)
		}
		if _, err := r.dispatcher().round(t.Context(), 1_000_000); err != nil {
			t.Fatalf("step %d: %v; limits %+v", step, err, model.limits)
		}
	}
	for step := range 300 {
		if random.IntN(3) == 0 {
			publish()
		} else {
			override()
		}
		check(step)
	}
}
