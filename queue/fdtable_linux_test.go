package queue

import (
	"context"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestRoomForConnections: a worker has room for its connections before it makes calls, because Linux would stop it for a
// moment at the 256th, the 512th, and so on.
func TestRoomForConnections(t *testing.T) {
	t.Parallel()
	const calls = 5000
	worker := newWorker(t, Config{Redis: redistest.Shared(t).Options(), Queues: []string{redistest.Queue(t)}, Concurrency: calls})
	Handle(worker, "call", func(context.Context, int) error { return nil })
	runWorker(t, worker)
	until(t, "it runs", func() bool { return worker.Ready() == nil })
	until(t, "there is room", func() bool {
		text, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(string(regexp.MustCompile(`FDSize:\s+(\d+)`).FindSubmatch(text)[1]))
		if err != nil {
			t.Fatal(err)
		}
		return n >= calls
	})
}
