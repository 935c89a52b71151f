package redistest

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/redisproc"
)

// shared is the server of this test binary; zero until it is needed.
var shared struct {
	sync.Mutex
	inMain  bool
	process *redisproc.Process
	dir     string
}

// Shared returns the server of this test binary, which the first call starts and [Main] stops.
// Tests can use it in parallel, but must not pause or kill it.
func Shared(t testing.TB) *Server {
	t.Helper()
	alone(t)
	shared.Lock()
	defer shared.Unlock()
	dir := sharedDir(t)
	if shared.process == nil {
		shared.process = start(t, dir)
	}
	return newServer(t, shared.process, true)
}

// sharedDir returns a folder that exists until the test binary ends. The caller must hold shared.
func sharedDir(t testing.TB) string {
	t.Helper()
	if !shared.inMain {
		t.Fatal("redistest: what tests share needs: func TestMain(m *testing.M) { redistest.Main(m) }")
	}
	if shared.dir == "" {
		dir, err := os.MkdirTemp("", "headgate-test-redis-")
		if err != nil {
			t.Fatalf("redistest: %v", err)
		}
		shared.dir = dir
	}
	return shared.dir
}

// Dir returns a folder that all tests of this binary share. [Main] removes it.
func Dir(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	return sharedDir(t)
}

// Queue returns a unique queue name that begins with the test's name. It consists of the letters
// a-z, digits, _ and -.
func Queue(t testing.TB) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '_':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, strings.TrimPrefix(t.Name(), "Test"))
	return name[:min(len(name), 40)] + "-" + strings.ToLower(rand.Text()[:10])
}

// Slow marks a test that takes seconds: make check skips it.
func Slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test runs it")
	}
}

// Main is the TestMain of packages whose tests use Redis: it runs the tests, stops the shared
// server, and fails if goroutines are left.
func Main(m *testing.M, options ...goleak.Option) {
	shared.inMain = true
	code := m.Run()
	stopShared()
	if onCluster {
		report()
	}
	if code == 0 {
		// What rests for a second before it meets that its server is gone, such as a dial or a reading in
		// the background, is no leak.
		err := goleak.Find(options...)
		for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end); {
			err = goleak.Find(options...)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "redistest: the tests passed, but %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

func stopShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.process != nil {
		shared.process.Kill()
		shared.process = nil
	}
	for _, node := range sharedNodes {
		node.Kill()
	}
	sharedNodes = nil
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
}
