package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/stage"
)

// TestLimitChangesUnderBacklog: a limit is raised fivefold and lowered again in the limits
// file while 100,000 jobs wait in 100 lanes. Within a second it is in force in all of them,
// and all windows of all calls are within what the limits of their time allow.
func TestLimitChangesUnderBacklog(t *testing.T) {
	const (
		tenants, each = 100, 1000
		slow, fast    = "6/m", "30/m"
		faster        = 5
		together      = 300             // calls a second of all tenants
		interval      = 2 * time.Second // of the fast one
		takes         = time.Second
	)
	// What lanes share keeps them from going all at one moment.
	limits := func(rate string) string {
		return stage.PerTenant(rate) + fmt.Sprintf("      - {name: account, algorithm: leaky_bucket, rate: %d/s}\n", together)
	}
	stage.Measured(t, limits(slow), func(s *stage.Stage) {
		var lines strings.Builder
		for i := range tenants {
			lines.WriteString(s.Jobs(fmt.Sprint("t", i), each, ""))
		}
		s.Bulk(lines.String())
		set := func(rate string) time.Time {
			path := filepath.Join(s.Dir, "limits.yaml")
			if err := os.Rename(s.Write("next.yaml", limits(rate)), path); err != nil {
				s.T.Fatal(err)
			}
			return time.Now()
		}
		s.Worker()
		s.Wait("", tenants, 20*time.Second)
		raised := set(fast)
		s.Wait("", 4*tenants, 20*time.Second)
		lowered := set(slow)
		time.Sleep(takes + 2*interval) // what is looked at
		end := time.Now()

		of := map[string][]time.Time{}
		calls := slices.DeleteFunc(s.Log(), func(call sandbox.Call) bool { return call.At.After(end) })
		for _, call := range calls {
			of[call.Tenant] = append(of[call.Tenant], call.At)
		}
		s.Run.Law("account", stage.Times(calls, stage.EveryCall), together, 1)
		lanes, inForce := 0, lowered.Add(takes)
		var worst, last time.Time
		var lag time.Duration
		for tenant, at := range of {
			slices.SortFunc(at, time.Time.Compare)
			s.Run.Law(tenant, at, 1/interval.Seconds(), 1)
			if i := slices.IndexFunc(at, raised.Before); i > 0 {
				lanes++
				// What is used of the bucket is kept, and flows back at the new rate.
				due := raised.Add((faster*interval - raised.Sub(at[i-1])) / faster)
				if late := at[i].Sub(due); late > lag {
					lag, worst, last = late, due, at[i]
				}
			}
			// Two calls are ten seconds apart.
			if late := slices.DeleteFunc(slices.Clone(at), inForce.After); len(late) > 1 {
				s.Run.Wrong(inForce, end, "%s made %d calls in the %v that began %v after its limit was lowered to %s", tenant, len(late), end.Sub(inForce), takes, slow)
			}
		}
		if lanes != tenants {
			s.T.Errorf("%d of %d lanes made a call after the limit was raised", lanes, tenants)
		}
		s.Run.Took("the first call of the latest lane after its limit was raised", worst, last, takes)
	})
}
