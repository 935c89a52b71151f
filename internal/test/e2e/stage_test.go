package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/binaries"
	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limitsfile"
	"github.com/headgate/headgate/queue/operate"
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
	programs.Do(func() { programs.err = binaries.Build(dir, "../../..", "../../../cmd/...", "./receiver") })
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	return dir
}

func TestMain(m *testing.M) {
	pacer.Main()
	redistest.Main(m)
}

// stage is a Redis, a receiver and workers, each a process of its own.
type stage struct {
	t       testing.TB
	bin     string
	dir     string
	redis   *redistest.Server
	url     string // by which workers and producers find it
	calls   string // where jobs send their webhooks
	smtp    string // and their mail
	control string
	workers []*worker
	run     *pacer.Run // of what is measured
}

type worker struct {
	cmd  *exec.Cmd
	http string
	done chan struct{} // closed when the process is gone
	log  *logtest.Buffer
}

func newStage(t testing.TB, limits string, redisConfig ...string) *stage {
	t.Helper()
	s := newBareStage(t, limits, redistest.Start(t, redisConfig...))
	cmd := before(15, filepath.Join(s.bin, "receiver")) // it notes when calls arrive
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := fmt.Fscan(bufio.NewReader(out), &s.calls, &s.smtp, &s.control); err != nil {
		t.Fatalf("receiver: %v", err)
	}
	return s
}

// newBareStage has no receiver: the test has one of its own. The limits are published, so that
// jobs can be enqueued before the first worker runs.
func newBareStage(t testing.TB, limits string, redis *redistest.Server) *stage {
	t.Helper()
	bin := built(t)
	s := &stage{t: t, bin: bin, dir: t.TempDir(), redis: redis, url: redis.URL()}
	set, err := limitsfile.Load(s.write("limits.yaml", limits))
	if err != nil {
		t.Fatal(err)
	}
	if err := operate.Publish(t.Context(), redis.Client(), set); err != nil {
		t.Fatal(err)
	}
	return s
}

// before returns the command of a process that runs before others, by so much, where the system
// allows it. On two cores the scheduler otherwise keeps it waiting for up to 6 ms, longer than the
// errors that are looked for, while Redis runs.
func before(by int, program string, args ...string) *exec.Cmd {
	return exec.Command("nice", append([]string{"-n", fmt.Sprint(-by), program}, args...)...)
}

func (s *stage) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// worker starts `worker run` and waits until it takes jobs.
func (s *stage) worker(env ...string) *worker {
	s.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()
	w := &worker{http: "http://" + addr, done: make(chan struct{}), log: &logtest.Buffer{}}
	w.cmd = before(10, filepath.Join(s.bin, "worker"), "run") // its Redis and producers have other hosts elsewhere
	w.cmd.Env = append([]string{
		"HEADGATE_REDIS_URL=" + s.url, "HEADGATE_LIMITS_FILE=" + filepath.Join(s.dir, "limits.yaml"),
		"HEADGATE_HTTP_ADDR=" + addr, "HEADGATE_WEBHOOK_ALLOW_PRIVATE=true", "HEADGATE_SHUTDOWN_TIMEOUT=5s",
	}, env...)
	w.cmd.Stderr = w.log
	if err := w.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		_ = w.cmd.Wait() // how it ended is the test's to judge, by what it did
		close(w.done)
	}()
	s.workers = append(s.workers, w)
	s.t.Cleanup(func() {
		w.signal(syscall.SIGCONT)
		w.signal(syscall.SIGTERM)
		select {
		case <-w.done:
		case <-time.After(20 * time.Second):
			s.t.Error("the worker does not stop")
			w.signal(syscall.SIGKILL)
			<-w.done
		}
		if s.t.Failed() {
			s.t.Logf("log of the worker at %s:\n%s", w.http, w.log.Tail(4000))
		}
	})
	s.until(10*time.Second, "the worker is ready", func() bool {
		response, err := http.Get(w.http + "/readyz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return w
}

func (w *worker) signal(signal syscall.Signal) { _ = w.cmd.Process.Signal(signal) } // it may be gone

// until polls what only another process knows.
func (s *stage) until(limit time.Duration, what string, ok func() bool) {
	s.t.Helper()
	end := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(end) {
			s.t.Fatalf("%s: not within %v", what, limit)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// jobs writes NDJSON of n webhooks for a tenant.
func (s *stage) jobs(tenant string, n int, fields string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"kind":"webhook","tenant":%q,"key":"%s-%d"%s,"payload":{"url":"%s/","body":{"n":%d}}}`+"\n", tenant, tenant, i, fields, s.calls, i)
	}
	return b.String()
}

// bulk runs `enqueue bulk` on a file of these lines, none of which is known yet.
func (s *stage) bulk(lines string) {
	s.t.Helper()
	if n := strings.Count(lines, "\n"); s.send(lines) != n {
		s.t.Fatalf("enqueue bulk knew some of %d jobs", n)
	}
}

// send runs `enqueue bulk` on these lines, and tells how many were new.
func (s *stage) send(lines string) (accepted int) {
	s.t.Helper()
	path := s.write(fmt.Sprintf("jobs-%d.ndjson", time.Now().UnixNano()), lines)
	cmd := exec.Command(filepath.Join(s.bin, "enqueue"), "bulk", "--redis", s.url, "--json", path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("enqueue bulk: %v\n%s", err, out)
	}
	var told struct{ Accepted, Existing int }
	if err := json.Unmarshal(out, &told); err != nil || told.Accepted+told.Existing != strings.Count(lines, "\n") {
		s.t.Fatalf("enqueue bulk took %d of %d: %s", told.Accepted+told.Existing, strings.Count(lines, "\n"), out)
	}
	return told.Accepted
}

// missed is how many slots a worker's jobs missed.
func (w *worker) missed(t testing.TB) string {
	t.Helper()
	response, err := http.Get(w.http + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "headgate_slots_missed_total") {
			return strings.TrimSpace(line)
		}
	}
	return "none"
}

func (s *stage) order(path string) {
	s.t.Helper()
	response, err := http.Post(s.control+path, "", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	response.Body.Close()
}

func (s *stage) get(path string, into any) {
	s.t.Helper()
	response, err := http.Get(s.control + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		s.t.Fatal(err)
	}
}

// received is how many calls of a tenant a log of the receiver counts; "" for all.
func (s *stage) received(log, tenant string) int {
	s.t.Helper()
	var stats map[string]sandbox.Stats
	s.get(log+"/stats", &stats)
	n := 0
	for name, of := range stats {
		if name != pacer.Tenant && (tenant == "" || tenant == name) {
			n += of.Accepted
		}
	}
	return n
}

// wait asks for the number alone: to write out every call some times a second takes a core,
// and delays the calls that are measured.
func (s *stage) wait(tenant string, n int, limit time.Duration) {
	s.t.Helper()
	s.until(limit, fmt.Sprintf("%d calls of %q", n, tenant), func() bool { return s.received("/calls", tenant) >= n })
}

// allEnd waits until nothing is left of any webhook but what came of it, and checks that
// none was given up.
func (s *stage) allEnd(limit time.Duration) {
	s.t.Helper()
	inspector := asynq.NewInspectorFromRedisClient(s.redis.Client())
	left := asynq.QueueInfo{}
	s.until(limit, "all jobs have ended", func() bool {
		info, err := inspector.GetQueueInfo("webhook")
		if err != nil {
			return false // Redis starts
		}
		left = *info
		return info.Aggregating+info.Pending+info.Active+info.Retry+info.Scheduled == 0
	})
	if left.Archived > 0 {
		s.t.Errorf("%d jobs were archived", left.Archived)
	}
}

// log is every webhook but the pacer's.
func (s *stage) log() []sandbox.Call { return s.arrived("/calls") }

// mails is every mail but the pacer's.
func (s *stage) mails() []sandbox.Call { return s.arrived("/mails") }

func (s *stage) arrived(path string) []sandbox.Call {
	s.t.Helper()
	var calls []sandbox.Call
	s.get(path, &calls)
	return slices.DeleteFunc(calls, ofTenant(pacer.Tenant))
}

func times(calls []sandbox.Call, of func(sandbox.Call) bool) []time.Time {
	var out []time.Time
	for _, call := range calls {
		if of(call) {
			out = append(out, call.At)
		}
	}
	return out
}

func everyCall(sandbox.Call) bool { return true }

func ofTenant(name string) func(sandbox.Call) bool {
	return func(call sandbox.Call) bool { return call.Tenant == name }
}

// once checks that every job was called, and none twice.
func (s *stage) once(calls []sandbox.Call, want int) {
	s.t.Helper()
	jobs := map[string]int{}
	for _, call := range calls {
		jobs[call.Job]++
	}
	if len(jobs) != want {
		s.t.Errorf("%d jobs were called, want %d", len(jobs), want)
	}
	for job, n := range jobs {
		if n > 1 {
			s.t.Errorf("job %s was called %d times", job, n)
			return
		}
	}
}

// atLeastOnce checks that every job was called, and at most `twice` of them more
// than once.
func (s *stage) atLeastOnce(calls []sandbox.Call, want, twice int) {
	s.t.Helper()
	jobs, again := map[string]int{}, 0
	for _, call := range calls {
		if jobs[call.Job]++; jobs[call.Job] == 2 {
			again++
		}
	}
	if len(jobs) != want {
		s.t.Errorf("%d jobs were called, want %d", len(jobs), want)
	}
	if again > twice {
		s.t.Errorf("%d jobs were called more than once, at most %d may", again, twice)
	}
}
