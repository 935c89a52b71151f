package redistest_test

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestStart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes")
	client := s.Client()
	if s.Client() != client {
		t.Error("Client made a second client")
	}
	settings, err := client.ConfigGet(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"appendonly": "yes", "save": "", "maxmemory-policy": "noeviction", "bind": "127.0.0.1",
	} {
		if got := settings[name]; got != want {
			t.Errorf("%s = %q; want %q", name, got, want)
		}
	}
	if err := client.Set(t.Context(), "kept", "yes", 0).Err(); err != nil {
		t.Fatal(err)
	}

	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := client.WithTimeout(50 * time.Millisecond).Ping(ctx).Err(); err == nil {
		t.Error("a paused server answered")
	}
	s.Resume()
	s.Kill()
	s.Restart()
	if got, err := client.Get(t.Context(), "kept").Result(); got != "yes" || err != nil {
		t.Errorf("after kill and restart: %q, %v; want what the append-only file holds", got, err)
	}
}

func TestShared(t *testing.T) {
	t.Parallel()
	first, second := redistest.Shared(t), redistest.Shared(t)
	if first.URL() != second.URL() || !strings.HasPrefix(first.URL(), "redis://127.0.0.1:") {
		t.Errorf("two shared servers: %s, %s", first.URL(), second.URL())
	}
	if err := first.Client().Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	for verb, do := range map[string]func(*redistest.Server){
		"pause":   (*redistest.Server).Pause,
		"resume":  (*redistest.Server).Resume,
		"kill":    (*redistest.Server).Kill,
		"restart": (*redistest.Server).Restart,
	} {
		said := fatal(t, func(t testing.TB) { do(redistest.Shared(t)) })
		if !strings.Contains(said, "no test may "+verb+" it") {
			t.Errorf("%s of the shared server said %q", verb, said)
		}
	}
	if err := first.Client().Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestWithoutRedisServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	said := fatal(t, func(t testing.TB) { redistest.Start(t) })
	if !strings.Contains(said, "scripts/install-test-deps.sh") {
		t.Errorf("Start without a redis-server said %q", said)
	}
}

// fatal runs a test body that must end in Fatal, and returns what that said.
func fatal(t *testing.T, body func(testing.TB)) string {
	t.Helper()
	inner := &fakeTB{TB: t}
	var wg sync.WaitGroup
	wg.Go(func() {
		body(inner)
		t.Error("the test went on; want a Fatal")
	})
	wg.Wait()
	return inner.said
}

type fakeTB struct {
	testing.TB
	said string
}

func (f *fakeTB) Fatal(args ...any) {
	f.said = fmt.Sprint(args...)
	runtime.Goexit()
}

func (f *fakeTB) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

func TestQueue(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	names := regexp.MustCompile(`^[a-z0-9_-]{1,51}$`)
	for _, name := range []string{"plain", "Ümläut, space/and/slash {x}:y", strings.Repeat("long", 40)} {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				queue := redistest.Queue(t)
				if !names.MatchString(queue) || seen[queue] {
					t.Fatalf("Queue = %q: malformed or seen before", queue)
				}
				seen[queue] = true
			}
		})
	}
}
