package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/arrivals"
)

// TestLimitsTry: the command says how jobs would have waited, as tables and as JSON, and what it cannot try.
func TestLimitsTry(t *testing.T) {
	url, client := own(t)
	file := func(text string) string { return put(t, filepath.Join(t.TempDir(), "limits.yaml"), text) }
	const queue = `  %s:
    kinds: [%s]
    limits:
      - {name: tenant, algorithm: token_bucket, rate: 2/s, per: [tenant]}
      - {name: account, algorithm: leaky_bucket, ramp: {from: 1/s, to: 4/s, over: 30d}}
      - {name: flight, algorithm: concurrency, concurrency: 5}
`
	slower := file("queues:\n" + fmt.Sprintf(queue, "calls", "call"))
	try := func(path string, more ...string) (out, errText string, code int) {
		t.Helper()
		return enqueue(t, "", append([]string{"limits", "try", path, "--redis", url}, more...)...)
	}
	if out, errText, code := try(slower); code != exitOK || !strings.HasPrefix(out, "queue calls: no call of the last day is known; calls are kept while") {
		t.Errorf("without calls: %q %q %d", out, errText, code)
	}
	var calls []arrivals.Call
	came := time.Now().Add(-time.Minute).Truncate(time.Second)
	for i := range 41 { // 20 go at once, and then 10 each second
		calls = append(calls, arrivals.Call{Tenant: "a\x1b", Came: came, Waited: max(0, time.Duration(i-19)*100*time.Millisecond)})
	}
	calls = append(calls, arrivals.Call{Tenant: "b", Came: came, Waited: 5 * time.Millisecond}, arrivals.Call{Tenant: "c", Came: came, Waited: 5 * time.Millisecond})
	if err := arrivals.Put(t.Context(), client, "calls", calls...); err != nil {
		t.Fatal(err)
	}
	out, errText, code := try(slower, "-n", "2")
	for _, want := range []string{
		"queue calls: 43 calls from ", "of which 43 are the first of a job",
		"JOBS WAITED   MEASURED  NOW   THEN", "half of them  5ms       0s    9.75s", "the longest   2.1s      2.1s  20s",
		"tenant   per tenant  2.1s       1 tenant   per tenant  20s        1 tenant", "account  -           -          -          71 %        1s         2 tenants", "flight   -           -          -          -           -          -",
		"TENANT   JOBS  95 % MEASURED  NOW   HELD BY  THEN   HELD BY", "\"a\\x1b\"  41    1.9s           1.9s  tenant   19s    tenant", "c        1     5ms            0s    -        500ms  account", "and 1 tenant for whom less changes (-n)",
		"the model leaves out flight: ", "tried at the full rate: account; ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if code != exitOK || errText != "" || strings.Contains(out, "\x1b") {
		t.Errorf("%q %d", errText, code)
	}
	out, errText, code = try(slower, "--json", "--tenant", "b")
	var answer struct {
		Calls    int
		Proposed struct {
			P95    float64 `json:"p95_seconds"`
			Limits []struct{ Name string }
		}
		Tenants []struct{ Tenant string }
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != exitOK || answer.Calls != 43 || answer.Proposed.P95 < 15 ||
		len(answer.Proposed.Limits) != 3 || len(answer.Tenants) != 1 || answer.Tenants[0].Tenant != "b" {
		t.Errorf("%s %q %d, %v", out, errText, code, err)
	}
	both := file("queues:\n" + fmt.Sprintf(queue, "calls", "call") + fmt.Sprintf(queue, "email", "email"))
	for want, args := range map[string][]string{
		"--queue: name one of the queues in " + both + ": calls, email": {both},
		"has no queue \"call\"; did you mean \"calls\"?":                {both, "--queue", "call"},
		"n: 0 must be 1 to 1000":                                        {slower, "-n", "0"},
		"n: 1001 must be 1 to 1000":                                     {slower, "-n", "1001", "--json"},
		"limits try takes the path of one limits file, got 2 arguments": {slower, "other"},
		`--queue: there is no queue "email"`:                            {both, "--queue", "email"},
	} {
		if out, errText, code := try(args[0], args[1:]...); code != exitUsage || !strings.Contains(errText, want) {
			t.Errorf("%q: %q %q %d", want, out, errText, code)
		}
	}
}

// TestPercent: only nothing is 0 %, and only all of it is 100 %.
func TestPercent(t *testing.T) {
	for part, want := range map[float64]string{0: "0 %", 0.0001: "< 1 %", 0.01: "1 %", 0.4137: "41 %", 0.99: "99 %", 0.998: "> 99 %", 1: "100 %", 1.2: "120 %"} {
		if got := percent(part); got != want {
			t.Errorf("%g is %q; want %q", part, got, want)
		}
	}
}
