// Package acltest runs the programs as the users of docs/redis.acl.
package acltest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/binaries"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const limits = `
queues:
  webhook:
    kinds: [webhook]
    durability: replicated
    limits:
      - {name: shared, algorithm: token_bucket, rate: 200/s, burst: 5}
      - {name: tenant, per: [tenant], algorithm: sliding_window_log, rate: 100/s}
      - {name: in-flight, per: [tenant], concurrency: 2}
`

// world is a Redis with the users, and the programs.
type world struct {
	t                        *testing.T
	folder                   string
	worker, producer, reader string // URLs
	admin                    *redis.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, folder: t.TempDir()}
	if err := binaries.Build(w.folder, "../../..", "../../../cmd/worker", "../../../cmd/enqueue"); err != nil {
		t.Fatal(err)
	}
	file := users(t, w.folder)
	server := redistest.Start(t, "--aclfile", file)
	server.StartReplica("--aclfile", file)
	url := func(user string) string { return "redis://" + user + ":" + user + "-password@" + server.Addr() }
	w.worker, w.producer, w.reader, w.admin = url("worker"), url("producer"), url("reader"), server.Client()
	return w
}

// users writes a file for Redis with the users of docs/redis.acl, whose passwords are USER-password.
func users(t *testing.T, folder string) string {
	t.Helper()
	rules, err := os.ReadFile("../../../docs/redis.acl")
	if err != nil {
		t.Fatal(err)
	}
	text := string(rules)
	for _, name := range []string{"worker", "producer", "reader"} {
		if !strings.Contains(text, "user "+name+" on resetkeys ") {
			t.Fatalf("%s: it has a password, or is not there", name)
		}
		text = strings.Replace(text, "user "+name+" on ", "user "+name+" on >"+name+"-password ", 1)
	}
	if !strings.Contains(text, "user default off\n") {
		t.Fatal("everybody is let in")
	}
	text = strings.Replace(text, "user default off\n", "user default on nopass ~* &* +@all\n", 1) // for the test itself
	file := filepath.Join(folder, "users.acl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (w *world) enqueue(url string, args ...string) (string, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(w.folder, "enqueue"), append(args, "--redis", url)...).CombinedOutput()
	return string(out), err
}

// can runs a command that has to succeed.
func (w *world) can(url string, args ...string) string {
	w.t.Helper()
	out, err := w.enqueue(url, args...)
	if err != nil {
		w.t.Errorf("%v: %v: %s", args, err, out)
	}
	return out
}

// cannot runs a command that Redis has to refuse.
func (w *world) cannot(url string, args ...string) {
	w.t.Helper()
	out, err := w.enqueue(url, args...)
	if err == nil || !strings.Contains(out, "NOPERM") && !strings.Contains(out, "The user executing the script can't") {
		w.t.Errorf("%v: %v: %s", args, err, out)
	}
}

// start runs a program until the end of the test.
func (w *world) start(name string, environment []string, args ...string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), filepath.Join(w.folder, name), args...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = w.t.Output(), w.t.Output()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = cmd.Wait() })
}

func get(url string) (int, string) {
	response, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

// denied returns what Redis denied since the last call, and to whom.
func (w *world) denied() []string {
	w.t.Helper()
	return denied(w.t, w.admin)
}

func denied(t *testing.T, admin *redis.Client) []string {
	t.Helper()
	entries, err := admin.ACLLog(t.Context(), 128).Result()
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, e := range entries {
		if strings.HasPrefix(e.Object, "client|") { // names of libraries, for Redis 7.2 and later; without them all goes on
			continue
		}
		texts = append(texts, fmt.Sprintf("%s of %s: %s %s", e.Reason, e.Username, e.Context, e.Object))
	}
	if err := admin.ACLLogReset(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return texts
}

// TestUsers: workers, producers and dashboards do their work as the users of docs/redis.acl, and
// none can do the work of another or what none of them needs.
func TestUsers(t *testing.T) {
	w := newWorld(t)
	var calls atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	defer receiver.Close()
	file := filepath.Join(w.folder, "limits.yaml")
	if err := os.WriteFile(file, []byte(limits), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start("worker", []string{
		"HEADGATE_REDIS_URL=" + w.worker, "HEADGATE_LIMITS_FILE=" + file, "HEADGATE_WEBHOOK_ALLOW_PRIVATE=true", "HEADGATE_HTTP_ADDR=127.0.0.1:0", "HEADGATE_LOG_LEVEL=warn",
	}, "run")
	until.Done(t, "a worker", func() bool { return w.admin.ZCard(t.Context(), "headgate:workers").Val() == 1 })

	payload := `{"url":"` + receiver.URL + `","method":"GET"}`
	send := func(more ...string) []string {
		return append([]string{"send", "--kind", "webhook", "--tenant", "acme", "--payload", payload}, more...)
	}
	follow := `{"kind":"webhook","payload":` + payload + `}`
	w.can(w.producer, send("--key", "k", "--on-success", follow)...)
	w.can(w.producer, send("--key", "k", "--on-success", follow)...)
	w.can(w.producer, send("--key", "u", "--key-until", "ended", "--priority", "high")...)
	w.can(w.producer, send("--key", "w", "--key-window", "5s", "--priority", "low")...)
	w.can(w.producer, send("--in", "1h", "--deadline", time.Now().Add(24*time.Hour).Format(time.RFC3339))...)
	w.can(w.producer, send("--deadline", time.Now().Add(24*time.Hour).Format(time.RFC3339))...)
	var lines strings.Builder
	for i := range 60 {
		fmt.Fprintf(&lines, `{"kind":"webhook","tenant":"t%d","payload":%s,"attributes":{"part":"%d"}}`+"\n", i%3, payload, i%2)
	}
	jobs := filepath.Join(w.folder, "jobs.ndjson")
	if err := os.WriteFile(jobs, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	w.can(w.producer, "bulk", jobs)
	until.Done(t, "all calls", func() bool { return calls.Load() >= 60+5 })

	q := []string{"--queue", "webhook"}
	for _, args := range [][]string{
		{"status"}, {"tenants"}, {"failures"}, {"workers"}, {"audit"}, {"limits", "show"}, {"limits", "export"}, {"periodic", "list"}, {"endpoints", "list"},
		append([]string{"jobs", "list", "--state", "scheduled"}, q...), append([]string{"estimate", "--tenant", "acme", "--jobs", "5"}, q...), {"explain", "acme:k"},
	} {
		w.can(w.reader, args...)
	}
	addr := redistest.FreeAddr(t)
	w.start("enqueue", []string{"HEADGATE_REDIS_URL=" + w.reader}, "serve", "--read-only", "--http", addr)
	api := "http://" + addr + "/api/v1/"
	until.Done(t, "a server", func() bool { status, _ := get(api + "session"); return status == 200 })
	for _, path := range []string{
		"queues", "queues/webhook", "queues/webhook/tenants", "queues/webhook/tenants/acme", "queues/webhook/history", "queues/webhook/shares", "queues/webhook/limits",
		"queues/webhook/jobs?state=scheduled", "queues/webhook/jobs/acme:k", "queues/webhook/failures", "audit", "workers", "providers", "lab",
	} {
		if status, text := get(api + path); status != 200 {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}

	why := append([]string{"--reason", "a test"}, q...)
	sure := append([]string{"--yes"}, why...)
	for _, args := range [][]string{
		append([]string{"pause", "--tenant", "acme"}, sure...), append([]string{"resume", "--tenant", "acme"}, sure...),
		append([]string{"limits", "set", "--tenant", "acme", "--limit", "tenant", "--rate", "5/s"}, sure...), append([]string{"limits", "clear", "--tenant", "acme", "--limit", "tenant"}, why...),
		append([]string{"cancel", "--tenant", "acme"}, sure...), append([]string{"retry", "--tenant", "acme"}, sure...), append([]string{"delete", "--tenant", "acme"}, sure...),
		{"periodic", "add", "p", "--spec", "@daily", "--zone", "UTC", "--kind", "webhook", "--tenant", "acme", "--payload", payload, "--reason", "a test"},
		{"periodic", "remove", "p", "--reason", "a test"}, {"limits", "apply", file, "--reason", "a test", "--yes"},
	} {
		w.can(w.worker, args...)
	}
	if texts := w.denied(); len(texts) > 0 {
		t.Errorf("denied: %q", texts)
	}

	w.cannot(w.reader, send()...)
	w.cannot(w.producer, append([]string{"pause", "--tenant", "acme"}, sure...)...)
	w.cannot(w.producer, append([]string{"limits", "set", "--tenant", "acme", "--limit", "tenant", "--rate", "5/s"}, sure...)...)
	w.cannot(w.producer, append([]string{"cancel", "--tenant", "acme"}, sure...)...)
	w.cannot(w.reader, append([]string{"pause", "--tenant", "acme"}, sure...)...)
	for _, url := range []string{w.worker, w.producer, w.reader} {
		options, err := redis.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(options)
		for _, command := range []string{
			"FLUSHALL", "FLUSHDB", "KEYS *", "CONFIG SET maxmemory 1", "SHUTDOWN", "ACL LIST", "MONITOR", "SET other 1", "GET other", "MODULE LIST", "REPLICAOF NO ONE",
			"CLIENT KILL ID 1", "SAVE", "MIGRATE 127.0.0.1 1 x 0 1", "SUBSCRIBE other", "FUNCTION LIST",
		} {
			words := []any{}
			for word := range strings.FieldsSeq(command) {
				words = append(words, word)
			}
			if err := client.Do(t.Context(), words...).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
				t.Errorf("%s as %s: %v", command, options.Username, err)
			}
		}
		client.Close()
	}
}

// TestHalfAUser: if a user lacks a key that a script writes, what the script wrote before stays, so
// the job is not said to be certainly not enqueued.
func TestHalfAUser(t *testing.T) {
	w := newWorld(t)
	if err := w.admin.Do(t.Context(), "ACL", "SETUSER", "half", "on", ">half-password", "~asynq:*", "~headgate:{*}:waiting", "~headgate:{*}:never", "%R~headgate:*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	options, err := queue.ParseRedisURL(strings.ReplaceAll(w.worker, "worker", "half"))
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewUniversalClient(options)
	defer client.Close()
	_, err = queue.NewClient(client).Enqueue(t.Context(), queue.Job{Kind: "call", Queue: "calls", Tenant: "acme", Payload: 1})
	if err == nil || strings.Contains(err.Error(), "certainly not") {
		t.Errorf("%v", err)
	}
}
