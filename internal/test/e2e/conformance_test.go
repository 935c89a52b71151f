package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/stage"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestConformanceAtTheReceiver: what is counted of 200 tenants is what their receiver saw, with calls that fail, a worker
// that stops, a limit that an operator raises and jobs that are run beyond their limit; and only these exceeded it.
func TestConformanceAtTheReceiver(t *testing.T) {
	const (
		tenants, each, more = 200, 8, 20
		window, jitter      = 1995 * time.Millisecond, 4 * time.Millisecond
	)
	of := strings.Replace(stage.PerTenant("5/2s"), "kinds: [webhook]\n", "kinds: [webhook]\n    conformance: true\n", 1)
	stage.Measured(t, of, func(s *stage.Stage) {
		ctx, client, by := s.T.Context(), s.Redis.Client(), operate.Operator{Actor: "ann", Reason: "invoices first"}
		s.Worker()
		second := s.Worker()
		var lines strings.Builder
		for i := range tenants {
			lines.WriteString(s.Jobs(fmt.Sprint("t", i), each, ""))
		}
		lines.WriteString(s.Jobs("run", more, ""))
		lines.WriteString(s.Jobs("raised", more, ""))
		s.Order("/fail?n=100&status=400")
		s.Bulk(lines.String())
		s.Wait("", tenants, 20*time.Second)
		rate := throttle.Rate{Count: 20, Period: 2 * time.Second}
		if err := operate.SetOverride(ctx, client, "webhook", "raised", "tenant", operate.Override{Change: limits.Change{Rate: &rate}, Actor: by.Actor, Reason: by.Reason}); err != nil {
			s.T.Fatal(err)
		}
		if _, err := operate.Apply(ctx, client, "webhook", operate.RunNow, operate.Filter{Tenant: "run"}, by, nil); err != nil {
			s.T.Fatal(err)
		}
		second.Signal(syscall.SIGTERM)
		<-second.Done
		s.Until(time.Minute, "all jobs have ended", func() bool {
			g, err := inspect.New(client).Gauges(ctx, "webhook")
			return err == nil && g.Waiting+g.Pending+g.Active == 0
		})

		arrived := map[string][]time.Time{}
		for _, call := range s.Log() {
			arrived[call.Tenant] = append(arrived[call.Tenant], call.At)
		}
		for i := range tenants {
			tenant := fmt.Sprint("t", i)
			s.Run.Law(tenant, arrived[tenant], 2.5, 1)
		}
		s.Until(20*time.Second, "all calls are counted", func() bool {
			latest, err := client.XRevRangeN(ctx, "headgate:{webhook}:events", "+", "-", 1).Result()
			return err == nil && len(latest) == 1 && client.HGet(ctx, "headgate:{webhook}:counted", "webhook").Val() == latest[0].ID
		})
		now := time.Now()
		c, err := inspect.ReadConformance(ctx, client, "webhook", inspect.ConformanceQuery{From: now.Add(-time.Hour), To: now, N: inspect.MaxConformance})
		if err == nil {
			err = operate.NameCauses(ctx, client, "webhook", &c)
		}
		if err != nil {
			s.T.Fatal(err)
		}
		if c.Total != tenants+2 || len(c.Buckets) != c.Total {
			s.T.Fatalf("%d of %d tenants are counted, want %d", len(c.Buckets), c.Total, tenants+2)
		}
		differ, exceeded, began := 0, 0, now
		for _, b := range c.Buckets {
			if b.Window != window {
				s.T.Errorf("%v: a window of %v, want %v", b.Values, b.Window, window)
			}
			most, over, at := int64(0), false, arrived[b.Values["tenant"]]
			for _, hour := range b.Hours {
				most, over = max(most, hour.Most), over || hour.Over != nil
			}
			if over {
				exceeded++
			}
			if most != mostWithin(at, window) {
				differ++
			}
			if least, greatest := mostWithin(at, window-jitter), mostWithin(at, window+jitter); most < least || most > greatest {
				s.Run.Wrong(at[0], at[len(at)-1], "%v: at most %d calls in %v are counted; the receiver saw %d to %d", b.Values, most, window, least, greatest)
			}
			if at[0].Before(began) {
				began = at[0]
			}
		}
		s.Run.Number("tenants of which not just as many calls were counted as the receiver saw, in percent", began, now, 100*float64(differ)/float64(c.Total), 5)
		if exceeded != 1 {
			s.Run.Wrong(began, now, "%d tenants exceeded their limit, want one", exceeded)
		}
		first := c.Buckets[0]
		over := first.Hours[len(first.Hours)-1].Over
		if first.Values["tenant"] != "run" || over == nil || len(over.Causes) != 1 || over.Causes[0].What != inspect.CausedByRun || over.Causes[0].Actor != "ann" {
			s.T.Errorf("nearest to its limit was %+v, over %+v", first, over)
		}
	})
}

// mostWithin returns the most moments in any window of this length.
func mostWithin(at []time.Time, length time.Duration) (most int64) {
	from := 0
	for i := range at { // in the order of arrival
		for at[i].Sub(at[from]) >= length {
			from++
		}
		most = max(most, int64(i-from+1))
	}
	return most
}
