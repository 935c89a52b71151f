package queue

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

// TestPauseAfter: a call that succeeds and pauses its tenant, or all tenants, is done, and
// the next jobs wait for the pause.
func TestPauseAfter(t *testing.T) {
	t.Parallel()
	for name, pauseFor := range map[string]func(context.Context, time.Duration, string) error{"tenant": PauseTenant, "account": PauseAccount} {
		account := name == "account"
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const pause = 1500 * time.Millisecond
			r := startRig(t, 3, limitsOf(perTenant(100), sharedBy(1000)), nil)
			first := r.add(t, func(job *Job) { job.Tenant = "a" })
			r.answer = func(ctx context.Context, job Running) error {
				if job.ID != first {
					return nil
				}
				for _, length := range []time.Duration{time.Millisecond, pause, time.Second} { // the longest holds
					if err := pauseFor(ctx, length, "used\nup"); err != nil {
						t.Error(err)
					}
				}
				if err := pauseFor(ctx, 0, ""); err == nil {
					t.Error("a pause of no length was noted")
				}
				return nil
			}
			r.run(t)
			r.seen.wait(t, string(lifecycle.Done), 1)
			pauses, err := inspect.Pauses(t.Context(), r.server.Client(), r.queue)
			if err != nil || len(pauses) != 1 || pauses[0].By != "provider" || pauses[0].Reason != "used up" || (pauses[0].Tenant == "") != account {
				t.Errorf("%+v, %v", pauses, err)
			}
			r.enqueue(t, "a", 1)
			r.enqueue(t, "b", 1)
			r.seen.wait(t, string(lifecycle.Done), 3)
			r.stop()
			for tenant, waits := range map[string]bool{"a": true, "b": account} {
				calls := r.calls[tenant]
				if waited := calls[len(calls)-1].Sub(r.calls["a"][0]); waited >= pause != waits {
					t.Errorf("the next call of %s came after %v; to wait for %v: %v", tenant, waited, pause, waits)
				}
			}
		})
	}
	if err := PauseTenant(t.Context(), time.Second, ""); err == nil {
		t.Error("a pause was noted outside of a handler")
	}
}
