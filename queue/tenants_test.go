package queue

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// manyTenants fills queue "q" of a new Redis. Tenant i has 1 + i%7 jobs, and every hundredth
// tenant has its own weight and limits.
func manyTenants(t testing.TB, tenants int) *redis.Client {
	t.Helper()
	server := redistest.Start(t, "--save", "", "--slowlog-log-slower-than", "5000", "--slowlog-max-len", "1000")
	client := server.Client()
	set := limits.Set{Queues: map[string]limits.Queue{"q": {Limits: []limits.Limit{sharedBy(1000), perTenant(10)}}}, Tenants: map[string]limits.Tenant{}}
	for i := 0; i < tenants; i += 100 {
		rate := throttle.PerSecond(int64(20 + i%1000))
		set.Tenants[fmt.Sprintf("tenant-%06d", i)] = limits.Tenant{Weight: 2, Limits: map[string]map[string]limits.Change{"q": {"tenant": {Rate: &rate}}}}
	}
	if err := operate.Publish(t.Context(), client, set); err != nil {
		t.Fatal(err)
	}
	redistest.Serve(client, "q", "call")
	now := time.Now().UnixMicro()
	all := 0
	for from := 0; from < tenants; from += 1000 {
		pipe := client.Pipeline()
		var names []any
		counts := map[string]any{}
		var due []redis.Z
		for i := from; i < min(from+1000, tenants); i++ {
			name, jobs := fmt.Sprintf("tenant-%06d", i), 1+i%7
			all += jobs
			names, counts[name] = append(names, name), fmt.Sprint(jobs, i, jobs, 8*jobs)
			due = append(due, zOf(name, float64(now)))
			lane := make([]redis.Z, jobs)
			for k := range lane {
				lane[k] = zOf(fmt.Sprintf("%d-%d", i, k), float64(store.BandScores+now+int64(k)))
			}
			pipe.ZAdd(t.Context(), asynqwire.Key("q", "g:"+name), lane...)
		}
		pipe.SAdd(t.Context(), asynqwire.Key("q", "groups"), names...)
		pipe.HSet(t.Context(), store.TenantsKey("q"), counts)
		pipe.ZAdd(t.Context(), store.Key("q", "waiting"), due...)
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.HSet(t.Context(), store.TenantsKey("q"), "*", fmt.Sprint(all, 0, all, 8*all, tenants)).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.SlowLogReset(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return client
}

// replySizes records the largest reply, which bounds what one command reads.
type replySizes struct {
	most atomic.Int64
	of   atomic.Value
}

func (s *replySizes) on(_ context.Context, cmds []redis.Cmder, send func() error) error {
	err := send()
	for _, cmd := range cmds {
		size := 0
		switch cmd := cmd.(type) {
		case *redis.ScanCmd:
			keys, _ := cmd.Val()
			size = len(keys)
		default:
			if m := reflect.ValueOf(cmd).MethodByName("Val"); m.IsValid() && m.Type().NumIn() == 0 {
				if v := m.Call(nil)[0]; v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
					size = v.Len()
				}
			}
		}
		if int64(size) > s.most.Load() {
			s.most.Store(int64(size))
			s.of.Store(fmt.Sprint(cmd.Args()[:min(3, len(cmd.Args()))]...))
		}
	}
	return err
}

// TestHundredThousandTenants: 100,000 tenants are listed, searched and sorted, and no command
// reads more than a part of them.
func TestHundredThousandTenants(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const tenants = 100_000
	client := manyTenants(t, tenants)
	ctx, by := t.Context(), operate.Operator{Actor: "ann", Reason: "a test"}
	if err := client.HSet(ctx, store.TenantsKey("q"), "Ancient%20One", "0 7 0 0").Err(); err != nil {
		t.Fatal(err)
	}
	rate := throttle.PerSecond(5)
	if err := operate.SetOverride(ctx, client, "q", "overridden", "tenant", operate.Override{Change: limits.Change{Rate: &rate}, Actor: "ann", Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	if _, err := operate.PauseJobs(ctx, client, "q", inspect.Scope{Tenant: "tenant-000500"}, time.Time{}, by); err != nil {
		t.Fatal(err)
	}
	sizes := &replySizes{}
	client.AddHook(redistest.OnRequest(sizes.on))
	inspector := inspect.New(client)
	list := func(q inspect.TenantQuery) inspect.TenantPage {
		t.Helper()
		page, err := inspector.ListTenants(ctx, "q", q)
		if err != nil {
			t.Fatal(err)
		}
		return page
	}

	page := list(inspect.TenantQuery{})
	if page.Total != tenants+2 || len(page.Tenants) != inspect.DefaultTenants {
		t.Fatalf("%d of %d tenants", len(page.Tenants), page.Total)
	}
	for i, row := range page.Tenants {
		// The first ones by name of the tenants with the most jobs.
		if want := fmt.Sprintf("tenant-%06d", 6+7*i); row.Tenant != want || row.Waiting != 7 || row.Done != int64(6+7*i) {
			t.Errorf("row %d: %s with %d waiting, %d done; want %s with 7", i, row.Tenant, row.Waiting, row.Done, want)
		}
		if row.DrainsAt.IsZero() || row.Confidence != inspect.Rough || row.HeldBy == nil || row.Limit != row.HeldBy.Limit || row.Capacity < 1 || row.Next.IsZero() {
			t.Errorf("%+v", row)
		}
	}
	seen := map[string]bool{}
	for offset := 0; ; offset += inspect.MaxTenants {
		page := list(inspect.TenantQuery{Search: "TENANT-0001", Sort: inspect.ByTenant, Ascending: true, Offset: offset, Limit: inspect.MaxTenants})
		if page.Total != 100 {
			t.Fatalf("%d match, want 100", page.Total)
		}
		for _, row := range page.Tenants {
			seen[row.Tenant] = true
		}
		if len(page.Tenants) < inspect.MaxTenants {
			break
		}
	}
	if len(seen) != 100 || !seen["tenant-000100"] || !seen["tenant-000199"] {
		t.Errorf("%d were found", len(seen))
	}
	if page := list(inspect.TenantQuery{Offset: tenants + 2}); len(page.Tenants) != 0 || page.Total != tenants+2 {
		t.Errorf("behind the last one: %+v", page)
	}

	// All others are known for something other than a backlog.
	for search, check := range map[string]func(inspect.TenantRow) bool{
		"ancient one": func(row inspect.TenantRow) bool { return row.Done == 7 && row.Waiting == 0 && row.DrainsAt.IsZero() },
		"overridden":  func(row inspect.TenantRow) bool { return row.Overridden && row.Limit == "tenant" && row.Level == 1 },
		"tenant-000500": func(row inspect.TenantRow) bool {
			return len(row.Pauses) == 1 && row.Confidence == inspect.NoForecast && row.Weight == 2
		},
	} {
		if page := list(inspect.TenantQuery{Search: search}); page.Total != 1 || !check(page.Tenants[0]) {
			t.Errorf("%s: %+v", search, page)
		}
	}
	if row := list(inspect.TenantQuery{Sort: inspect.ByWeight, Limit: 1}).Tenants[0]; row.Weight != 2 || row.Tenant != "tenant-000000" {
		t.Errorf("of the largest weight: %+v", row)
	}
	// 400,000 jobs at 1,000 a second: the last ones go in 400 s. The paused tenant
	// is last, and those without a backlog are first.
	drains := list(inspect.TenantQuery{Sort: inspect.ByDrains, Ascending: true, Limit: 200})
	if drains.Tenants[0].Waiting != 0 || drains.Tenants[1].Waiting != 0 || drains.Tenants[2].Waiting == 0 {
		t.Errorf("%+v", drains.Tenants[:3])
	}
	for _, row := range drains.Tenants[2:] {
		if row.Waiting > 2 || row.DrainsAt.After(drains.Now.Add(200*time.Second)) {
			t.Errorf("among the first: %v", row)
		}
	}
	drains = list(inspect.TenantQuery{Sort: inspect.ByDrains})
	for i, row := range drains.Tenants {
		if took := row.DrainsAt.Sub(drains.Now).Round(time.Second); i > 0 && (row.Waiting != 7 || took < 350*time.Second || took > 450*time.Second) {
			t.Errorf("among the last: %v, in %v", row, took)
		}
	}

	// A row is current, even if the list is older.
	if err := client.HSet(ctx, store.TenantsKey("q"), "tenant-000006", "1000000 0 1000000 8000000").Err(); err != nil {
		t.Fatal(err)
	}
	if page := list(inspect.TenantQuery{Search: "tenant-000006"}); page.Total != 1 || page.Tenants[0].Waiting != 1_000_000 {
		t.Errorf("%+v", page)
	}
	if o, err := inspector.Outlook(ctx, "q", "tenant-099999"); err != nil || o.Waiting != 1+99_999%7 || o.DrainsAt.IsZero() || o.Confidence != inspect.Rough {
		t.Errorf("%+v, %v", o, err)
	}
	overview, err := inspector.Overview(ctx, "q")
	if err != nil || overview.Tenants != tenants || overview.Allowed < 990 || overview.Allowed > 1010 || len(overview.Pauses) != 1 {
		t.Errorf("%+v, %v", overview, err)
	}
	// A piece is 500 fields with their values, or slightly more if a bucket of
	// Redis's table holds several.
	if most := sizes.most.Load(); most > 1200 {
		t.Errorf("a reply of %d: %v", most, sizes.of.Load())
	}
}

func TestTenantQueriesAreChecked(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(10)), nil)
	inspector := inspect.New(r.server.Client())
	for field, q := range map[string]inspect.TenantQuery{
		"sort": {Sort: "name"}, "offset": {Offset: -1}, "limit": {Limit: 201}, "search": {Search: strings.Repeat("x", 1000)},
	} {
		_, err := inspector.ListTenants(t.Context(), r.queue, q)
		if invalid, ok := errors.AsType[*validation.Error](err); !ok || invalid.Field != field {
			t.Errorf("%+v: %v; want a mistake of %s", q, err, field)
		}
	}
	for _, ask := range []func() error{
		func() error {
			_, err := inspector.ListTenants(t.Context(), "nothing", inspect.TenantQuery{})
			return err
		},
		func() error { _, err := inspector.Overview(t.Context(), "nothing"); return err },
	} {
		if invalid, ok := errors.AsType[*validation.Error](ask()); !ok || invalid.Field != "queue" {
			t.Errorf("%v; want a mistake of queue", ask())
		}
	}
}

// BenchmarkListTenants lists pages of 100,000 tenants (1,000 with -short) in each sort order.
func BenchmarkListTenants(b *testing.B) {
	tenants := waitingJobs()
	client := manyTenants(b, tenants)
	inspector := inspect.New(client)
	began := time.Now()
	if _, err := inspector.ListTenants(b.Context(), "q", inspect.TenantQuery{}); err != nil {
		b.Fatal(err)
	}
	cold := time.Since(began)
	var took []time.Duration
	for b.Loop() {
		q := inspect.TenantQuery{Sort: []inspect.TenantSort{inspect.ByWaiting, inspect.ByTenant, inspect.ByDrains, inspect.ByWeight}[len(took)%4], Offset: 50 * (len(took) % (tenants / 1000)), Search: []string{"", "9"}[len(took)/4%2]}
		began := time.Now()
		if page, err := inspector.ListTenants(b.Context(), "q", q); err != nil || len(page.Tenants) != 50 {
			b.Fatalf("%d, %v", len(page.Tenants), err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	slow, err := client.SlowLogGet(b.Context(), -1).Result()
	if err != nil {
		b.Fatal(err)
	}
	longest := time.Duration(0)
	for _, entry := range slow {
		longest = max(longest, entry.Duration)
	}
	b.ReportMetric(float64(cold.Microseconds())/1000, "cold-ms")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(len(slow)), "commands>5ms")
	b.ReportMetric(float64(longest.Microseconds())/1000, "slowest-command-ms")
}

// TestHoldsAreNoTenants: the scope of a hold, or of a pause of a kind, is not listed as a
// tenant.
func TestHoldsAreNoTenants(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(perTenant(10)), nil)
	ctx, client := t.Context(), r.server.Client()
	r.enqueue(t, "acme", 1)
	until := time.Now().Add(time.Hour).UnixMicro()
	for _, scope := range []string{
		"paused", store.WholeQueue, store.KindScope("call"), store.AccountScope("call"), store.OwnAccountScope("call", "acme"),
		store.EndpointScope("acme", "example.com%3A443"), store.HostScope("example.com%3A443"),
	} {
		client.HSet(ctx, store.Key(r.queue, "pauses"), scope, fmt.Sprintf("%d provider down", until))
	}
	page, err := inspect.New(client).ListTenants(ctx, r.queue, inspect.TenantQuery{})
	var names []string
	for _, row := range page.Tenants {
		names = append(names, row.Tenant)
	}
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"acme", "paused"}) {
		t.Errorf("tenants %q, %v; want acme, which has a job, and the tenant that is paused", names, err)
	}
}

// TestResumedEndpointIsInTheAudit: the audit names the endpoint whose hold an operator ended.
func TestResumedEndpointIsInTheAudit(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(perTenant(10)), nil)
	ctx, client := t.Context(), r.server.Client()
	r.enqueue(t, "acme", 1)
	client.HSet(ctx, store.Key(r.queue, "pauses"), store.EndpointScope("acme", rediskey.Escape("example.com:443")), fmt.Sprintf("%d provider down", time.Now().Add(time.Hour).UnixMicro()))
	scope := inspect.Scope{Tenant: "acme", Endpoint: "example.com:443"}
	if ended, err := operate.ResumeJobs(ctx, client, r.queue, scope, operate.Operator{Actor: "ann", Reason: "repaired"}); err != nil || !ended {
		t.Fatal(ended, err)
	}
	entries, err := operate.Audit(ctx, client, r.queue, 1)
	if err != nil || len(entries) != 1 || entries[0].Action != "resume" || entries[0].Tenant != scope.Tenant || entries[0].Endpoint != scope.Endpoint {
		t.Errorf("audit %+v, %v", entries, err)
	}
}

// TestTenantNext: a tenant whose jobs wait until a call ends has no time of its next call, because that is not known. A
// tenant whose jobs wait for others only has one: it may go now.
func TestTenantNext(t *testing.T) {
	t.Parallel()
	inFlight := limits.Limit{Name: "in_flight", Algorithm: throttle.Concurrency, Concurrency: 1, Per: []string{"tenant"}}
	shared := limits.Limit{Name: "shared", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}, Burst: 1}
	r := startRig(t, -1, limitsOf(inFlight, shared), nil)
	client := r.server.Client()
	redistest.Serve(client, r.queue, "call")
	_, hand := r.handing()
	r.enqueue(t, "blocked", 2)
	hand(t, 10)
	r.enqueue(t, "ready1", 1)
	r.enqueue(t, "ready2", 1)
	if ids := hand(t, 10); len(ids) != 1 {
		t.Fatalf("%d jobs go", len(ids))
	}
	if lanes := client.ZRange(t.Context(), store.Key(r.queue, "ready"), 0, -1).Val(); !slices.Equal(lanes, []string{r.lane("ready1"), r.lane("ready2")}) {
		t.Fatalf("lanes %q are ready", lanes)
	}
	page, err := inspect.New(client).ListTenants(t.Context(), r.queue, inspect.TenantQuery{Only: inspect.OnlyWaiting, Sort: inspect.ByTenant, Ascending: true})
	if err != nil || len(page.Tenants) != 3 {
		t.Fatalf("%+v, %v", page.Tenants, err)
	}
	for i, want := range []time.Time{{}, page.Now, page.Now} {
		if row := page.Tenants[i]; row.Waiting != 1 || !row.Next.Equal(want) {
			t.Errorf("tenant %s, %d of its jobs wait, goes next at %v, want %v", row.Tenant, row.Waiting, row.Next, want)
		}
	}
}
