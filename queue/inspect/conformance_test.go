package inspect_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/conformance"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

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
