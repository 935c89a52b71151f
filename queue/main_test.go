package queue

import (
	"flag"
	"strconv"
	"testing"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
)

func TestMain(m *testing.M) {
	pacer.Main()
	// Parallel tests mostly wait.
	_ = flag.Set("test.parallel", "8")
	testlong.SameCases()
	_ = flag.Set("rapid.checks", strconv.Itoa(testlong.Of(25, 100)))
	redistest.OneServer(
		"TestObserverIsToldOfRoundTrips", // in a Cluster the time is read from a node, past the observer
	)
	redistest.Main(m)
}

// measured prepares this process for measuring time, because the receivers of rigs run in
// it: see package pacer.
func measured(t *testing.T, once func(t *testing.T, run *pacer.Run)) {
	t.Helper()
	redistest.Slow(t)
	pacer.Measure(t, func(t *testing.T, run *pacer.Run) {
		run.Here()
		once(t, run)
	})
}
