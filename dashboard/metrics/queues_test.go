package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
	"github.com/headgate/headgate/throttle"
)

// publish gives a queue one limit for all and one for each tenant.
func publish(t *testing.T, client redis.UniversalClient, name string) {
	t.Helper()
	limits := limits.Set{Queues: map[string]limits.Queue{name: {Kinds: []string{name}, Limits: []limits.Limit{
		{Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(100)},
		{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(5), Per: []string{"tenant"}},
	}}}}
	if err := operate.Publish(t.Context(), client, limits); err != nil {
		t.Fatal(err)
	}
	redistest.Serve(client, name, name)
}

// enqueue gives each tenant so many jobs, for each kind that is named.
func enqueue(t *testing.T, client redis.UniversalClient, kind string, jobs map[string]int) {
	t.Helper()
	var all []queue.Job
	for _, tenant := range slices.Sorted(maps.Keys(jobs)) {
		for range jobs[tenant] {
			all = append(all, queue.Job{Kind: kind, Tenant: tenant, Payload: json.RawMessage(`{}`)})
		}
	}
	for _, result := range queue.NewClient(client).EnqueueMany(t.Context(), all) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
}

// page is what a registry shows, by series as they are written.
func page(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			name := family.GetName()
			if labels != nil {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			all[name] = value(metric)
		}
	}
	return all
}

// whole is a page with the forecast of a queue, which a scrape does not wait for if it takes long, as on a busy machine.
func whole(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		got := page(t, registry)
		if _, ok := got[fmt.Sprintf("headgate_drain_seconds{queue=%q}", name)]; ok {
			return got
		}
		if n, ok := got[fmt.Sprintf("headgate_tenants_waiting{queue=%q}", name)]; !ok || n < 2 {
			t.Fatalf("without its forecast the queue shows %v", got)
		}
	}
	t.Fatal("no forecast within a minute")
	return nil
}

func value(metric *dto.Metric) float64 {
	return metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
}

// shown is a registry that shows queues.
func shown(t *testing.T, client redis.UniversalClient, tenants Tenants, names ...string) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewRegistry()
	New(registry).Queues(Queues{
		Inspector: inspect.New(client), Names: names, Tenants: tenants, Logger: slog.New(slog.DiscardHandler),
	})
	return registry
}

func TestQueues(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client, name := server.Client(), redistest.Queue(t)
	publish(t, client, name)
	enqueue(t, client, name, map[string]int{"a": 50, "b": 10, "c;*": 1})
	if _, err := operate.PauseJobs(t.Context(), client, name, inspect.Scope{Kind: name}, time.Time{}, operate.Operator{Actor: "test", Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	if err := client.HSet(t.Context(), "headgate:{"+name+"}:totals", "direct", 2).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.HSet(t.Context(), "headgate:{"+name+"}:faults", "job 17", "1 odd", "lane a", "2 odd").Err(); err != nil {
		t.Fatal(err)
	}
	registry := shown(t, client, Tenants{}, name)
	got := page(t, registry)
	for series, want := range map[string]float64{
		`headgate_queue_up{queue=%q}`:                                                                           1,
		`headgate_script_faults{queue=%q}`:                                                                      2,
		`headgate_backlog_jobs{queue=%q}`:                                                                       61,
		`headgate_jobs_enqueued_total{queue=%q}`:                                                                61,
		`headgate_direct_calls_total{queue=%q}`:                                                                 2,
		`headgate_jobs{queue=%q,state="active"}`:                                                                0,
		`headgate_tenants_waiting{queue=%q}`:                                                                    3,
		`headgate_tenants_suppressed{queue=%q}`:                                                                 3,
		`headgate_limit_permits_per_second{limit="account",queue=%q,scope="queue",unit="jobs"}`:                 100,
		`headgate_limit_permits_per_second{limit="tenant",queue=%q,scope="tenant",unit="jobs"}`:                 5,
		`headgate_limit_used_ratio{limit="account",queue=%q,scope="queue",unit="jobs"}`:                         0,
		`headgate_limit_used_ratio{limit="tenant",queue=%q,scope="tenant",unit="jobs"}`:                         0,
		`headgate_limit_adapted_ratio{limit="account",queue=%q,scope="queue",unit="jobs"}`:                      1,
		`headgate_paused_until_timestamp_seconds{queue=%q,scope="queue"}`:                                       0,
		`headgate_slots_missed_total{queue=%q}`:                                                                 0,
		`asynq_queue_size{queue=%q}`:                                                                            61,
		`asynq_tasks_enqueued_total{queue=%q,state="pending"}`:                                                  0,
		`asynq_queue_paused_total{queue=%q}`:                                                                    0,
		strings.Replace(`headgate_paused_until_timestamp_seconds{queue=%q,scope="kind:KIND"}`, "KIND", name, 1): math.Inf(1),
	} {
		series = fmt.Sprintf(series, name)
		if n, ok := got[series]; !ok || n != want {
			t.Errorf("%s is %v (%v), want %v", series, n, ok, want)
		}
	}
	if drains, ok := got[fmt.Sprintf(`headgate_drain_seconds{queue=%q}`, name)]; ok {
		t.Errorf("what is paused drains in %v s", drains)
	}
	if _, err := operate.ResumeJobs(t.Context(), client, name, inspect.Scope{Kind: name}, operate.Operator{Actor: "test", Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	got = whole(t, shown(t, client, Tenants{}, name), name)
	// 50 jobs of one tenant at 5/s.
	if drains := got[fmt.Sprintf(`headgate_drain_seconds{queue=%q}`, name)]; drains < 8 || drains > 12 {
		t.Errorf("drains in %v s, want about 10", drains)
	}
	if allowed := got[fmt.Sprintf(`headgate_allowed_jobs_per_second{queue=%q}`, name)]; allowed < 4 || allowed > 100 {
		t.Errorf("limits let %v jobs a second go", allowed)
	}
	problems, err := testutil.GatherAndLint(registry)
	problems = slices.DeleteFunc(problems, func(p promlint.Problem) bool { return strings.HasPrefix(p.Metric, "asynq_") }) // asynq chose those names
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// TestUnservedJobs: every worker tells of the queues that nobody serves, which have no
// other series, and of its own queues how many jobs are of kinds without a handler.
func TestUnservedJobs(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	send := func(name, kind string, at time.Time, n int) {
		t.Helper()
		for range n {
			if _, err := queue.NewClient(client).Enqueue(t.Context(), queue.Job{Kind: kind, Queue: name, Tenant: "a", Payload: struct{}{}, At: at}); err != nil {
				t.Fatal(err)
			}
		}
	}
	unserved := func() map[string]float64 {
		all := map[string]float64{}
		for series, n := range page(t, shown(t, client, Tenants{}, "mine")) {
			if strings.HasPrefix(series, "headgate_unserved_jobs") {
				all[series] = n
			}
		}
		return all
	}
	redistest.Serve(client, "mine", "call")
	redistest.Serve(client, "elsewhere", "call")
	send("mine", "call", time.Time{}, 3)
	send("mine", "other", time.Time{}, 2)
	send("elsewhere", "call", time.Time{}, 3)
	send("nobodys", "call", time.Time{}, 4)
	send("nobodys", "call", time.Now().Add(time.Hour), 1)
	send("later", "call", time.Now().Add(time.Hour), 1)
	want := map[string]float64{`headgate_unserved_jobs{queue="mine"}`: 2, `headgate_unserved_jobs{queue="nobodys"}`: 4}
	if got := unserved(); !maps.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	// Nobody forwards those whose time has come, either.
	if err := client.ZAdd(t.Context(), "asynq:{later}:scheduled", redis.Z{Score: 1, Member: "due"}).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Serve(client, "mine", "other")
	redistest.Serve(client, "nobodys", "call")
	want = map[string]float64{`headgate_unserved_jobs{queue="mine"}`: 0, `headgate_unserved_jobs{queue="later"}`: 1}
	if got := unserved(); !maps.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
}

func TestTenantSeries(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client, name := server.Client(), redistest.Queue(t)
	publish(t, client, name)
	enqueue(t, client, name, map[string]int{"small": 1, "big": 30, "bigger": 40, "a,b": 2})
	tests := map[string]struct {
		want       map[string]float64
		suppressed float64
	}{
		"":                         {map[string]float64{}, 4},
		"top:2":                    {map[string]float64{"big": 30, "bigger": 40}, 2},
		"top:1000":                 {map[string]float64{"big": 30, "bigger": 40, "small": 1, "a,b": 2}, 0},
		"list:small,a%2Cb,nobody":  {map[string]float64{"small": 1, "a,b": 2, "nobody": 0}, 2},
		"list:nobody,nobody,other": {map[string]float64{"nobody": 0, "other": 0}, 4},
	}
	for text, test := range tests {
		tenants, err := ParseTenants(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, seen := whole(t, shown(t, client, tenants, name), name), 0
		for series := range got {
			if strings.HasPrefix(series, "headgate_tenant_") {
				seen++
			}
		}
		if seen != 4*len(test.want) {
			t.Errorf("%q: %d series of tenants, want four for each of %d", text, seen, len(test.want))
		}
		for tenant, jobs := range test.want {
			if n, ok := got[fmt.Sprintf(`headgate_tenant_backlog_jobs{queue=%q,tenant=%q}`, name, tenant)]; !ok || n != jobs {
				t.Errorf("%q: %v jobs of tenant %q, want %v", text, n, tenant, jobs)
			}
		}
		if n := got[fmt.Sprintf(`headgate_tenants_suppressed{queue=%q}`, name)]; n != test.suppressed {
			t.Errorf("%q: %v tenants suppressed, want %v", text, n, test.suppressed)
		}
	}
}

// TestManyTenantsMakeFewSeries: a queue with many of them has the series of one
// with a few, and what it is asked for beside them.
func TestManyTenantsMakeFewSeries(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const top = 250
	many := testlong.Of(20_000, 100_000)
	server := redistest.Start(t)
	client := server.Client()
	publish(t, client, "few")
	publish(t, client, "many")
	enqueue(t, client, "few", map[string]int{"a": 1, "b": 1})
	jobs := make(map[string]int, many)
	for i := range many {
		jobs[fmt.Sprintf("tenant-%06d", i)] = 1
	}
	jobs["tenant-000777"] = 5
	enqueue(t, client, "many", jobs)
	count := func(name string, tenants Tenants) (int, map[string]float64) {
		got := whole(t, shown(t, client, tenants, name), name)
		return len(got), got
	}
	few, _ := count("few", Tenants{})
	none, got := count("many", Tenants{})
	if few != none || got[`headgate_tenants_suppressed{queue="many"}`] != float64(many) {
		t.Errorf("%d series beside %d tenants, %d beside 2; suppressed: %v", none, many, few, got[`headgate_tenants_suppressed{queue="many"}`])
	}
	some, got := count("many", Tenants{Top: top})
	if some != none+4*top || got[`headgate_tenants_suppressed{queue="many"}`] != float64(many-top) {
		t.Errorf("%d series with %d tenants shown, want %d more than %d; suppressed: %v", some, top, 4*top, none, got[`headgate_tenants_suppressed{queue="many"}`])
	}
	if n := got[`headgate_tenant_backlog_jobs{queue="many",tenant="tenant-000777"}`]; n != 5 {
		t.Errorf("the tenant with the longest backlog has %v jobs, want 5", n)
	}
}

func TestScrapesShareAReading(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	publish(t, client, "q")
	enqueue(t, client, "q", map[string]int{"a": 3})
	registry := shown(t, client, Tenants{}, "q")
	calls := func(command string) int { return redistest.Calls(t, client, command) }
	began, before := time.Now(), map[string]int{"srandmember": calls("srandmember"), "sscan": calls("sscan")}
	var scrapes sync.WaitGroup
	for range 50 {
		scrapes.Go(func() {
			if got := page(t, registry)[`headgate_backlog_jobs{queue="q"}`]; got != 3 {
				t.Errorf("%v jobs", got)
			}
		})
	}
	scrapes.Wait()
	// The numbers draw lanes, and the forecast lists them.
	for command, calledBefore := range before {
		if n, most := calls(command)-calledBefore, 1+int(time.Since(began)/readingAge); n < 1 || n > most {
			t.Errorf("50 scrapes within %v: %d calls of %s, want at most %d", time.Since(began), n, command, most)
		}
	}
}

// TestQueuesWhileRedisIsAway: a scrape ends in time, says so, and shows nothing old.
func TestQueuesWhileRedisIsAway(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	publish(t, client, "q")
	enqueue(t, client, "q", map[string]int{"a": 3})
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	New(registry).Queues(Queues{
		Inspector: inspect.New(client), Names: []string{"q"}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	up := func() bool {
		got := page(t, registry)
		_, shows := got[`headgate_backlog_jobs{queue="q"}`]
		if up := got[`headgate_queue_up{queue="q"}`] == 1; up != shows {
			t.Fatalf("up is %v, and the backlog is shown: %v", up, shows)
		}
		return got[`headgate_queue_up{queue="q"}`] == 1
	}
	if !up() {
		t.Fatal("not up")
	}
	server.Pause()
	for up() { // the last reading is shown for a second
	}
	began := time.Now()
	if up() || time.Since(began) > 2*(numbersBound+forecastsWait) {
		t.Errorf("a scrape took %v while Redis was silent", time.Since(began))
	}
	server.Resume()
	until.Done(t, "Redis is back, and its queue is up", up)
	if text := log.String(); strings.Count(text, "cannot be read") != 1 {
		t.Errorf("log: %s", text)
	}
}

// TestQueuesBesideAMasterAway: while a node of a Cluster does not answer, the queues of others have all their series.
func TestQueuesBesideAMasterAway(t *testing.T) {
	redistest.Slow(t)
	for name, fail := range map[string]func(*redistest.Server){"dies": (*redistest.Server).Kill, "hangs": (*redistest.Server).Pause} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000")
			client := cluster.Client()
			owner := func(key string) *redistest.Server { return cluster.Owner(cluster.Slot(key)) }
			needed := []*redistest.Server{owner("asynq:queues"), owner(workers.ListKey)}
			named := func(name string, answers bool) string {
				for slices.Contains(needed, owner("{"+name+"}")) != answers {
					name += "q"
				}
				return name
			}
			away, served := named("away", false), named("served", true)
			for _, name := range []string{away, served} {
				publish(t, client, name)
				enqueue(t, client, name, map[string]int{"a": 3})
			}
			registry := prometheus.NewRegistry()
			New(registry).Queues(Queues{
				Inspector: inspect.New(client), Names: []string{away, served}, Logger: slog.New(slog.DiscardHandler), Tenants: Tenants{Top: 1},
			})
			of := func(metric, queue, labels string) string {
				return fmt.Sprintf("headgate_%s{queue=%q%s}", metric, queue, labels)
			}
			until.Done(t, "both queues are shown", func() bool {
				got := page(t, registry)
				return got[of("queue_up", away, "")] == 1 && got[of("tenant_backlog_jobs", served, `,tenant="a"`)] == 3
			})
			fail(owner("{" + away + "}"))
			enqueue(t, client, served, map[string]int{"a": 1})
			until.Done(t, "the other queue is shown as it is", func() bool {
				got := page(t, registry)
				_, drains := got[of("drain_seconds", served, "")]
				return got[of("queue_up", away, "")] == 0 && got[of("backlog_jobs", served, "")] == 4 && got[of("tenant_backlog_jobs", served, `,tenant="a"`)] == 4 && drains
			})
		})
	}
}

func TestParseTenants(t *testing.T) {
	many := "list:" + strings.Repeat("x,", 3) + strings.Join(numbered(MaxTenants+1), ",")
	for text, want := range map[string]string{
		"top:0":                            "1 to 1000",
		"top:1001":                         "1 to 1000",
		"top:":                             "1 to 1000",
		"top":                              "1 to 1000",
		"all":                              "is not a selection of tenants",
		":":                                "is not a selection of tenants",
		"list:":                            "a name is empty",
		"list:a,,b":                        "a name is empty",
		"list:50%":                         "%25",
		"list:%ff":                         "is not a tenant's name",
		"list:" + strings.Repeat("x", 129): "at most 128 bytes",
		many:                               "the maximum is 1000",
	} {
		got, err := ParseTenants(text)
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 200 || got.Top != 0 || got.Named != nil {
			t.Errorf("ParseTenants(%.40q) = %+v, %v; want an error with %q", text, got, err, want)
		}
	}
}

func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("t", i)
	}
	return names
}
