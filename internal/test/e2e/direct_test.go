package e2e

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/stage"
)

// direct starts a process whose calls are no jobs. It ends with the test.
func direct(s *stage.Stage, callers int, every time.Duration) {
	s.T.Helper()
	cmd := pacer.Ahead(filepath.Join(s.Bin, "direct"), "-redis", s.URL, "-target", s.Calls+"/", "-callers", fmt.Sprint(callers), "-every", every.String())
	said := &logtest.Buffer{}
	cmd.Stderr = said
	in, err := cmd.StdinPipe()
	if err != nil {
		s.T.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			s.T.Errorf("direct: %v: %s", err, said.Tail(1000))
		}
	})
}

// TestDirectAndQueuedCalls: the jobs of a worker and the calls of two other processes share a limit, use it, and each
// side has what is kept for it.
func TestDirectAndQueuedCalls(t *testing.T) {
	t.Parallel()
	const rate, jobs = 100, 1000
	for name, test := range map[string]struct {
		reserve string
		callers int // of each process
		every   time.Duration
		direct  float64 // of each second's calls, at least
		jobs    float64
	}{
		// Ten calls a second of each process.
		"kept for direct calls": {"{direct: 20%}", 3, 300 * time.Millisecond, 20, 80},
		// There are always more calls, of both sides.
		"kept for both": {"{jobs: 60%, direct: 20%}", 30, 0, 20, 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := "queues: {webhook: {kinds: [webhook], limits: [{name: account, algorithm: leaky_bucket, rate: 100/s, reserve: " + test.reserve + "}]}}\n"
			stage.Measured(t, limits, func(s *stage.Stage) {
				s.Worker()
				s.Bulk(s.Jobs("acme", jobs, ""))
				s.Wait("acme", 10, 20*time.Second)
				direct(s, test.callers, test.every)
				direct(s, test.callers, test.every)
				s.Wait("direct", 20, 20*time.Second)
				from := time.Now()
				s.Wait("acme", jobs*9/10, 60*time.Second)
				to := time.Now()
				calls := s.Log()
				all := stage.Times(calls, stage.EveryCall)
				s.Run.Law("account", all, rate, 1)
				within := func(tenant string) (at []time.Time) {
					for _, call := range calls {
						if (tenant == "" || call.Tenant == tenant) && call.At.After(from) && call.At.Before(to) {
							at = append(at, call.At)
						}
					}
					return at
				}
				s.Run.Used("account", within(""), rate, 0.98)
				s.Run.Used("what is kept for direct calls", within("direct"), test.direct, 0.98)
				s.Run.Used("what is kept for jobs", within("acme"), test.jobs, 0.98)
			})
		})
	}
}
