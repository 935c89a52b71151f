// Package stage has what a test needs to run Headgate as its users do: a Redis, a receiver that
// records the time of every call, and workers, each in a process of its own.
package stage

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/binaries"
	"github.com/headgate/headgate/internal/test/get"
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

// Built returns the folder of the programs.
func Built(t testing.TB) string {
	t.Helper()
	dir := redistest.Dir(t)
	programs.Do(func() {
		programs.err = binaries.Build(dir, "../../..", "../../../cmd/worker", "../../../cmd/enqueue", "../stage/receiver", "../stage/direct")
	})
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	return dir
}

// Stage is a Redis, a receiver and workers. The folder of its test is internal/test/NAME.
type Stage struct {
	T       testing.TB
	Bin     string // the folder of the programs
	Dir     string
	Redis   *redistest.Server
	URL     string // by which workers and producers find it
	Calls   string // where jobs send their webhooks
	SMTP    string // and their mail
	Control string
	Workers []*Worker
	Run     *pacer.Run // of what is measured
}

// Worker is a process that runs `worker run`.
type Worker struct {
	Cmd  *exec.Cmd
	HTTP string
	Done chan struct{} // closed when the process is gone
	Log  *logtest.Buffer
}

// New returns a stage with a receiver, and with limits that are published, so that jobs can be
// enqueued before the first worker runs.
func New(t testing.TB, limits string, redisConfig ...string) *Stage {
	t.Helper()
	s := Bare(t, limits, redistest.Start(t, redisConfig...))
	s.Receive()
	return s
}

// Bare returns a stage without a receiver: the test has one of its own, or adds it with
// [Stage.Receive].
func Bare(t testing.TB, limits string, redis *redistest.Server) *Stage {
	t.Helper()
	s := &Stage{T: t, Bin: Built(t), Dir: t.TempDir(), Redis: redis, URL: redis.URL()}
	info, err := redis.Client().InfoMap(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	pacer.PutAhead(t, info["Server"]["process_id"])
	set, err := limitsfile.Load(s.Write("limits.yaml", limits))
	if err != nil {
		t.Fatal(err)
	}
	if err := operate.Publish(t.Context(), redis.Client(), set); err != nil {
		t.Fatal(err)
	}
	return s
}

// Receive starts the receiver.
func (s *Stage) Receive() {
	s.T.Helper()
	cmd := pacer.Ahead(filepath.Join(s.Bin, "receiver"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.T.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := fmt.Fscan(bufio.NewReader(out), &s.Calls, &s.SMTP, &s.Control); err != nil {
		s.T.Fatalf("receiver: %v", err)
	}
}

// PerTenant is a limits file with one limit per tenant.
func PerTenant(rate string) string {
	return `
queues:
  webhook:
    kinds: [webhook]
    limits:
      - {name: tenant, per: [tenant], algorithm: token_bucket, rate: ` + rate + `}
`
}

// Write writes a file of the stage, and returns its path.
func (s *Stage) Write(name, text string) string {
	s.T.Helper()
	path := filepath.Join(s.Dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.T.Fatal(err)
	}
	return path
}

// Worker starts `worker run` and waits until it takes jobs.
func (s *Stage) Worker(env ...string) *Worker {
	s.T.Helper()
	return s.Start([]string{filepath.Join(s.Bin, "worker")}, env...)
}

// Start starts `COMMAND run` and waits until it takes jobs.
func (s *Stage) Start(command []string, env ...string) *Worker {
	s.T.Helper()
	addr := redistest.FreeAddr(s.T)
	w := &Worker{HTTP: "http://" + addr, Done: make(chan struct{}), Log: &logtest.Buffer{}}
	w.Cmd = exec.Command(command[0], append(slices.Clone(command[1:]), "run")...)
	w.Cmd.Env = append([]string{
		"HEADGATE_REDIS_URL=" + s.URL, "HEADGATE_LIMITS_FILE=" + filepath.Join(s.Dir, "limits.yaml"),
		"HEADGATE_HTTP_ADDR=" + addr, "HEADGATE_WEBHOOK_ALLOW_PRIVATE=true", "HEADGATE_SHUTDOWN_TIMEOUT=5s",
	}, env...)
	w.Cmd.Stderr = w.Log
	if err := w.Cmd.Start(); err != nil {
		s.T.Fatal(err)
	}
	go func() {
		_ = w.Cmd.Wait() // how it ended is the test's to judge, by what it did
		close(w.Done)
	}()
	s.Workers = append(s.Workers, w)
	s.T.Cleanup(func() {
		w.Signal(syscall.SIGCONT)
		w.Signal(syscall.SIGTERM)
		select {
		case <-w.Done:
		case <-time.After(20 * time.Second):
			s.T.Error("the worker does not stop")
			w.Signal(syscall.SIGKILL)
			<-w.Done
		}
		if s.T.Failed() {
			s.T.Logf("log of the worker at %s:\n%s", w.HTTP, w.Log.Tail(4000))
		}
	})
	// Not before: a process that starts is busy. And not after: its first calls are judged, too.
	until(s.T, time.Millisecond, 10*time.Second, "the worker has started", func() bool { return strings.Contains(w.Log.String(), `msg="worker runs"`) })
	pacer.PutAhead(s.T, strconv.Itoa(w.Cmd.Process.Pid))
	s.Until(10*time.Second, "the worker is ready", w.ready)
	return w
}

// ready reports whether a worker takes jobs.
func (w *Worker) ready() bool {
	response, err := http.Get(w.HTTP + "/readyz")
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// Signal sends a signal to the worker, which may be gone.
func (w *Worker) Signal(signal syscall.Signal) { _ = w.Cmd.Process.Signal(signal) }

// Until polls what only another process knows.
func (s *Stage) Until(limit time.Duration, what string, ok func() bool) {
	s.T.Helper()
	until(s.T, 20*time.Millisecond, limit, what, ok)
}

func until(t testing.TB, every, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, limit)
		}
		time.Sleep(every)
	}
}

// Jobs writes NDJSON of n webhooks for a tenant.
func (s *Stage) Jobs(tenant string, n int, fields string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"kind":"webhook","tenant":%q,"key":"%s-%d"%s,"payload":{"url":"%s/","body":{"n":%d}}}`+"\n", tenant, tenant, i, fields, s.Calls, i)
	}
	return b.String()
}

// Bulk runs `enqueue bulk` on a file of these lines, none of which is known yet.
func (s *Stage) Bulk(lines string) {
	s.T.Helper()
	if n := strings.Count(lines, "\n"); s.Send(lines) != n {
		s.T.Fatalf("enqueue bulk knew some of %d jobs", n)
	}
}

// Send runs `enqueue bulk` on these lines, and tells how many were new.
func (s *Stage) Send(lines string) (accepted int) {
	s.T.Helper()
	path := s.Write(fmt.Sprintf("jobs-%d.ndjson", time.Now().UnixNano()), lines)
	cmd := exec.Command(filepath.Join(s.Bin, "enqueue"), "bulk", "--redis", s.URL, "--json", path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.T.Fatalf("enqueue bulk: %v\n%s", err, out)
	}
	var told struct{ Accepted, Existing int }
	if err := json.Unmarshal(out, &told); err != nil || told.Accepted+told.Existing != strings.Count(lines, "\n") {
		s.T.Fatalf("enqueue bulk took %d of %d: %s", told.Accepted+told.Existing, strings.Count(lines, "\n"), out)
	}
	return told.Accepted
}

// Missed is how many slots a worker's jobs missed.
func (w *Worker) Missed(t testing.TB) string {
	t.Helper()
	for line := range strings.Lines(get.Text(t, w.HTTP+"/metrics")) {
		if strings.HasPrefix(line, "headgate_slots_missed_total") {
			return strings.TrimSpace(line)
		}
	}
	return "none"
}

func (s *Stage) Order(path string) {
	s.T.Helper()
	response, err := http.Post(s.Control+path, "", nil)
	if err != nil {
		s.T.Fatal(err)
	}
	response.Body.Close()
}

func (s *Stage) Get(path string, into any) {
	s.T.Helper()
	response, err := http.Get(s.Control + path)
	if err != nil {
		s.T.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		s.T.Fatal(err)
	}
}

// Received is how many calls of a tenant a log of the receiver counts; "" for all.
func (s *Stage) Received(log, tenant string) int {
	s.T.Helper()
	var stats map[string]sandbox.Stats
	s.Get(log+"/stats", &stats)
	n := 0
	for name, of := range stats {
		if name != pacer.Tenant && (tenant == "" || tenant == name) {
			n += of.Accepted
		}
	}
	return n
}

// Wait asks for the number alone: to write out every call some times a second takes a core,
// and delays the calls that are measured.
func (s *Stage) Wait(tenant string, n int, limit time.Duration) {
	s.T.Helper()
	s.Until(limit, fmt.Sprintf("%d calls of %q", n, tenant), func() bool { return s.Received("/calls", tenant) >= n })
}

// AllEnd waits until all webhooks have ended, and checks that
// none was given up.
func (s *Stage) AllEnd(limit time.Duration) {
	s.T.Helper()
	inspector := asynq.NewInspectorFromRedisClient(s.Redis.Client())
	left := asynq.QueueInfo{}
	s.Until(limit, "all jobs have ended", func() bool {
		info, err := inspector.GetQueueInfo("webhook")
		if err != nil {
			return false // Redis starts
		}
		left = *info
		return info.Aggregating+info.Pending+info.Active+info.Retry+info.Scheduled == 0
	})
	if left.Archived > 0 {
		s.T.Errorf("%d jobs were archived", left.Archived)
	}
}

// Log is every webhook but the pacer's.
func (s *Stage) Log() []sandbox.Call { return s.arrived("/calls") }

// Mails is every mail but the pacer's.
func (s *Stage) Mails() []sandbox.Call { return s.arrived("/mails") }

func (s *Stage) arrived(path string) []sandbox.Call {
	s.T.Helper()
	var calls []sandbox.Call
	s.Get(path, &calls)
	return slices.DeleteFunc(calls, OfTenant(pacer.Tenant))
}

func Times(calls []sandbox.Call, of func(sandbox.Call) bool) []time.Time {
	var out []time.Time
	for _, call := range calls {
		if of(call) {
			out = append(out, call.At)
		}
	}
	return out
}

func EveryCall(sandbox.Call) bool { return true }

func OfTenant(name string) func(sandbox.Call) bool {
	return func(call sandbox.Call) bool { return call.Tenant == name }
}

// Once checks that every job was called, and none twice.
func (s *Stage) Once(calls []sandbox.Call, want int) {
	s.T.Helper()
	jobs := map[string]int{}
	for _, call := range calls {
		jobs[call.Job]++
	}
	if len(jobs) != want {
		s.T.Errorf("%d jobs were called, want %d", len(jobs), want)
	}
	for job, n := range jobs {
		if n > 1 {
			s.T.Errorf("job %s was called %d times", job, n)
			return
		}
	}
}

// AtLeastOnce checks that every job was called, and at most `twice` of them more
// than once.
func (s *Stage) AtLeastOnce(calls []sandbox.Call, want, twice int) {
	s.T.Helper()
	jobs, again := map[string]int{}, 0
	for _, call := range calls {
		if jobs[call.Job]++; jobs[call.Job] == 2 {
			again++
		}
	}
	if len(jobs) != want {
		s.T.Errorf("%d jobs were called, want %d", len(jobs), want)
	}
	if again > twice {
		s.T.Errorf("%d jobs were called more than once, at most %d may", again, twice)
	}
}
