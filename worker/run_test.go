package worker_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/test/get"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/worker"
)

const greet queue.Kind[string] = "greet"

// TestMain runs a worker program in place of the tests if a test started this process.
func TestMain(m *testing.M) {
	if os.Getenv("GREETER") == "" {
		redistest.Main(m)
		return
	}
	worker.Main(func(_ context.Context, p *worker.Program) error {
		greetings := prometheus.NewCounter(prometheus.CounterOpts{Name: "greetings_total"})
		p.Metrics.MustRegister(greetings)
		p.Defer(func() { fmt.Println("deferred") })
		p.Go(func(ctx context.Context) error {
			<-ctx.Done()
			fmt.Println("parts end")
			return nil
		})
		queue.Handle(p.Worker, greet, func(_ context.Context, name string) error {
			greetings.Inc()
			fmt.Println("greets", name)
			response, err := http.Get(name) // returns when the test allows it
			if err == nil {
				response.Body.Close()
			}
			fmt.Println("greeted")
			return err
		})
		queue.Handle(p.Worker, "tick", func(context.Context, string) error { return nil })
		p.Periodic(queue.Periodic{ID: "tick", Spec: "@every 24h", Job: queue.Job{Kind: "tick", Tenant: "acme", Payload: "x"}})
		return nil
	})
}

// greeter starts a worker program.
func greeter(t *testing.T, environment []string, args ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), "GREETER=1"), environment...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// want reads the next line of a program.
func want(t *testing.T, out *bufio.Scanner, line string) {
	t.Helper()
	if !out.Scan() || out.Text() != line {
		t.Fatalf("the program printed %q; want %q", out.Text(), line)
	}
}

// TestMainOfAProgram: a program with a kind of its own has a limits file, the API, metrics of
// its own and a health check, and SIGTERM does not interrupt a call.
func TestMainOfAProgram(t *testing.T) {
	store := redistest.Start(t)
	addr := redistest.FreeAddr(t)
	file := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, []byte("queues: {greetings: {kinds: [greet, tick], limits: [{name: tenant, per: [tenant], algorithm: token_bucket, rate: 10/s, burst: 1}]}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Without the program's own limits no queue would serve its periodic job.
	if err := operate.Publish(t.Context(), store.Client(), limits.Set{Queues: map[string]limits.Queue{"others": {Kinds: []string{"other"}}}}); err != nil {
		t.Fatal(err)
	}
	called, answer := make(chan struct{}), make(chan struct{})
	receiver := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(called)
		<-answer
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go receiver.Serve(listener)
	defer receiver.Close()

	environment := []string{"HEADGATE_REDIS_URL=" + store.URL(), "HEADGATE_HTTP_ADDR=" + addr, "HEADGATE_LIMITS_FILE=" + file}
	program, out := greeter(t, environment, "--shutdown-timeout", "20s")
	client := queue.NewClient(store.Client())
	until.Done(t, "it is ready", func() bool {
		check, _ := greeter(t, environment, "healthcheck")
		return check.Wait() == nil
	})
	if _, err := client.Enqueue(t.Context(), greet.Job("acme", "http://"+listener.Addr().String())); err != nil {
		t.Fatal(err)
	}
	if entries, err := client.ListPeriodic(t.Context()); err != nil || len(entries) != 1 || entries[0].ID != "tick" {
		t.Errorf("its periodic jobs are %+v, %v", entries, err)
	}
	want(t, out, "greets http://"+listener.Addr().String())
	<-called
	for path, text := range map[string]string{"metrics": "greetings_total 1\n", "api/v1/queues": `"greetings"`, "": "<title>"} {
		if got := get.Text(t, "http://"+addr+"/"+path); !strings.Contains(got, text) {
			t.Errorf("/%s lacks %q: %s", path, text, got)
		}
	}
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for {
		response, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			t.Fatalf("the health check ended before the last call: %v", err)
		}
		response.Body.Close()
		if response.StatusCode == http.StatusServiceUnavailable {
			break
		}
	}
	close(answer)
	want(t, out, "greeted")
	want(t, out, "parts end")
	want(t, out, "deferred")
	if err := program.Wait(); err != nil {
		t.Error(err)
	}
}

// TestMainRejects: mistakes are told in one line, with exit code 2.
func TestMainRejects(t *testing.T) {
	for name, test := range map[string]struct {
		args, environment []string
		want              string
	}{
		"a setting":        {nil, []string{"HEADGATE_CONCURRENCY=0", "HEADGATE_LOG_FORMAT=xml"}, "HEADGATE_CONCURRENCY: 0 must be 1 to 100000"},
		"a flag":           {[]string{"--concurency", "3"}, nil, "unknown flag: --concurency"},
		"an argument":      {[]string{"now"}, nil, `takes no arguments, got "now"`},
		"no queue":         {nil, nil, "no queue to serve"},
		"a wrong exporter": {nil, []string{"HEADGATE_QUEUES=q", "OTEL_TRACES_EXPORTER=x"}, `OTEL_TRACES_EXPORTER: "x" is not one of`},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], test.args...)
			cmd.Env = append(append(os.Environ(), "GREETER=1"), test.environment...)
			out, _ := cmd.CombinedOutput()
			if !strings.Contains(string(out), test.want) || strings.Contains(string(out), "Usage") || cmd.ProcessState.ExitCode() != 2 {
				t.Errorf("exit %d: %s", cmd.ProcessState.ExitCode(), out)
			}
		})
	}
}
