package queue

import (
	"flag"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
)

func TestMain(m *testing.M) {
	pacer.Main()
	// Parallel tests mostly wait.
	_ = flag.Set("test.parallel", "12")
	if !testlong.On() { // fewer random cases, the same ones each time
		_ = flag.Set("rapid.checks", "25")
		_ = flag.Set("rapid.seed", "1")
	}
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

func universal(t testing.TB, server *redistest.Server) *redis.UniversalOptions {
	t.Helper()
	return &redis.UniversalOptions{Addrs: []string{server.Addr()}}
}
