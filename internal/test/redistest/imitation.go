package redistest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/test/binaries"
)

// Embedded returns a client of an embedded Redis in this process, which ends with the test.
func Embedded(t testing.TB) *redis.Client {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Miniredis: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return imitated(t, server.URL())
}

// Imitation returns a client of an embedded Redis in a separate process, which ends with the test.
// The race detector does not apply to it, and does not slow it down.
func Imitation(t testing.TB) *redis.Client {
	t.Helper()
	cmd := exec.Command(imitation(t))
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "GOGC=400") // most of its Lua allocations are garbage at once
	server, err := embedded.Start(embedded.Options{Miniredis: true, Apart: func(int) (*exec.Cmd, error) { return cmd, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return imitated(t, server.URL())
}

func imitated(t testing.TB, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}

// imitation returns the program, which the first caller builds.
func imitation(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	path := filepath.Join(sharedDir(t), "serve")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := binaries.Put(filepath.Dir(path), "github.com/headgate/headgate/internal/embedded/serve"); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return path
}
