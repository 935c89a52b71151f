package queue

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
)

// countsOf returns what a queue counts of a tenant; "*": of all.
func countsOf(t *testing.T, client redis.UniversalClient, queue, tenant string) store.Counts {
	t.Helper()
	text, err := client.HGet(t.Context(), store.TenantsKey(queue), tenant).Result()
	if err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	return store.ReadCounts(text)
}

// countWaiting adds to a tenant's count of waiting jobs, for tests that move jobs by hand.
func countWaiting(t *testing.T, client redis.UniversalClient, queue, tenant string, n int64) {
	t.Helper()
	script := store.NewScript("backlog_add(ARGV[2], tonumber(ARGV[3]))\nreturn 1")
	if _, err := script.Run(t.Context(), client, store.ScriptKeys(queue), queue, tenant, n); err != nil {
		t.Fatal(err)
	}
}

// rightlyCounted compares the counts of all tenants with the jobs that there are.
func (r *rig) rightlyCounted(t *testing.T) {
	t.Helper()
	client, want := r.server.Client(), map[string]store.Counts{}
	for _, key := range client.Keys(t.Context(), asynqwire.Key(r.queue, "t:*")).Val() {
		fields := client.HMGet(t.Context(), key, "group", "state", "hg_size").Val()
		size, counted := fields[2].(string)
		if !counted {
			continue // enqueued by asynq's own client
		}
		units, err := strconv.ParseInt(size, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, tenant := range []string{strings.SplitN(fields[0].(string), ";", 2)[0], "*"} {
			n := want[tenant]
			n.Jobs++
			n.Bytes += 64 * units
			if fields[1] == "aggregating" {
				n.Waiting++
			}
			want[tenant] = n
		}
	}
	waiting := int64(0)
	for tenant, text := range client.HGetAll(t.Context(), store.TenantsKey(r.queue)).Val() {
		got := store.ReadCounts(text)
		if got.Jobs != want[tenant].Jobs || got.Bytes != want[tenant].Bytes || got.Waiting != want[tenant].Waiting {
			t.Errorf("%s is counted as %+v; there is %+v", tenant, got, want[tenant])
		}
		if tenant != "*" && got.Waiting > 0 {
			waiting++
		}
		delete(want, tenant)
	}
	for tenant, n := range want {
		t.Errorf("%s has %+v, and is not counted", tenant, n)
	}
	if n := countsOf(t, client, r.queue, "*").Tenants; n != waiting {
		t.Errorf("%d tenants wait by the count; want %d", n, waiting)
	}
}
