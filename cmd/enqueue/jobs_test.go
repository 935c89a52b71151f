package main

import (
	"encoding/json"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/test/get"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// TestJobsCommands: what failed, what waits, and who is there, from the command line alone.
func TestJobsCommands(t *testing.T) {
	run, client := opsOn(t)
	if out, _, code := run("failures"); code != exitOK || out != "no job has failed for good\n" {
		t.Errorf("%q, exit %d", out, code)
	}
	if out, errText, code := run("cancel", "--queue", "calls", "--id", "acme:1", "--reason", "wrong text"); code != exitOK {
		t.Fatal(out, errText)
	}
	for _, step := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"failures"}, exitOK, []string{"calls  call  cancelled  1     1        ", "cancelled by cli:ann: wrong text  acme:1\n"}},
		{[]string{"failures", "--tenant", "acme"}, exitOK, []string{"acme:1\n"}},
		{[]string{"failures", "--tenant", "globex"}, exitOK, []string{"no job has failed for good\n"}},
		{[]string{"failures", "--json"}, exitUsage, []string{"--queue: "}},
		{[]string{"failures", "--queue", "cals"}, exitUsage, []string{`did you mean "calls"?`}},
		{[]string{"jobs", "list", "--queue", "calls"}, exitOK, []string{"acme:2", "acme:3", `"\u202ebob"`}},
		{[]string{"jobs", "list", "--queue", "calls", "--tenant", "acme", "--kind", "email"}, exitOK, []string{"\nacme:3  email  acme    1        "}},
		{[]string{"jobs", "list", "--queue", "calls", "--state", "archived", "--reason-contains", "wrong"}, exitOK, []string{"acme:1", "cancelled by cli:ann: wrong text"}},
		{[]string{"jobs", "list", "--queue", "calls", "--state", "archived", "--reason-contains", "right"}, exitOK, []string{"no job of queue calls is archived\n"}},
		{[]string{"jobs", "list", "--queue", "calls", "--state", "wating"}, exitUsage, []string{`state: "wating" is not one of waiting, scheduled`}},
		{[]string{"jobs", "list", "--queue", "calls", "--limit", "0"}, exitUsage, []string{"--limit: "}},
		{[]string{"jobs", "list"}, exitUsage, []string{"--queue: "}},
		{[]string{"jobs", "show", "acme:1"}, exitOK, []string{`"id":"acme:1","queue":"calls"`, `"outcome":"cancelled"`}},
		{[]string{"jobs", "show", "nobody"}, exitFailure, []string{`no queue has a job "nobody"`}},
		{[]string{"jobs", "show"}, exitUsage, []string{"takes one job id, got 0"}},
		{[]string{"jobs", "lst"}, exitUsage, []string{`did you mean "list"?`}},
		{[]string{"explain", "acme:1"}, exitOK, []string{"acme's call is archived as cancelled"}},
		{[]string{"explain", "acme:1", "--queue", "cals"}, exitUsage, []string{`did you mean "calls"?`}},
		{[]string{"workers"}, exitOK, []string{"calls", "call,webhook,email", " ago\n"}},
	} {
		out, errText, code := run(step.args...)
		for _, want := range step.want {
			if !strings.Contains(out+errText, want) {
				t.Errorf("%v: %q, %q lacks %q", step.args, out, errText, want)
			}
		}
		if code != step.code || strings.Contains(out+errText, "hush") && step.args[1] != "show" {
			t.Errorf("%v: exit %d, %q; want %d", step.args, code, out+errText, step.code)
		}
	}
	client.HSet(t.Context(), "asynq:{calls}:t:acme:2", "state", "retry")
	client.ZAdd(t.Context(), "asynq:{calls}:retry", redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: "acme:2"})
	const again = "jobs wait for another attempt: enqueue jobs list --queue calls --state retry\n"
	for tenant, want := range map[string]bool{"acme": true, "globex": false} {
		if out, errText, code := run("failures", "--tenant", tenant); code != exitOK || strings.HasSuffix(out, again) != want {
			t.Errorf("failures of %s: %q, %q, exit %d", tenant, out, errText, code)
		}
	}
	if out, _, _ := run("jobs", "list", "--queue", "calls", "--limit", "2"); strings.Count(out, "\n") != 3 {
		t.Errorf("two jobs and a head: %q", out)
	}

	// The same id in two queues.
	other := limits.Set{Queues: map[string]limits.Queue{"others": {Kinds: []string{"other"}}}}
	if err := operate.Publish(t.Context(), client, other); err != nil {
		t.Fatal(err)
	}
	if _, err := queue.NewClient(client).Enqueue(t.Context(), queue.Job{Kind: "other", Tenant: "acme", Key: "1"}); err != nil {
		t.Fatal(err)
	}
	if out, errText, code := run("explain", "acme:1"); code != exitUsage || !strings.Contains(errText, `the queues calls, others have a job "acme:1" each`) {
		t.Errorf("%q, %q, exit %d", out, errText, code)
	}
	if out, errText, code := run("explain", "acme:1", "--queue", "others"); code != exitOK || !strings.Contains(out, "acme's other") {
		t.Errorf("%q, %q, exit %d", out, errText, code)
	}
}

// TestJSONIsTheAPIs: --json prints what the HTTP API answers.
func TestJSONIsTheAPIs(t *testing.T) {
	run, client := opsOn(t)
	if _, errText, code := run("cancel", "--queue", "calls", "--id", "acme:1", "--reason", "wrong text"); code != exitOK {
		t.Fatal(errText)
	}
	a, err := api.New(api.Config{Redis: client})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(a)
	defer server.Close()
	began := time.Now()
	for path, args := range map[string][]string{
		"/queues/calls/jobs/acme:1":                            {"jobs", "show", "acme:1"},
		"/queues/calls/jobs?state=archived&limit=50":           {"jobs", "list", "--queue", "calls", "--state", "archived", "--json"},
		"/queues/calls/jobs?state=waiting&tenant=acme&limit=7": {"jobs", "list", "--queue", "calls", "--tenant", "acme", "--limit", "7", "--json"},
		"/queues/calls/failures":                               {"failures", "--queue", "calls", "--json"},
		"/queues/calls/failures?tenant=globex":                 {"failures", "--queue", "calls", "--tenant", "globex", "--json"},
		"/workers":                                             {"workers", "--json"},
		"/queues/calls/jobs/acme:2":                            {"explain", "acme:2", "--json"},
		"/queues":                                              {"status", "--json"},
		"/queues/calls":                                        {"status", "--queue", "calls", "--json"},
		"/queues/calls/tenants?sort=tenant":                    {"tenants", "--queue", "calls", "--json"},
		"/queues/calls/tenants?only=waiting&sort=tenant":       {"tenants", "--queue", "calls", "--only", "waiting", "--json"},
		"/queues/calls/limits":                                 {"limits", "show", "--queue", "calls", "--json"},
		"/queues/calls/tenants/acme":                           {"limits", "show", "--queue", "calls", "--tenant", "acme", "--json"},
		"/audit?limit=7":                                       {"audit", "-n", "7", "--json"},
		"/audit?limit=20&queue=calls":                          {"audit", "--queue", "calls", "--json"},
	} {
		var want, got map[string]any
		if err := json.Unmarshal([]byte(get.Text(t, server.URL+api.Base+path)), &want); err != nil {
			t.Fatal(path, err)
		}
		out, errText, code := run(args...)
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
			t.Fatalf("%v: %q, %q, %v", args, out, errText, err)
		}
		if a, b := withoutNow(text(t, got), began), withoutNow(text(t, want), began); a != b {
			t.Errorf("%v:\n%s\nwant, as the API:\n%s", args, a, b)
		}
	}
}

func text(t *testing.T, value any) string {
	t.Helper()
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// withoutNow replaces the times from began on: those of the answer itself.
func withoutNow(answer string, began time.Time) string {
	return regexp.MustCompile(`"20[0-9-]+T[0-9:.]+Z"`).ReplaceAllStringFunc(answer, func(text string) string {
		if at, err := time.Parse(time.RFC3339, strings.Trim(text, `"`)); err == nil && !at.Before(began.Truncate(time.Millisecond)) {
			return "now"
		}
		return text
	})
}

// TestKnownButArchived: who enqueues jobs again that have failed is told so, and how they are sent
// again.
func TestKnownButArchived(t *testing.T) {
	run, _ := opsOn(t)
	job := []string{"send", "--queue", "calls", "--kind", "call", "--tenant", "acme", "--key", "1", "--payload", `"hush"`}
	if out, errText, code := run(job...); code != exitOK || !strings.Contains(out, ", known already)") || strings.Contains(out, "warning") {
		t.Errorf("%q, %q, exit %d", out, errText, code)
	}
	file := filepath.Join(t.TempDir(), "jobs.ndjson")
	put(t, file, `{"kind":"call","tenant":"acme","key":"1","payload":"hush"}
{"kind":"call","tenant":"acme","key":"2","payload":"hush"}
`)
	bulk := func(want string) {
		t.Helper()
		if out, errText, code := run("bulk", file); code != exitOK || !strings.Contains(out, "0 accepted, 2 known already") || !strings.Contains(out, want) || strings.Contains(out, "archived") != (want != "") {
			t.Errorf("%q, %q, exit %d; want %q", out, errText, code, want)
		}
	}
	bulk("")
	const again = `"enqueue failures --queue calls" says why, and "enqueue retry --queue calls" sends it again`
	for _, step := range [][2]string{{"acme:1", "1 of the known jobs are archived; "}, {"acme:2", "all known jobs are archived; "}} {
		if out, errText, code := run("cancel", "--queue", "calls", "--id", step[0], "--reason", "wrong"); code != exitOK {
			t.Fatal(out, errText)
		}
		bulk(step[1] + "for example, " + again)
	}
	if out, _, code := run(job...); code != exitOK || !strings.Contains(out, "\nwarning: the job has ended without success; "+again) {
		t.Errorf("%q, exit %d", out, code)
	}
}

// TestSendWholeJob: --job takes a job as it stands in a line of bulk, and flags replace its fields.
func TestSendWholeJob(t *testing.T) {
	run, _ := opsOn(t)
	file := filepath.Join(t.TempDir(), "job.json")
	put(t, file, `{"kind":"call","tenant":"acme","key":"9","payload":{"n":1},"attributes":{"region":"eu"},"costs":{"tokens":3},"max_attempts":4}`)
	if out, errText, code := run("send", "--job", "@"+file); code != exitOK || !strings.HasPrefix(out, "acme:9 in queue calls") {
		t.Fatalf("%q, %q, exit %d", out, errText, code)
	}
	if out, errText, code := run("send", "--job", "@"+file, "--key", "10", "--attribute", "region=us", "--max-attempts", "2", "--payload", "7"); code != exitOK || !strings.HasPrefix(out, "acme:10 ") {
		t.Fatalf("%q, %q, exit %d", out, errText, code)
	}
	for id, want := range map[string][]string{
		"acme:9":  {`"attributes":{"region":"eu"}`, `"costs":{"tokens":3}`, `"max_attempts":4`, `"payload":{"n":1}`},
		"acme:10": {`"attributes":{"region":"us"}`, `"costs":{"tokens":3}`, `"max_attempts":2`, `"payload":7`},
	} {
		out, _, _ := run("jobs", "show", id)
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("%s lacks %s: %s", id, text, out)
			}
		}
	}
	for text, want := range map[string]string{
		`{"kind":"call","tennant":"acme"}`: `tennant: unknown field; did you mean "tenant"?; payload: it is missing`,
		`[]`:                               "--job: must be one object",
		``:                                 "--job: ",
		`{"kind":"call"}`:                  "tenant: ",
	} {
		put(t, file, text)
		if out, errText, code := run("send", "--job", "@"+file); code != exitUsage || !strings.Contains(errText, want) {
			t.Errorf("%s: %q, %q, exit %d; want %q", text, out, errText, code, want)
		}
	}
}
