package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/overlay"
	"github.com/headgate/headgate/internal/test/redistest"
)

// ofClocks are clocks that are wrong.
var ofClocks = []scenario{
	{
		name: "worker-clocks", fault: "three workers, one 120 s ahead, one 120 s behind; then kill -9 of the latter",
		jobs: 2000, latency: time.Second,
		before: func(x *show) { x.program = skewed(x.T) },
		fleet: func(x *show) {
			for _, ahead := range []string{"0", "120", "-120"} {
				x.Start([]string{x.program}, "HEADGATE_TEST_AHEAD="+ahead)
			}
		},
		strike: func(x *show) {
			time.Sleep(15 * time.Second) // longer than a lease
			x.began = time.Now()         // until then no call may be made again
			x.kill(2)
		},
		promise: promise{twice: 110, again: 15 * time.Second, used: 0.5},
	},
	{
		name: "redis-clock", fault: "the clock of Redis jumps by +30 s, -60 s and +30 s, 5 s apart",
		jobs: 2500,
		before: func(x *show) {
			x.clock = &redistest.Clock{}
			x.relay = x.Redis.Relay(x.clock.Dial, nil)
			x.URL = x.relay.URL()
		},
		strike: func(x *show) {
			for _, by := range []time.Duration{30 * time.Second, -60 * time.Second, 30 * time.Second} {
				x.clock.Step(by)
				x.heal()
				time.Sleep(5 * time.Second) // the fault itself
			}
		},
		promise: promise{over: 1, used: 0.8}, // a step forward fills the bucket
	},
}

// skewed returns a worker whose clock is HEADGATE_TEST_AHEAD seconds ahead of the machine's. Its
// monotonic clock is right.
func skewed(t testing.TB) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(string(root[:len(root)-1]), "src", "time")
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	now, err := overlay.ReplaceLine(read("time.go"), "sec, nsec, mono := runtimeNow()", "sec, nsec, mono := runtimeNow(); sec += ahead")
	if err != nil {
		t.Fatal(err)
	}
	// Go compiles almost everything again for it. In a folder of its own, it does so only once.
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "headgate-test", "skewed")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	list, err := overlay.Write(dir, map[string]string{
		filepath.Join(folder, "time.go"): now,
		filepath.Join(folder, "zoneinfo_unix.go"): read("zoneinfo_unix.go") + `
var ahead = func() (n int64) {
	text, _ := syscall.Getenv("HEADGATE_TEST_AHEAD")
	sign := int64(1)
	for _, c := range text {
		if c == '-' {
			sign = -1
		} else {
			n = 10*n + int64(c-'0')
		}
	}
	return sign * n
}()
`,
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "worker")
	if out, err := exec.Command("go", "build", "-overlay", list, "-o", path, "../../../cmd/worker").CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, out))
	}
	return path
}
