package queue

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func universal(t testing.TB, server *redistest.Server) *redis.UniversalOptions {
	t.Helper()
	return &redis.UniversalOptions{Addrs: []string{server.Addr()}}
}
