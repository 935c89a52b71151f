package embedded_test

import (
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/test/until"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		port, _ := strconv.Atoi(os.Args[2])
		embedded.Serve(os.Stdin, os.Stdout, port)
		return
	}
	goleak.VerifyTestMain(m)
}

// apart starts this program again.
func apart(port int) (*exec.Cmd, error) {
	return exec.Command(os.Args[0], "serve", strconv.Itoa(port)), nil
}

func TestStart(t *testing.T) {
	tests := map[string]struct {
		options embedded.Options
		kind    string
	}{
		"redis-server": {embedded.Options{}, "redis-server "},
		"miniredis":    {embedded.Options{Miniredis: true}, "miniredis"},
		"apart":        {embedded.Options{Miniredis: true, Apart: apart}, "miniredis"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			began := time.Now()
			server, err := embedded.Start(test.options)
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			client := connect(t, server.URL())
			if err := client.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s answers after %v", server.Kind(), time.Since(began))
			if !strings.HasPrefix(server.Kind(), test.kind) {
				t.Errorf("Kind = %q; want %q", server.Kind(), test.kind)
			}
			if err := client.Set(t.Context(), "short", "lived", 700*time.Millisecond).Err(); err != nil {
				t.Fatal(err)
			}
			gone := func() bool { return errors.Is(client.Get(t.Context(), "short").Err(), redis.Nil) }
			if gone() {
				t.Error("a key is gone before its time")
			}
			until.Done(t, "a key expires", gone)
			folders, _ := filepath.Glob(filepath.Join(dir, "headgate-redis-*"))
			for _, folder := range folders {
				if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("%s: mode %v, %v; want 0700", folder, info.Mode(), err)
				}
			}

			// a second one neither takes the port nor harms the first
			if second, err := embedded.Start(embedded.Options{Port: port(t, server.URL()), Miniredis: test.options.Miniredis, Apart: test.options.Apart}); err == nil {
				second.Close()
				t.Error("started twice on one port")
			} else if test.options.Miniredis && !strings.Contains(err.Error(), "address already in use") {
				t.Errorf("on a port that is taken: %v", err)
			}

			server.Close()
			server.Close()
			if conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL(), "redis://")); !errors.Is(err, syscall.ECONNREFUSED) {
				if err == nil {
					conn.Close()
				}
				t.Errorf("after Close: %v; want connection refused", err)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("Close left %v", left)
			}

			again, err := embedded.Start(embedded.Options{Port: port(t, server.URL()), Miniredis: test.options.Miniredis, Apart: test.options.Apart})
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			if again.URL() != server.URL() {
				t.Errorf("Start with a port = %s; want %s", again.URL(), server.URL())
			}
		})
	}
}

func TestStartServerKeepsEverythingInMemory(t *testing.T) {
	server, err := embedded.Start(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	settings, err := connect(t, server.URL()).ConfigGet(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"appendonly": "no", "save": "", "maxmemory-policy": "noeviction", "bind": "127.0.0.1",
	} {
		if got := settings[name]; got != want {
			t.Errorf("%s = %q; want %q", name, got, want)
		}
	}
}

func TestStartFallsBackToMiniredis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	server, err := embedded.Start(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if server.Kind() != "miniredis" {
		t.Errorf("Kind without a redis-server = %q", server.Kind())
	}
}

// What our scripts stand on, on both kinds: EVALSHA, and Redis's clock.
func TestScripts(t *testing.T) {
	for _, options := range []embedded.Options{{}, {Miniredis: true}} {
		server, err := embedded.Start(options)
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		script := redis.NewScript(`return redis.call('TIME')[1]`)
		got, err := script.Run(t.Context(), connect(t, server.URL()), nil).Int64()
		if off := time.Since(time.Unix(got, 0)); err != nil || off < -time.Second || off > 5*time.Second {
			t.Errorf("%s: TIME in a script is %v off, %v", server.Kind(), off, err)
		}
	}
}

func connect(t *testing.T, address string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func port(t *testing.T, address string) int {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(parsed.Port())
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// TestApartThatIsNone: a command that is none, or another one, is an error.
func TestApartThatIsNone(t *testing.T) {
	none := errors.New("there is no such program")
	for name, test := range map[string]struct {
		apart func(int) (*exec.Cmd, error)
		want  string
	}{
		"none":    {func(int) (*exec.Cmd, error) { return nil, none }, none.Error()},
		"missing": {func(int) (*exec.Cmd, error) { return exec.Command(filepath.Join(t.TempDir(), "missing")), nil }, "no such file"},
		"another": {func(int) (*exec.Cmd, error) { return exec.Command(os.Args[0], "-test.run=^$"), nil }, "instead of its address"},
	} {
		server, err := embedded.Start(embedded.Options{Miniredis: true, Apart: test.apart})
		if err == nil {
			server.Close()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v; want %q", name, err, test.want)
		}
	}
}
