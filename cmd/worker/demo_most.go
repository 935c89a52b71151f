package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/queue/inspect"
)

// most says, for each limit of calls, the most in any window of the limit: as it was counted when they left, and as
// they came to the provider.
func (d *demo) most(ctx context.Context) (string, error) {
	var parts []string
	var window time.Duration
	for _, l := range bindingLimits {
		if l.unit != "" { // the provider keeps no log of tokens
			continue
		}
		to := time.Now()
		c, err := inspect.ReadConformance(ctx, d.client, l.kind, inspect.ConformanceQuery{From: to.Add(-24 * time.Hour), To: to, Tenant: l.tenant, N: inspect.MaxConformance})
		if err != nil {
			return "", err
		}
		i := slices.IndexFunc(c.Buckets, func(b inspect.ConformanceBucket) bool { return b.Limit != "tokens" })
		if i < 0 {
			continue // nothing was counted yet
		}
		b, counted := c.Buckets[i], inspect.ConformanceHour{}
		for _, hour := range b.Hours {
			if hour.Most > counted.Most {
				counted = hour
			}
		}
		window = b.Window
		parts = append(parts, fmt.Sprintf("%s %d and %d of %d", l.who(), counted.Most, d.mostArrived(l, window), counted.Allowed))
	}
	if len(parts) == 0 {
		return "nothing was counted yet", nil
	}
	return fmt.Sprintf("the most calls in any %v, as counted and at the provider: %s", window, strings.Join(parts, ", ")), nil
}

// mostArrived returns the most calls that came to a limit's provider in any window of this length.
func (d *demo) mostArrived(l demoLimit, length time.Duration) (most int) {
	var at []time.Time
	for _, call := range d.providers.of(l.kind).Calls() { // in the order of their arrival
		if call.Tenant != unshapedTenant && (l.tenant == "" || call.Tenant == l.tenant) {
			at = append(at, call.At)
		}
	}
	from := 0
	for i := range at {
		for at[i].Sub(at[from]) >= length {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}
