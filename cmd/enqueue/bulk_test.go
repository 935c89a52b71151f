package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/internal/jobline"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

func put(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func rejectedIn(t *testing.T, path string) (all []rejectedLine) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r rejectedLine
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func TestCommands(t *testing.T) {
	if out, errText, code := enqueue(t, ""); code != exitOK || errText != "" || !strings.Contains(out, "Exit codes") {
		t.Errorf("no command: %q %q %d", out, errText, code)
	}
	if _, errText, code := enqueue(t, "", "sned"); code != exitUsage || errText != `there is no command "sned"; did you mean "send"?` {
		t.Errorf("a misspelled command: %q %d", errText, code)
	}
	if _, errText, code := enqueue(t, "", "bulk", "a", "b"); code != exitUsage || !strings.Contains(errText, "one file") {
		t.Errorf("two files: %q %d", errText, code)
	}
}

func TestRedisFromEnvironment(t *testing.T) {
	url, client := own(t)
	t.Setenv("HEADGATE_REDIS_URL", url)
	args := []string{"send", "--kind", "call", "--tenant", "a", "--payload", "1"}
	if _, errText, code := enqueue(t, "", args...); code != exitOK || waiting(t, client) != 1 {
		t.Errorf("from the environment: %q %d", errText, code)
	}
	t.Setenv("HEADGATE_REDIS_URL", "redis://u:hush@127.0.0.1:1")
	if _, errText, code := enqueue(t, "", append(args, "--redis", url)...); code != exitOK {
		t.Errorf("the flag wins: %q %d", errText, code)
	}
	if _, errText, code := enqueue(t, "", args...); code != exitFailure || !strings.Contains(errText, "HEADGATE_REDIS_URL") || strings.Contains(errText, "hush") {
		t.Errorf("a wrong environment: %q %d", errText, code)
	}
}

// What the queue refuses and what is no job come out in the order of the lines.
func TestBulkRejectedInOrder(t *testing.T) {
	url, client := own(t)
	lines := []string{`{"kind":"call","tenant":"ok","key":"k","payload":"<&>"}`}
	wants := []string{""}
	for _, bad := range []struct{ line, want string }{
		{`{"kind":"call","tenant":"ok","key":"k","payload":2}`, "another job has this key"},
		{`{"kind":"call","tenant":"a","payload":"<&>","cost":0}`, "cost: 0"},
		{`{"kind":"call","tenant":"a","payload":1,"cost":21}`, "cost: 21 is more than"},
		{`{"kind":"call","tenant":"a","payload":1,"cost":-1}`, "cost: -1"},
		{`{"kind":"call","tenant":"a","payload":1,"cost":1e3}`, "cost: must be a whole number"},
		{`{"kind":"call","tenant":"","payload":1}`, "tenant: it is empty"},
		{`{"kind":"call","tenant":"a\nb","payload":1}`, "control characters"},
		{`{"kind":"call","tenant":"` + strings.Repeat("x", 1024) + `","payload":1}`, "tenant: 1024 bytes"},
		{`{"kind":"call","tenant":"a","payload":1,"at":"9999-12-31T23:59:59Z"}`, "at: 9999"},
		{`{"kind":"call","tenant":"a","payload":1,"deadline":"0001-01-01T00:00:00Z"}`, "deadline: the year 1"},
		{`{"kind":"call","tenant":"a","payload":"` + strings.Repeat("x", 1<<20) + `"}`, "payload: 1048578 bytes"},
		{`{"kind":"call","tenant":"a"}`, "payload: it is missing"},
		{`{"kind":"calls","tenant":"a","payload":1}`, `did you mean "call"?`},
		{`{"kind":"call","tenant":"a","payload":1,"attributes":{"d":1}}`, "attributes"},
		{strings.Repeat(" ", jobline.MaxLine+1), "longer than"},
		{"\x00\x01\x02", "not JSON"},
	} {
		lines, wants = append(lines, bad.line), append(wants, bad.want)
	}
	for _, tenant := range []string{"{}", ":", "*", "%", "ünïcødé", "a}:pending"} {
		lines = append(lines, fmt.Sprintf(`{"kind":"call","tenant":%q,"payload":1}`, tenant))
	}
	dir := t.TempDir()
	place := filepath.Join(dir, "no.ndjson")
	out, errText, code := enqueue(t, "", "bulk", "--redis", url, "--rejected", place, put(t, filepath.Join(dir, "jobs"), strings.Join(lines, "\r\n")))
	if code != exitPartial || !strings.Contains(out, "7 accepted") || !strings.Contains(errText, place) {
		t.Errorf("%s %s exit %d", out, errText, code)
	}
	rejected := rejectedIn(t, place)
	if len(rejected) != len(wants)-1 {
		t.Fatalf("%d were rejected, want %d", len(rejected), len(wants)-1)
	}
	for i, r := range rejected {
		if r.Line != i+2 || !strings.Contains(r.Reason, wants[i+1]) || strings.Contains(r.Reason, "\n") {
			t.Errorf("line %d: %.300s; want line %d, %s", r.Line, r.Reason, i+2, wants[i+1])
		}
	}
	if rejected[1].Input != lines[2] {
		t.Errorf("kept %s of %s", rejected[1].Input, lines[2])
	}
	if n := waiting(t, client); n != 7 {
		t.Errorf("%d jobs wait", n)
	}
}

// Rejected lines never cost what stands in their place: the input, a pipe.
func TestBulkRejectedPlace(t *testing.T) {
	url, client := own(t)
	dir := t.TempDir()
	job := `{"kind":"call","tenant":"a","payload":1}`
	path := put(t, filepath.Join(dir, "jobs.ndjson"), job)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for place, want := range map[string]string{path: "is the file that is read", link: "is the file that is read", dir: "is a folder", filepath.Join(dir, "no", "x"): "no such file"} {
		if _, errText, code := enqueue(t, "", "bulk", "--redis", url, "--rejected", place, path); code != exitUsage || !strings.Contains(errText, "--rejected: ") || !strings.Contains(errText, want) {
			t.Errorf("%s: %q, exit %d; want %s", place, errText, code, want)
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != job {
		t.Errorf("the input is now %q, %v", text, err)
	}
	if n := waiting(t, client); n != 0 {
		t.Errorf("%d jobs wait although the call was wrong", n)
	}

	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errText, code := enqueue(t, "", "bulk", "--redis", url, "--rejected", pipe, path); code != exitOK {
		t.Errorf("nothing rejected: %q, exit %d", errText, code)
	}
	read := make(chan string, 1)
	go func() {
		text, err := os.ReadFile(pipe)
		read <- fmt.Sprint(string(text), err)
	}()
	if _, errText, code := enqueue(t, "{}", "bulk", "--redis", url, "--rejected", pipe, "-"); code != exitPartial {
		t.Errorf("one rejected: %q, exit %d", errText, code)
	}
	if text := <-read; !strings.Contains(text, `"line":1`) {
		t.Errorf("the pipe got %s", text)
	}
	if info, err := os.Lstat(pipe); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe is now %v, %v", info, err)
	}
}

func TestBulkHostileCSV(t *testing.T) {
	url, client := own(t)
	path := put(t, filepath.Join(t.TempDir(), "jobs.csv"), "\uFEFF\"tenant\",kind,payload.x\r\n"+
		"a,call,ok\r\n"+ // 2
		"a,call,b\"ad\r\n"+
		"a,call,\"x\"y\r\n"+
		"\r\n"+
		"a,call,\"two\nlines, \"\"one\"\" cell\"\r\n"+ // 6 and 7
		"a,call,M\xfcller\r\n"+
		"a,call,"+strings.Repeat("x", jobline.MaxLine)+"\r\n"+
		"a,call,ok\r\n"+ // 10, the same as 2
		"a,call,\"never closed\r\na,call,ok\r\n"+strings.Repeat("x", 3*jobline.MaxLine))
	out, errText, code := enqueue(t, "", "bulk", "--redis", url, path)
	if code != exitPartial || !strings.Contains(out, "3 accepted") {
		t.Errorf("%s %s exit %d", out, errText, code)
	}
	wants := []struct {
		line   int
		reason string
	}{{3, `bare "`}, {4, "quoted-field"}, {8, "not UTF-8"}, {9, "longer than"}, {11, "a quote is not closed"}}
	rejected := rejectedIn(t, path+".rejected")
	if len(rejected) != len(wants) {
		t.Fatalf("rejected %.2000v", rejected)
	}
	for i, r := range rejected {
		if r.Line != wants[i].line || !strings.Contains(r.Reason, wants[i].reason) || len(r.Input) > 400 {
			t.Errorf("rejected line %d (%d bytes): %s; want %v", r.Line, len(r.Input), r.Reason, wants[i])
		}
	}
	out, _, _ = enqueue(t, "", "bulk", "--redis", url, path)
	if n := waiting(t, client); n != 3 || !strings.Contains(out, "0 accepted, 3 known already") {
		t.Errorf("again: %s; %d jobs wait", out, n)
	}
	// The same cells under other columns are other jobs.
	put(t, path, "tenant,kind,payload.y\na,call,ok\n")
	if out, _, code := enqueue(t, "", "bulk", "--redis", url, path); code != exitOK || !strings.Contains(out, "1 accepted") {
		t.Errorf("another header: %s exit %d", out, code)
	}
	put(t, path, "tenant\xff,kind\n")
	if _, errText, code := enqueue(t, "", "bulk", "--redis", url, path); code != exitUsage || !strings.Contains(errText, "line 1: must be a header in UTF-8") {
		t.Errorf("a header of bytes: %s exit %d", errText, code)
	}
}

// Lines for several queues in turn go to each in their order.
func TestBulkSeveralQueues(t *testing.T) {
	url, client := own(t)
	set := limits.Set{Queues: map[string]limits.Queue{}}
	for _, name := range []string{"one", "two"} {
		set.Queues[name] = limits.Queue{Kinds: []string{"kind-" + name}, Limits: []limits.Limit{{
			Name: "all", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(10),
		}}}
	}
	if err := operate.Publish(t.Context(), client, set); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for i := range 1200 {
		fmt.Fprintf(&text, `{"kind":"kind-%s","tenant":"t","key":"%d","payload":%d}`+"\n", []string{"one", "two"}[i%2], i, i)
	}
	path := put(t, filepath.Join(t.TempDir(), "jobs"), text.String())
	if out, errText, code := enqueue(t, "", "bulk", "--redis", url, path); code != exitOK || !strings.Contains(out, "1200 accepted") {
		t.Errorf("%s %s exit %d", out, errText, code)
	}
	for _, name := range []string{"one", "two"} {
		overview, err := inspect.New(client).Overview(t.Context(), name)
		if err != nil || overview.Waiting != 600 {
			t.Errorf("%s: %d wait, %v", name, overview.Waiting, err)
		}
	}
}

// A pipe that pauses gets its lines enqueued, and an interrupt does not wait for more.
func TestBulkFromSilentPipe(t *testing.T) {
	url, client := own(t)
	t.Chdir(t.TempDir())
	from, to := io.Pipe()
	ctx, cancel := context.WithCancelCause(t.Context())
	type result struct {
		out, errText string
		code         int
	}
	ended := make(chan result, 1)
	go func() {
		out, errText, code := enqueueFrom(ctx, from, "bulk", "--redis", url, "--kind", "call", "--tenant", "a")
		ended <- result{out, errText, code}
	}()
	if _, err := io.WriteString(to, `{"payload":1}`+"\n"); err != nil {
		t.Fatal(err)
	}
	until.Done(t, "enqueued", func() bool { return waiting(t, client) == 1 })
	cancel(errors.New("a signal"))
	r := <-ended
	to.Close() // lets the reader go
	if r.code != exitPartial || !strings.Contains(r.errText, "stopped after line 1: interrupted: a signal; running the same file again is safe") || !strings.Contains(r.out, "1 accepted") {
		t.Errorf("%+v", r)
	}

	from, to = io.Pipe()
	ctx, cancel = context.WithCancelCause(t.Context())
	cancel(errors.New("a signal"))
	if _, errText, code := enqueueFrom(ctx, from, "send", "--kind", "call", "--tenant", "a", "--payload", "-"); code != exitFailure || !strings.Contains(errText, "a signal") {
		t.Errorf("send: %q exit %d", errText, code)
	}
	to.Close()
}

// A reply that is lost leaves open whether the jobs are there. Bulk says so, and
// a second run makes each of them exactly once.
func TestBulkWhenRepliesAreLost(t *testing.T) {
	server := ownServer(t)
	client := server.Client()
	t.Chdir(t.TempDir())
	relay := server.Relay(nil, nil)
	from, to := io.Pipe()
	var file strings.Builder
	write := func(first, n int) {
		t.Helper()
		for i := range n {
			line := fmt.Sprintf(`{"payload":%d}`+"\n", first+i)
			file.WriteString(line)
			if _, err := io.WriteString(to, line); err != nil {
				t.Fatal(err)
			}
		}
	}
	args := []string{"bulk", "--kind", "call", "--tenant", "a", "--redis"}
	type result struct {
		out, errText string
		code         int
	}
	ended := make(chan result, 1)
	go func() {
		out, errText, code := enqueueFrom(t.Context(), from, append(args, relay.URL())...)
		ended <- result{out, errText, code}
	}()
	write(0, 10)
	until.Done(t, "enqueued", func() bool { return waiting(t, client) == 10 })
	relay.Lose(func(kind string) bool { return kind == "script" })
	write(10, 10)
	to.Close()
	r := <-ended
	if r.code != exitPartial || !strings.Contains(r.errText, "stopped after line 10: ") || !strings.Contains(r.errText, "running the same file again is safe") ||
		!strings.Contains(r.errText, "not known") || !strings.Contains(r.out, "10 accepted") || strings.Contains(r.errText, "\n") {
		t.Errorf("%+v", r)
	}
	if n := waiting(t, client); n != 20 {
		t.Errorf("%d jobs wait; the test wants the lost batch to have arrived", n)
	}
	out, errText, code := enqueueFrom(t.Context(), strings.NewReader(file.String()), append(args, server.URL())...)
	if n := waiting(t, client); code != exitOK || !strings.Contains(out, "0 accepted, 20 known already") || n != 20 {
		t.Errorf("again: %s %s exit %d; %d jobs wait", out, errText, code, n)
	}
}

func TestStatusQuotesOddNames(t *testing.T) {
	url, _ := own(t)
	if _, errText, code := enqueue(t, "", "send", "--redis", url, "--kind", "call", "--tenant", "a\u202eb", "--payload", "1"); code != exitOK {
		t.Fatal(errText)
	}
	if out, _, _ := enqueue(t, "", "status", "--redis", url); !strings.Contains(out, `"a\u202eb"`) || strings.Contains(out, "\u202e") {
		t.Errorf("status printed %q", out)
	}
}

func BenchmarkBulk(b *testing.B) {
	url, _ := own(b)
	path := filepath.Join(b.TempDir(), "jobs.ndjson")
	lines := 20_000
	if testing.Short() {
		lines = 1000
	}
	var total time.Duration
	for n := 0; b.Loop(); n++ {
		var text strings.Builder
		for i := range lines {
			fmt.Fprintf(&text, `{"kind":"call","tenant":"t%d","payload":{"run":%d,"n":%d}}`+"\n", i%50, n, i)
		}
		put(b, path, text.String())
		began := time.Now()
		if _, errText, code := enqueueFrom(b.Context(), nil, "bulk", "--redis", url, path); code != exitOK {
			b.Fatal(errText)
		}
		total += time.Since(began)
	}
	b.ReportMetric(float64(b.N*lines)/total.Seconds(), "jobs/s")
}
