package stage

import (
	"testing"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/pacer"
)

// Measured runs a measurement beside a pacer of webhooks until it counts.
func Measured(t *testing.T, limits string, once func(*Stage), redisConfig ...string) {
	t.Helper()
	pacer.Measure(t, func(t *testing.T, r *pacer.Run) {
		s := New(t, limits, redisConfig...)
		s.Run = r
		s.Pace(s.Calls, "/calls")
		once(s)
	})
}

// Pace starts the pacer. Its calls are found where the receiver keeps those of its kind.
func (s *Stage) Pace(target, log string) {
	s.T.Helper()
	s.Run.At(target, func() []pacer.Call { return s.Paced(log) })
}

// Paced returns the calls of the pacer in a log of the receiver.
func (s *Stage) Paced(log string) (paced []pacer.Call) {
	s.T.Helper()
	var calls []sandbox.Call
	s.Get(log, &calls)
	for _, call := range calls {
		if due, ok := pacer.Due(call.Job); ok && call.Tenant == pacer.Tenant {
			paced = append(paced, pacer.Call{Due: due, At: call.At})
		}
	}
	return paced
}
