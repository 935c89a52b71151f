package queue

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/operate"
)

// TestPauseAfter: a call that succeeds and pauses its tenant, or all tenants, is done, and
// the next jobs wait for the pause.
func TestPauseAfter(t *testing.T) {
	t.Parallel()
	for name, pauseFor := range map[string]func(context.Context, time.Duration, string) error{"tenant": PauseTenant, "account": PauseAccount} {
		account := name == "account"
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const pause = time.Hour
			r := startRig(t, -1, limitsOf(perTenant(100), sharedBy(1000)), nil)
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
				t.Fatalf("%+v, %v", pauses, err)
			}
			if left := time.Until(pauses[0].Until); left < pause/2 || left > pause {
				t.Errorf("the pause ends in %v", left)
			}
			r.enqueue(t, "a", 1)
			r.enqueue(t, "b", 1)
			want := 1
			if !account { // b has no pause
				want = 2
				r.seen.wait(t, string(lifecycle.Done), want)
			}
			r.seen.wait(t, "round", r.seen.outcomes("round")+20) // enough time for the next ones to go, if they could
			if called := len(r.all()); called != want {
				t.Errorf("%d jobs were called during the pause; want %d", called, want)
			}
			if _, err := operate.ResumeJobs(t.Context(), r.server.Client(), r.queue, pauses[0].Scope, ann); err != nil {
				t.Fatal(err)
			}
			r.seen.wait(t, string(lifecycle.Done), 3)
		})
	}
	if err := PauseTenant(t.Context(), time.Second, ""); err == nil {
		t.Error("a pause was noted outside of a handler")
	}
}
