package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/jobline"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
	"github.com/headgate/headgate/throttle"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// Exit codes, as the help says.
const (
	exitOK = iota
	exitFailure
	exitUsage
	exitPartial
)

// enqueue runs the command as a shell would.
func enqueue(t *testing.T, stdin string, args ...string) (out, errText string, code int) {
	t.Helper()
	return enqueueFrom(t.Context(), strings.NewReader(stdin), args...)
}

func enqueueFrom(ctx context.Context, stdin io.Reader, args ...string) (out, errText string, code int) {
	var stdout, stderr bytes.Buffer
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err := cmd.ExecuteContext(ctx)
	if err != nil {
		errText = err.Error()
	}
	return stdout.String(), errText + stderr.String(), program.ExitCode(err)
}

// own is a Redis with one queue, "calls", for kind "call": what bulk of one
// test leaves must not be seen by another.
func own(t testing.TB) (url string, client *redis.Client) {
	t.Helper()
	server := ownServer(t)
	return server.URL(), server.Client()
}

func ownServer(t testing.TB) *redistest.Server {
	t.Helper()
	server := redistest.Start(t)
	limits := limits.Set{Queues: map[string]limits.Queue{"calls": {Kinds: []string{"call", "webhook", "email"}, Limits: []limits.Limit{{
		Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(10), Burst: 20, Per: []string{"tenant"},
	}}}}}
	if err := operate.Publish(t.Context(), server.Client(), limits); err != nil {
		t.Fatal(err)
	}
	redistest.Serve(server.Client(), "calls", "call", "webhook", "email")
	return server
}

func waiting(t *testing.T, client *redis.Client) int64 {
	t.Helper()
	overview, err := inspect.New(client).Overview(t.Context(), "calls")
	if err != nil {
		t.Fatal(err)
	}
	return overview.Waiting
}

func TestSend(t *testing.T) {
	url, client := own(t)
	out, errText, code := enqueue(t, "", "send", "--redis", url, "--json", "--kind", "call", "--tenant", "acme", "--key", "k", "--payload", `{"n":1}`)
	var r receipt
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitOK || r.Queue != "calls" || r.ID != "acme:k" || r.Existing {
		t.Errorf("send: %q %q %d", out, errText, code)
	}
	out, _, code = enqueue(t, `{"n":1}`, "send", "--redis", url, "--kind", "call", "--tenant", "acme", "--key", "k", "--payload", "-")
	if code != exitOK || !strings.Contains(out, "known already") {
		t.Errorf("again: %q %d", out, code)
	}
	if n := waiting(t, client); n != 1 {
		t.Errorf("%d jobs wait", n)
	}
	if _, errText, code := enqueue(t, "", "send", "--redis", url, "--kind", "call", "--tenant", "acme", "--key", "k", "--payload", `{"n":2}`); code != exitFailure || !strings.Contains(errText, "another job has this key") {
		t.Errorf("another payload: %q %d", errText, code)
	}
}

func TestHostileInput(t *testing.T) {
	url, client := own(t)
	webhook := `{"url":"http://x/"}`
	tests := map[string]struct {
		args []string
		want string
	}{
		"empty tenant":        {[]string{"--tenant", ""}, "tenant: it is empty"},
		"tenant of 1 KB":      {[]string{"--tenant", strings.Repeat("x", 1024)}, "tenant: 1024 bytes; the maximum is 128"},
		"tenant with newline": {[]string{"--tenant", "a\nb"}, "tenant: "},
		"payload not JSON":    {[]string{"--payload", "{"}, "--payload: "},
		"no payload":          {[]string{"--payload", ""}, "payload: it is missing"},
		"payload too large":   {[]string{"--payload", `"` + strings.Repeat("x", 1<<20) + `"`}, "payload: 1048578 bytes; the maximum is 1048576"},
		"payload of a file":   {[]string{"--payload", "@/does/not/exist"}, "--payload: open /does/not/exist"},
		"year 1":              {[]string{"--at", "0001-01-01T00:00:00Z"}, "at: the year 1 is before 2000"},
		"year 9999":           {[]string{"--at", "9999-01-01T00:00:00Z"}, "at: 9999-01-01T00:00:00Z is more than 10 years ahead"},
		"no time":             {[]string{"--at", "tomorrow"}, `at: "tomorrow" is not a time`},
		"deadline has passed": {[]string{"--deadline", "2020-01-01T00:00:00Z"}, "deadline: 2020-01-01T00:00:00Z has passed"},
		"cost 0":              {[]string{"--cost", "0"}, "cost: 0: a call costs at least 1"},
		"cost -1":             {[]string{"--cost", "-1"}, "cost: -1: a call costs at least 1"},
		"cost over capacity":  {[]string{"--cost", "21"}, `cost: 21 is more than limit "tenant" ever admits at once (20)`},
		"unknown kind":        {[]string{"--kind", "cal"}, `did you mean "call"?`},
		"webhook without url": {[]string{"--kind", "webhook", "--payload", "{}"}, "payload.url: it is empty"},
		"webhook with a typo": {[]string{"--kind", "webhook", "--payload", `{"ulr":"http://x"}`}, `payload.ulr: unknown field; did you mean "url"?`},
		"email without to":    {[]string{"--kind", "email", "--payload", `{"from":"a@b","text":"x"}`}, "payload.to: there are no recipients"},
		"attribute":           {[]string{"--attribute", "x"}, "--attribute: "},
		"unknown flag":        {[]string{"--tennant", "x"}, "unknown flag: --tennant"},
		"an argument":         {[]string{"x"}, "takes no arguments"},
		"wrong Redis URL":     {[]string{"--redis", "http://x"}, "--redis: redis URL: scheme"},
		"password in the URL": {[]string{"--redis", "http://u:hush@x"}, "--redis: redis URL"},
		"max attempts 0":      {[]string{"--max-attempts", "0"}, "max_attempts: 0"},
		"attribute twice":     {[]string{"--attribute", "d=1", "--attribute", "d=2"}, `--attribute: "d" is a duplicate`},
		"header":              {[]string{"--header", "x"}, `--header: "x" is not name=value`},
		"header taken":        {[]string{"--header", "headgate-tenant=x"}, `headers: the name "headgate-tenant" is reserved`},
		"attribute tenant":    {[]string{"--attribute", "tenant=x"}, "attributes: tenant is a field of the job"},
		"priority":            {[]string{"--priority", "urgent"}, `priority: "urgent" is not a priority: use high, normal or low`},
		"at and in":           {[]string{"--at", "2099-01-01T00:00:00Z", "--in", "1h"}, "in: set at or in, not both"},
		"endless payload":     {[]string{"--payload", "@/dev/zero"}, "--payload: it is larger than 2097152 bytes"},
		"empty key":           {[]string{"--key", ""}, "key: it is empty"},
		"empty callback":      {[]string{"--callback", ""}, "callback: it is empty"},
		"empty follow-up":     {[]string{"--on-success", ""}, "--on-success: it is empty; give JSON, @FILE, or -"},
		"follow-up not JSON":  {[]string{"--on-failure", "{"}, "--on-failure: "},
		"follow-up in part":   {[]string{"--on-success", `{"kind":"b"}`}, "on_success.payload: it is missing"},
		"stdin twice":         {[]string{"--on-success", "-", "--on-failure", "-"}, "--on-failure: --on-success reads standard input already; use @FILE"},
		"queue":               {[]string{"--queue", "a b"}, `queue: "a b" is not`},
		"attempts not number": {[]string{"--max-attempts", "many"}, "max-attempts"},
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			args := append([]string{"send", "--redis", url, "--kind", "call", "--tenant", "a", "--payload", webhook}, test.args...)
			out, errText, code := enqueue(t, "", args...)
			if code != exitUsage || !strings.Contains(errText, test.want) || strings.Contains(errText, "\n") || strings.Contains(errText, "hush") || out != "" {
				t.Errorf("%q, %q, exit %d; want 2 and one line with %q", out, errText, code, test.want)
			}
		})
	}
	for _, tenant := range []string{"{}", ":", "*", "%", "ünïcødé", "a}:pending"} {
		if _, errText, code := enqueue(t, "", "send", "--redis", url, "--kind", "call", "--tenant", tenant, "--payload", webhook); code != exitOK {
			t.Errorf("tenant %q: %s", tenant, errText)
		}
	}
	if n := waiting(t, client); n != 6 {
		t.Errorf("%d jobs wait, want those of the 6 odd tenants alone", n)
	}
	if _, errText, code := enqueue(t, "", "send", "--redis", "redis://u:hush@127.0.0.1:1", "--kind", "call", "--tenant", "a", "--payload", webhook); code != exitFailure || !strings.Contains(errText, "no Redis answers at 127.0.0.1:1") || strings.Contains(errText, "hush") {
		t.Errorf("no Redis: %q, exit %d", errText, code)
	}
}

func TestBulk(t *testing.T) {
	url, client := own(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "jobs.ndjson")
	lines := []string{
		`{"kind":"call","tenant":"a","payload":{"n":1}}`,
		`{"kind":"call","tenant":"a","payload":{"n":1}}`, // the same twice is two jobs
		`{"kind":"call","tenant":"b","payload":{"n":2},"in":"1h","priority":"high","attributes":{"domain":"x"}}`,
		``,
		`{"kind":"call","tenant":"a","payload":{},"cost":0}`,
		`{"kind":"call","tenant":"a","payload":{},"deadlin":"2030-01-01T00:00:00Z"}`,
		`{"kind":"call","tenant":"a","tenant":"b","payload":{}}`,
		`{"kind":"call","tenant":7,"payload":{}}`,
		`[1]`,
		"\xff\xfe\x00 garbage",
		`{"kind":"call","tenant":"a","payload":{},"at":"0001-01-01T00:00:00Z"}`,
		`{"kind":"call","tenant":"a","payload":{}} {"kind":"call"}`,
		`{"payload":"` + strings.Repeat("x", jobline.MaxLine) + `"}`,
	}
	put(t, path, strings.Join(lines, "\n"))
	out, errText, code := enqueue(t, "", "bulk", "--redis", url, "--json", path)
	var told bulkRun
	if err := json.Unmarshal([]byte(out), &told); err != nil || code != exitPartial || told.Accepted != 3 || told.Rejected != 9 || told.Lines != 12 {
		t.Fatalf("%s %s exit %d", out, errText, code)
	}
	rejected, err := os.ReadFile(path + ".rejected")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		`"line":5,"reason":"cost: 0: a call costs at least 1"`, `did you mean \"deadline\"?`, "tenant: duplicate field", "tenant: must be a text, not a JSON number",
		"must be one object a line", "not UTF-8", "at: the year 1 is before 2000", "more than one object", "longer than",
	} {
		if line := strings.Split(string(rejected), "\n")[i]; !strings.Contains(line, want) {
			t.Errorf("rejected line %d is %.200s; want %s", i, line, want)
		}
	}
	out, _, _ = enqueue(t, "", "bulk", "--redis", url, "--json", path)
	if err := json.Unmarshal([]byte(out), &told); err != nil || told.Accepted != 0 || told.Existing != 3 {
		t.Errorf("the same file again: %s", out)
	}
	if n := waiting(t, client); n != 2 {
		t.Errorf("%d jobs wait, want 2 and one scheduled", n)
	}

	put(t, path, lines[0]+"\n")
	if _, errText, code := enqueue(t, "", "bulk", "--redis", url, path); code != exitOK {
		t.Error(errText)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*rejected*")); err != nil || len(left) > 0 {
		t.Errorf("without rejected lines there is %v, %v", left, err)
	}
}

func TestBulkCSV(t *testing.T) {
	url, client := own(t)
	path := put(t, filepath.Join(t.TempDir(), "jobs.CSV"), "\uFEFFtenant,payload.url,payload.method,cost,attributes.domain\n"+
		"a,http://x/1,POST,2,example.com\n"+
		"b,\"http://x/2\",,,\n"+
		"c,ftp://x,,,\n"+
		"d,http://x/3\n"+
		"e,http://x/4,,zero,\n")
	out, errText, code := enqueue(t, "", "bulk", "--redis", url, "--kind", "webhook", path)
	if code != exitPartial || !strings.Contains(out, "2 accepted, 0 known already, 3 rejected") {
		t.Errorf("%s %s exit %d", out, errText, code)
	}
	for _, want := range []string{"line 4: payload.url: it is not http or https", "line 5: 2 cells under 5 columns", "line 6: cost"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q: %s", want, out)
		}
	}
	if n := waiting(t, client); n != 2 {
		t.Errorf("%d jobs wait", n)
	}
	for name, header := range map[string]string{"unknown": "tennant,payload", "twice": "tenant,tenant", "empty": ""} {
		put(t, path, header)
		if _, errText, code := enqueue(t, "", "bulk", "--redis", url, path); code != exitUsage {
			t.Errorf("header %s: %s, exit %d", name, errText, code)
		}
	}
}

func TestBulkFromStandardInput(t *testing.T) {
	url, client := own(t)
	var lines strings.Builder
	for i := range 1234 {
		fmt.Fprintf(&lines, `{"payload":{"n":%d}}`+"\n", i)
	}
	t.Chdir(t.TempDir())
	out, errText, code := enqueue(t, lines.String(), "bulk", "--redis", url, "--kind", "call", "--tenant", "a", "-")
	if code != exitOK || !strings.Contains(out, "1234 accepted") {
		t.Errorf("%s %s exit %d", out, errText, code)
	}
	if n := waiting(t, client); n != 1234 {
		t.Errorf("%d jobs wait", n)
	}
	if _, errText, code := enqueue(t, "", "bulk", "--redis", url, "/does/not/exist"); code != exitUsage || !strings.Contains(errText, "/does/not/exist") {
		t.Errorf("no file: %s, exit %d", errText, code)
	}
	if _, _, code := enqueue(t, "", "bulk", "--redis", url, t.TempDir()); code != exitUsage {
		t.Errorf("a folder: exit %d", code)
	}
	if _, _, code := enqueue(t, "", "bulk", "--redis", url, "--format", "xml", "-"); code != exitUsage {
		t.Errorf("a format: exit %d", code)
	}
}

func TestStatus(t *testing.T) {
	url, client := own(t)
	c := queue.NewClient(client)
	for range 120 {
		if _, err := c.Enqueue(context.Background(), queue.Job{Kind: "call", Tenant: "acme", Payload: struct{}{}}); err != nil {
			t.Fatal(err)
		}
	}
	// A hundred jobs have to wait for their slots, at 10/s. The command takes a part of that.
	const drains = 10 * time.Second
	began := time.Now()
	out, errText, code := enqueue(t, "", "status", "--redis", url)
	in := regexp.MustCompile(`acme .*\(in (\d+s)\)`).FindStringSubmatch(out)
	if code != exitOK || !strings.Contains(out, "queue calls: 120 waiting") || in == nil {
		t.Fatalf("%s %s exit %d", out, errText, code)
	}
	if left, err := time.ParseDuration(in[1]); err != nil || left > drains || left < (drains-time.Since(began)).Round(time.Second) {
		t.Errorf("%s after %v", out, time.Since(began))
	}
	began = time.Now()
	out, _, _ = enqueue(t, "", "tenants", "--queue", "calls", "--redis", url, "--json")
	var all struct {
		Tenants []struct {
			Waiting  int64
			HeldBy   struct{ Limit string } `json:"held_by"`
			DrainsAt time.Time              `json:"drains_at"`
		}
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all.Tenants) != 1 || all.Tenants[0].HeldBy.Limit != "tenant" || all.Tenants[0].Waiting != 120 ||
		all.Tenants[0].DrainsAt.Before(began.Add(drains-time.Second)) || all.Tenants[0].DrainsAt.After(time.Now().Add(drains+time.Second)) {
		t.Errorf("%s, %v", out, err)
	}
	if _, errText, code := enqueue(t, "", "status", "--redis", url, "--queue", "cals"); code != exitUsage || !strings.Contains(errText, `did you mean "calls"?`) {
		t.Errorf("%s exit %d", errText, code)
	}
}

// TestManyTenants: all of them are printed, each once, though they come in pages.
func TestManyTenants(t *testing.T) {
	url, client := own(t)
	var jobs []queue.Job
	for n := range inspect.MaxTenants + 50 {
		jobs = append(jobs, queue.Job{Kind: "call", Tenant: fmt.Sprint(n), Payload: struct{}{}})
	}
	for _, result := range queue.NewClient(client).EnqueueMany(t.Context(), jobs) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	out, errText, code := enqueue(t, "", "tenants", "--queue", "calls", "--redis", url, "--json")
	var all struct{ Tenants []struct{ Tenant string } }
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != exitOK {
		t.Fatalf("%s, exit %d, %v", errText, code, err)
	}
	seen := map[string]bool{}
	for _, one := range all.Tenants {
		seen[one.Tenant] = true
	}
	if len(all.Tenants) != len(jobs) || len(seen) != len(jobs) {
		t.Errorf("%d rows of %d tenants; want %d", len(all.Tenants), len(seen), len(jobs))
	}
}

// TestStatusOfFailedTenants: a tenant of whom only archived jobs are left is shown, after those
// who wait, the largest backlog first.
func TestStatusOfFailedTenants(t *testing.T) {
	url, client := own(t)
	c := queue.NewClient(client)
	for tenant, n := range map[string]int{"few": 1, "many": 3, "gone": 2} {
		for range n {
			if _, err := c.Enqueue(t.Context(), queue.Job{Kind: "call", Tenant: tenant}); err != nil {
				t.Fatal(err)
			}
		}
	}
	by := operate.Operator{Actor: "ann", Reason: "wrong"}
	if _, err := operate.Apply(t.Context(), client, "calls", operate.Cancel, operate.Filter{Tenant: "gone"}, by, nil); err != nil {
		t.Fatal(err)
	}
	// The rows of the table: TENANT WAITING … ARCHIVED DRAINS.
	tenants := func(args ...string) (names, archived []string) {
		t.Helper()
		out, errText, code := enqueue(t, "", append(args, "--redis", url)...)
		_, rows, ok := strings.Cut(out, "DRAINS\n")
		if !ok || code != exitOK {
			t.Fatalf("%v: %q, %q", args, out, errText)
		}
		_, head, _ := strings.Cut(out, "TENANT")
		column := strings.Index("TENANT"+head, "ARCHIVED")
		for row := range strings.Lines(rows) {
			names, archived = append(names, strings.Fields(row)[0]), append(archived, strings.Fields(row[column:])[0])
		}
		return names, archived
	}
	if names, archived := tenants("status"); !slices.Equal(names, []string{"many", "few", "gone"}) || !slices.Equal(archived, []string{"0", "0", "2"}) {
		t.Errorf("%v, %v", names, archived)
	}
	if names, _ := tenants("status", "--top", "2"); !slices.Equal(names, []string{"many", "few"}) {
		t.Errorf("--top 2: %v", names)
	}
	for _, args := range [][]string{{"status", "--top", "-1"}, {"status", "--watch", "--interval", "1ms"}} {
		if _, errText, code := enqueue(t, "", append(args, "--redis", url)...); code != exitUsage || errText == "" {
			t.Errorf("%v: %q, exit %d", args, errText, code)
		}
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- watchStatus(ctx, &options{redisURL: url}, "", 0, 100*time.Millisecond, writer) }()
	lines := bufio.NewScanner(reader)
	for seen := 0; seen < 3 && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "queue calls: 4 waiting") {
			seen++
		}
	}
	stop()
	var rest sync.WaitGroup
	rest.Go(func() { io.Copy(io.Discard, reader) })
	if err := <-ended; err != nil {
		t.Error(err)
	}
	writer.Close()
	rest.Wait()
}

// TestStatusOfLimitsFiles: status names the workers whose limits file is not in effect, and why.
func TestStatusOfLimitsFiles(t *testing.T) {
	url, client := own(t)
	for id, failure := range map[string]string{"a": "", "b": "queue calls: ann published other limits"} {
		text, err := json.Marshal(workers.Info{ID: id, Host: "host-" + id, PID: 7, Details: json.RawMessage(fmt.Sprintf(`{"limits_file":{"path":"limits.yaml","error":%q}}`, failure))})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Set(t.Context(), workers.Key(id), text, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.ZAdd(t.Context(), workers.ListKey, redis.Z{Score: float64(time.Now().UnixMilli()), Member: id}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	out, errText, code := enqueue(t, "", "status", "--redis", url)
	if code != exitOK || strings.Contains(out, "host-a") ||
		!strings.HasSuffix(out, "worker host-b, process 7: its limits file limits.yaml is not in effect: queue calls: ann published other limits\n") {
		t.Errorf("%q, %q, exit %d", out, errText, code)
	}
}

func TestVersion(t *testing.T) {
	if out, errText, code := enqueue(t, "", "--version"); code != exitOK || !strings.HasPrefix(out, "enqueue version ") {
		t.Errorf("%q, %q, exit %d", out, errText, code)
	}
}

// TestPrivateWarning: send says that no worker will call a private address, if that is known.
func TestPrivateWarning(t *testing.T) {
	server := redistest.Start(t)
	url, client := server.URL(), server.Client()
	publishEmpty(t, client, "webhook")
	allow := func(details string) {
		t.Helper()
		text, err := json.Marshal(workers.Info{ID: "w", Queues: []string{"webhook"}, Kinds: []string{"webhook"}, Details: json.RawMessage(details)})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Set(t.Context(), workers.Key("w"), text, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.ZAdd(t.Context(), workers.ListKey, redis.Z{Score: float64(time.Now().UnixMilli()), Member: "w"}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	const warning = "warning: 127.0.0.1:9 is not a public internet address: the job is held until the workers run with HEADGATE_WEBHOOK_ALLOW_PRIVATE=true"
	for details, want := range map[string]string{
		`{"providers":[{"kind":"webhook"}]}`:                              warning,
		`{"providers":[{"kind":"webhook"}],"webhook_allow_private":true}`: "",
		`{"mine":1}`: "",
	} {
		allow(details)
		out, errText, code := enqueue(t, "", "send", "--redis", url, "--kind", "webhook", "--tenant", "a", "--payload", `{"url":"http://127.0.0.1:9/"}`)
		if code != exitOK || !strings.Contains(out, want) || strings.Contains(out, "warning") != (want != "") {
			t.Errorf("%s: %q, %q, exit %d; want %q", details, out, errText, code, want)
		}
		if out, _, _ := enqueue(t, "", "send", "--redis", url, "--kind", "webhook", "--tenant", "a", "--payload", `{"url":"http://8.8.8.8/"}`); strings.Contains(out, "warning") {
			t.Errorf("a public address: %q", out)
		}
	}
}

// TestSendTellsAllMistakes: those of flags, of the payload and of the job at once, without
// a Redis.
func TestSendTellsAllMistakes(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"no tenant": {[]string{"--kind", "webhook", "--payload", `{"ur":"x"}`}, []string{`payload.ur: unknown field`, `did you mean "url"?`, "payload.url: it is empty", "tenant: it is empty"}},
		"no kind":   {[]string{"--payload", `{"ur":"x"}`}, []string{"kind: ", "tenant: it is empty"}},
		"nothing":   {nil, []string{"payload: it is missing", "kind: ", "tenant: it is empty"}},
		"flags": {
			[]string{"--kind", "webhook", "--payload", "{", "--at", "soon", "--attribute", "a", "--header", "b", "--priority", "urgent", "--max-attempts", "-1"},
			[]string{
				`--attribute: "a" is not name=value`, `--header: "b" is not name=value`, `--payload: "{" is not JSON`, `at: "soon" is not a time`,
				"tenant: it is empty", `priority: "urgent" is not a priority`, "max_attempts: -1 must be",
			},
		},
	} {
		_, errText, code := enqueue(t, "", append([]string{"send", "--redis", "redis://127.0.0.1:1"}, test.args...)...)
		if code != exitUsage || strings.Count(errText, "; ") != len(test.want)-1 {
			t.Errorf("%s: exit %d, %s", name, code, errText)
		}
		for _, want := range test.want {
			if !strings.Contains(errText, want) {
				t.Errorf("%s: %s; want %s", name, errText, want)
			}
		}
	}
}

// publishEmpty publishes a queue without limits, which takes all kinds.
func publishEmpty(t *testing.T, client redis.UniversalClient, name string) {
	t.Helper()
	if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{name: {}}}); err != nil {
		t.Fatal(err)
	}
}

// TestOnlyPublishedQueues: jobs go only to queues with limits that are for their kind, however
// many others are named.
func TestOnlyPublishedQueues(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	set := limits.Set{Queues: map[string]limits.Queue{"webhook": {Kinds: []string{"webhook"}}, "email": {Kinds: []string{"email"}}}}
	if err := operate.Publish(t.Context(), client, set); err != nil {
		t.Fatal(err)
	}
	send := []string{"send", "--redis", server.URL(), "--tenant", "a", "--payload", `{"url":"http://8.8.8.8/"}`}
	for want, more := range map[string][]string{
		`queue: no limits were published for "webhok"; did you mean "webhook"?`: {"--kind", "webhook", "--queue", "webhok"},
		`queue: "email" is not for kind "webhook", whose queue is "webhook"`:    {"--kind", "webhook", "--queue", "email"},
		`kind: no queue serves "webhok"; did you mean "webhook"?`:               {"--kind", "webhok"},
		`kind: no queue serves "mine"`:                                          {"--kind", "mine", "--queue", "email"},
		`queue: no limits were published for "emial"; did you mean "email"?`:    {"--kind", "mine", "--queue", "emial"},
	} {
		if out, errText, code := enqueue(t, "", append(send, more...)...); code != exitUsage || !strings.Contains(errText, want) {
			t.Errorf("%v: %q, %q, exit %d; want %q", more, out, errText, code, want)
		}
	}
	var lines strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&lines, `{"kind":"mine%d","queue":"made-up-%d","tenant":"a","payload":1}`+"\n", i, i)
	}
	if out, errText, code := enqueue(t, lines.String(), "bulk", "--redis", server.URL(), "--rejected", filepath.Join(t.TempDir(), "rejected"), "-"); code == exitOK {
		t.Errorf("%q %q", out, errText)
	}
	if names := client.SMembers(t.Context(), "asynq:queues").Val(); len(names) != 2 {
		t.Errorf("queues %q; want the two with limits", names)
	}
}

// TestPayloadKeys: with payload keys, commands encrypt what they enqueue. Mistakes in keys are told
// without the keys.
func TestPayloadKeys(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{"mine": {Kinds: []string{"mine"}}}}); err != nil {
		t.Fatal(err)
	}
	send := []string{"send", "--redis", server.URL(), "--kind", "mine", "--tenant", "a", "--payload", `"CANARY"`}
	t.Setenv("HEADGATE_PAYLOAD_KEYS", "k1:"+strings.Repeat("A", 43)+"=")
	if out, errText, code := enqueue(t, "", send...); code != exitOK {
		t.Fatalf("%q, %q, exit %d", out, errText, code)
	}
	if out, errText, code := enqueue(t, `{"kind":"mine","tenant":"a","payload":"CANARY"}`, "bulk", "--redis", server.URL(), "-"); code != exitOK {
		t.Fatalf("%q, %q, exit %d", out, errText, code)
	}
	keys := client.Keys(t.Context(), "asynq:{mine}:t:*").Val()
	if len(keys) != 2 {
		t.Fatalf("jobs: %q", keys)
	}
	for _, key := range keys {
		if msg := client.HGet(t.Context(), key, "msg").Val(); strings.Contains(msg, "CANARY") || !strings.Contains(msg, "k1") {
			t.Errorf("Redis has %q", msg)
		}
	}
	for value, want := range map[string]string{
		"k1:c2VjcmV0": "HEADGATE_PAYLOAD_KEYS: key 1, k1: the part after ':' is not 32 bytes in base64",
		"c2VjcmV0":    "HEADGATE_PAYLOAD_KEYS: key 1",
		" ":           "HEADGATE_PAYLOAD_KEYS: there is no key in it",
	} {
		t.Setenv("HEADGATE_PAYLOAD_KEYS", value)
		if out, errText, code := enqueue(t, "", send...); code != exitUsage || !strings.Contains(errText, want) || strings.Contains(errText, "c2VjcmV0") {
			t.Errorf("%s: %q, %q, exit %d", value, out, errText, code)
		}
	}
	t.Setenv("HEADGATE_PAYLOAD_KEYS_FILE", filepath.Join(t.TempDir(), "none"))
	if _, errText, code := enqueue(t, "", send...); code != exitUsage || !strings.Contains(errText, "not both") {
		t.Errorf("%q, exit %d", errText, code)
	}
	t.Setenv("HEADGATE_PAYLOAD_KEYS", "")
	if _, errText, code := enqueue(t, "", send...); code != exitUsage || !strings.Contains(errText, "HEADGATE_PAYLOAD_KEYS_FILE: open") {
		t.Errorf("%q, exit %d", errText, code)
	}
}
