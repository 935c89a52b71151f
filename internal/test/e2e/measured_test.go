package e2e

import (
	"testing"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/pacer"
)

// measured runs a measurement beside a pacer of webhooks until it counts.
func measured(t *testing.T, limits string, once func(*stage), redisConfig ...string) {
	t.Helper()
	pacer.Measure(t, func(t *testing.T, r *pacer.Run) {
		s := newStage(t, limits, redisConfig...)
		s.run = r
		s.pace(s.calls, "/calls")
		once(s)
	})
}

// pace starts the pacer. Its calls are found where the receiver keeps those of its kind.
func (s *stage) pace(target, log string) {
	s.t.Helper()
	s.run.At(target, func() (paced []pacer.Call) {
		var calls []sandbox.Call
		s.get(log, &calls)
		for _, call := range calls {
			if due, ok := pacer.Due(call.Job); ok && call.Tenant == pacer.Tenant {
				paced = append(paced, pacer.Call{Due: due, At: call.At})
			}
		}
		return paced
	})
}
