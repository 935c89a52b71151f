package queue

import (
	"flag"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) {
	// Tests that run beside others wait far more than they compute.
	_ = flag.Set("test.parallel", "6")
	redistest.Main(m)
}

func universal(t testing.TB, server *redistest.Server) *redis.UniversalOptions {
	t.Helper()
	return &redis.UniversalOptions{Addrs: []string{server.Addr()}}
}
