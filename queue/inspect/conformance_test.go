package inspect_test

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/conformance"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// TestConformanceOfManyTenants: of many buckets, those that are nearest to their limits are returned with all their hours.
// Only the hours of these are in memory at once. It is not parallel, because it measures the heap.
func TestConformanceOfManyTenants(t *testing.T) {
	const tenants, days, most = 1100, 10, 3 << 20
	r := newRig(t, perTenant(10), sharedBy(10))
	today := time.Now().UTC().Truncate(24 * time.Hour)
	from, to := today.AddDate(0, 0, 1-days).Add(3*time.Hour), today.Add(20*time.Hour)
	all := map[string][]inspect.ConformanceHour{} // by bucket
	for day := range days {
		began := today.AddDate(0, 0, day+1-days)
		var fields []any
		add := func(name string, seed int) {
			var hours []string
			for i := range 24 {
				at := began.Add(time.Duration(i) * time.Hour)
				if (seed*7+day*5+i)%3 == 0 {
					continue // no call left
				}
				hour := inspect.ConformanceHour{At: at, Most: int64((seed*31+day*17+i*13)%97 + 1), Allowed: 100}
				text := fmt.Sprint(i, hour.Most, hour.Allowed)
				if (seed+day*24+i)%911 == 0 {
					hour.Over = &inspect.Violation{At: at.Add(time.Minute), Took: int64(101 + seed%50), Allowed: 100}
					text += fmt.Sprint(" ", hour.Over.At.UnixMicro(), hour.Over.Took, hour.Over.Allowed)
				}
				hours = append(hours, text)
				if !at.Before(from) && at.Before(to) {
					all[name] = append(all[name], hour)
				}
			}
			fields = append(fields, name, strings.Join(hours, ";"))
		}
		for i := range tenants {
			add(fmt.Sprintf("tenant:t%d", i), i)
		}
		add("account:", 5)
		add("gone:x", 6)
		fields = append(fields, "early:", "1 1 1", "*", "1 5 0;4 2 0")
		if day > 0 {
			fields = fields[:len(fields)-4]
		}
		if err := r.client.HSet(t.Context(), "headgate:{"+r.queue+"}:conformance:"+began.Format(time.DateOnly), fields...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	names := make([]string, 0, len(all))
	part := map[string]float64{}
	for name, hours := range all {
		names = append(names, name)
		for _, hour := range hours {
			part[name] = max(part[name], float64(hour.Most)/float64(hour.Allowed))
			if over := hour.Over; over != nil {
				part[name] = max(part[name], float64(over.Took)/float64(over.Allowed))
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(part[b], part[a]), cmp.Compare(a, b)) })

	client := redis.NewUniversalClient(r.server.Options())
	defer client.Close()
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before, grown := heap(), uint64(0)
	client.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if cmd.Name() == "hscan" {
			grown = max(grown, max(heap(), before)-before)
		}
		return err
	}))
	for name, test := range map[string]struct {
		query inspect.ConformanceQuery
		want  func(name string) bool
	}{
		"all":           {inspect.ConformanceQuery{N: 30}, func(string) bool { return true }},
		"more than 500": {inspect.ConformanceQuery{N: 700}, func(string) bool { return true }},
		"of a limit":    {inspect.ConformanceQuery{N: 30, Limit: "tenant"}, func(name string) bool { return strings.HasPrefix(name, "tenant:") }},
		"of a tenant":   {inspect.ConformanceQuery{N: 30, Tenant: "t1"}, func(name string) bool { return name == "tenant:t1" }},
		"of nobody":     {inspect.ConformanceQuery{N: 30, Tenant: "nobody"}, func(string) bool { return false }},
	} {
		test.query.From, test.query.To = from, to
		c, err := inspect.ReadConformance(t.Context(), client, r.queue, test.query)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, one := range names {
			if test.want(one) {
				want = append(want, one)
			}
		}
		if c.Total != len(want) || len(c.Buckets) != min(len(want), test.query.N) {
			t.Errorf("%s: %d buckets of %d, want %d of %d", name, len(c.Buckets), c.Total, min(len(want), test.query.N), len(want))
			continue
		}
		for i, b := range c.Buckets {
			values := b.Values["tenant"] + b.Values[""]
			if got := b.Limit + ":" + values; got != want[i] || !reflect.DeepEqual(b.Hours, all[got]) {
				t.Errorf("%s: bucket %d is %s with %d hours, want %s with %d", name, i, got, len(b.Hours), want[i], len(all[want[i]]))
			}
			if known := b.Limit != "gone"; (b.Window > 0) != known {
				t.Errorf("%s: the window of %s is %v", name, b.Limit, b.Window)
			}
		}
		if !slices.Equal(c.Missed, []time.Time{from.Add(time.Hour)}) {
			t.Errorf("%s: calls were missed at %v", name, c.Missed)
		}
	}
	if grown > most {
		t.Errorf("%d bytes are in memory at once for %d tenants", grown, tenants)
	}
}

// TestConformanceOfATenant: it has the tenant's buckets, wherever in the `per` of their limits the tenant is.
func TestConformanceOfATenant(t *testing.T) {
	perModel := limits.Limit{Name: "model", Per: []string{"model", "tenant"}, Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(9)}
	r := newRig(t, perTenant(9), perModel)
	now := time.Now()
	key := conformance.HoursKey(r.queue, now.UnixMicro()/conformance.Day)
	for _, bucket := range []string{"tenant:a", "tenant:ab", "tenant:%2A", "model:m;a", "model:a;m", "model:m;%2A"} {
		r.client.HSet(t.Context(), key, bucket, fmt.Sprintf("%d 1 9", now.UTC().Hour()))
	}
	for tenant, want := range map[string][]string{"a": {"model of m", "tenant of "}, "*": {"model of m", "tenant of "}, "m": {"model of a"}} {
		c, err := inspect.ReadConformance(t.Context(), r.client, r.queue, inspect.ConformanceQuery{From: now.Add(-time.Hour), To: now.Add(time.Minute), Tenant: tenant, N: 10})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range c.Buckets {
			got = append(got, b.Limit+" of "+b.Values["model"])
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("of tenant %q: %q; want %q", tenant, got, want)
		}
	}
}

// TestConformanceAfterAnotherPer: what a limit counted for each tenant before all of them shared it is not taken for what
// they share.
func TestConformanceAfterAnotherPer(t *testing.T) {
	r := newRig(t, sharedBy(9))
	now := time.Now()
	key := conformance.HoursKey(r.queue, now.UnixMicro()/conformance.Day)
	for _, bucket := range []string{"account:", "account:acme", "account:acme;m", "gone:acme"} {
		r.client.HSet(t.Context(), key, bucket, fmt.Sprintf("%d 1 9", now.UTC().Hour()))
	}
	c, err := inspect.ReadConformance(t.Context(), r.client, r.queue, inspect.ConformanceQuery{From: now.Add(-time.Hour), To: now.Add(time.Minute), N: 10})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range c.Buckets {
		got = append(got, fmt.Sprintf("%s %q %v", b.Limit, b.Values, b.Window > 0))
	}
	slices.Sort(got)
	if want := []string{`account map["":"acme"] false`, `account map["":"acme;m"] false`, `account map[] true`, `gone map["":"acme"] false`}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}
