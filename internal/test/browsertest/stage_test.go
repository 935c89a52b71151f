package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/binaries"
	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue"
)

// programs are built by the first test that needs them.
var programs struct {
	sync.Once
	err error
}

// built returns the folder of the programs.
func built(t testing.TB) string {
	t.Helper()
	dir := redistest.Dir(t)
	programs.Do(func() { programs.err = binaries.Build(dir, "../../..", "../../../cmd/worker", "../../../cmd/enqueue") })
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	return dir
}

// stage is a Redis, a receiver of webhooks and workers, each of them the test's own.
type stage struct {
	t        testing.TB
	bin, dir string
	redis    *redistest.Server     // nil: it is not the test's own
	rdb      redis.UniversalClient // of it
	client   *queue.Client
	receiver string

	letThrough atomic.Bool // the receiver accepts what it refused before
}

func newStage(t testing.TB, limits string, redisConfig ...string) *stage {
	t.Helper()
	bin := built(t)
	s := &stage{t: t, bin: bin, dir: t.TempDir(), redis: redistest.Start(t, redisConfig...)}
	s.rdb = s.redis.Client()
	s.client = queue.NewClient(s.rdb)
	s.write("limits.yaml", limits)
	s.receiver = s.receive()
	return s
}

// receive starts a server that answers with the status in the path, /503/anything,
// and to /hang/anything not before the test ends.
func (s *stage) receive() string {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if first == "hang" {
			select {
			case <-ended:
			case <-r.Context().Done():
			}
		}
		status, err := strconv.Atoi(first)
		if err != nil || s.letThrough.Load() {
			status = http.StatusOK
		}
		if status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "600")
		}
		w.WriteHeader(status)
		fmt.Fprint(w, http.StatusText(status))
	}))
	s.t.Cleanup(func() { close(ended); server.Close() })
	return server.URL
}

func (s *stage) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// process is a program of ours that serves the page.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	page string
	done chan struct{} // closed when it is gone
	log  *logtest.Buffer
}

// worker starts `worker run` and waits until it is ready.
func (s *stage) worker(env ...string) *process {
	s.t.Helper()
	return s.workerAt(redistest.FreeAddr(s.t), env...)
}

func (s *stage) workerAt(addr string, env ...string) *process {
	s.t.Helper()
	p := start(s.t, filepath.Join(s.bin, "worker"), []string{"run"}, append([]string{
		"HEADGATE_REDIS_URL=" + s.redis.URL(), "HEADGATE_LIMITS_FILE=" + filepath.Join(s.dir, "limits.yaml"),
		"HEADGATE_HTTP_ADDR=" + addr, "HEADGATE_WEBHOOK_ALLOW_PRIVATE=true", "HEADGATE_SHUTDOWN_TIMEOUT=2s",
		"HEADGATE_BREAKER_FAILURES=0", "HEADGATE_WEBHOOK_TIMEOUT=10m", "HEADGATE_WEBHOOK_RETRY_NOT_FOUND=0",
	}, env...))
	p.page = "http://" + addr
	until.Done(s.t, "the worker is ready", func() bool { return p.answers("/readyz") })
	return p
}

func (p *process) answers(path string) bool {
	response, err := http.Get(p.page + path)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func start(t testing.TB, program string, args, env []string) *process {
	t.Helper()
	p := &process{t: t, done: make(chan struct{}), log: &logtest.Buffer{}}
	p.cmd = exec.Command(program, args...)
	p.cmd.Env = env
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is the test's to judge, by what it did
		close(p.done)
	}()
	t.Cleanup(func() {
		p.end(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log of %s %v:\n%s", filepath.Base(program), args, p.log.Tail(4000))
		}
	})
	return p
}

// end sends the signal and waits until the process is gone.
func (p *process) end(signal syscall.Signal) {
	_ = p.cmd.Process.Signal(signal) // it may be gone
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		p.t.Errorf("%s does not stop", filepath.Base(p.cmd.Path))
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}
