package queue

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
)

// TestNoLaneOfATenantStarves: a tenant has lanes for several endpoints under one limit. A few
// jobs for one endpoint go between the many for another one, whatever the lanes' names are.
func TestNoLaneOfATenantStarves(t *testing.T) {
	t.Parallel()
	const many, few = 60, 3
	for name, limits := range map[string][]limits.Limit{"its own limit": {perTenant(25)}, "and a shared one": {perTenant(25), sharedBy(50)}} {
		for _, hosts := range [][2]string{{"a.test", "b.test"}, {"b.test", "a.test"}} {
			t.Run(name+", few for "+hosts[1], func(t *testing.T) {
				t.Parallel()
				r := startRig(t, -1, limitsOf(limits...), nil)
				var order []string
				Handle(r.worker, "webhook", func(ctx context.Context, _ json.RawMessage) error {
					job, _ := Current(ctx)
					r.mu.Lock()
					defer r.mu.Unlock()
					order = append(order, job.ID)
					return nil
				})
				add := func(host string) string {
					return r.add(t, func(job *Job) {
						job.Kind, job.Payload = "webhook", json.RawMessage(`{"url":"http://`+host+`/"}`)
					})
				}
				for range many {
					add(hosts[0])
				}
				r.enqueue(t, "other", 2*many)
				r.run(t)
				r.seen.wait(t, string(lifecycle.Done), 15)
				ids := []string{}
				for range few {
					ids = append(ids, add(hosts[1]))
				}
				r.seen.wait(t, string(lifecycle.Done), 3*many+few)
				r.stop()
				if last := slices.Index(order, ids[few-1]); last > many/2 {
					t.Errorf("the last of the few was call %d of %d", last, len(order))
				}
			})
		}
	}
}
