// Package redistest provides real Redis servers for tests.
//
// [Shared] returns one server for a whole test binary, for tests that use only their own queue
// names or key prefixes ([Queue]). [Any] is the same for tests that can also run on a Cluster:
// make test-cluster. [Start] starts a server for one test, which can pause, kill and
// restart it. Packages that use Shared have
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// Without redis-server, tests fail instead of being skipped. This package never flushes a
// database.
package redistest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/internal/redisproc"
)

// Server is a redis-server, as used by one test.
type Server struct {
	t       testing.TB
	process *redisproc.Process
	shared  bool
	dir     string // of a server of Synced
	client  func() *redis.Client
}

// Start starts a server for this test, which stops with it. config has additional redis.conf
// settings, such as "--appendonly", "yes".
func Start(t testing.TB, config ...string) *Server {
	t.Helper()
	alone(t)
	return startOwn(t, config...)
}

func startOwn(t testing.TB, config ...string) *Server {
	t.Helper()
	process := start(t, t.TempDir(), config...)
	t.Cleanup(process.Kill) // also deletes its data
	return newServer(t, process, false)
}

func start(t testing.TB, dir string, config ...string) *redisproc.Process {
	t.Helper()
	process, err := redisproc.Start(redisproc.Config{Dir: dir, Args: config})
	if errors.Is(err, redisproc.ErrNotInstalled) {
		t.Fatal("redistest: no redis-server in PATH; these tests need a real Redis, 7.0 or later: scripts/install-test-deps.sh installs it")
	}
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	if major := process.Major(); major != 0 && major < 7 {
		version := process.Version()
		process.Kill()
		t.Fatalf("redistest: redis-server in PATH is %s; these tests need 7.0 or later", version)
	}
	return process
}

func newServer(t testing.TB, process *redisproc.Process, shared bool) *Server {
	s := &Server{t: t, process: process, shared: shared}
	s.client = sync.OnceValue(func() *redis.Client {
		options := &redis.Options{
			Addr:                     s.Addr(),
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}
		if shared { // No test makes it silent: only a busy machine does.
			options.ReadTimeout, options.WriteTimeout = time.Minute, time.Minute
		}
		client := redis.NewClient(options)
		t.Cleanup(func() { _ = client.Close() })
		return client
	})
	return s
}

// Addr returns the server's host:port.
func (s *Server) Addr() string { return s.process.Addr() }

// URL returns the server's redis:// URL.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Options returns the options of a client of the server.
func (s *Server) Options() *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: []string{s.Addr()}}
}

// Client returns the client of the server, always the same one, which is closed with the test.
func (s *Server) Client() *redis.Client { return s.client() }

// Pause freezes the server: connections stay open, but nothing is answered.
func (s *Server) Pause() { s.own("pause", s.process.Pause) }

// Resume continues a paused server.
func (s *Server) Resume() { s.own("resume", s.process.Resume) }

// Kill ends the server as in a power failure.
func (s *Server) Kill() { s.own("kill", func() error { s.process.Kill(); return nil }) }

// Restart starts the server again with the same port and data folder, after a clean stop if it
// still runs. Without "--appendonly", "yes" it is empty afterwards.
func (s *Server) Restart() { s.own("restart", s.process.Restart) }

// own applies a change to the server that other tests would notice, so it must not be shared.
func (s *Server) own(verb string, do func() error) {
	s.t.Helper()
	if s.shared {
		s.t.Fatalf("redistest: other tests use the shared server, so no test may %s it: use Start", verb)
	}
	if err := do(); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
}
