package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestConformance: the command says what was kept, what was exceeded and why, as a table, as CSV and as JSON.
func TestConformance(t *testing.T) {
	url, client := own(t)
	show := func(more ...string) (out, errText string, code int) {
		t.Helper()
		return enqueue(t, "", append([]string{"conformance", "--redis", url, "--queue", "calls"}, more...)...)
	}
	if out, errText, code := show(); code != exitOK || !strings.HasPrefix(out, "queue calls does not count its calls: say \"conformance: true\"") || !strings.Contains(out, "no call was counted") {
		t.Errorf("without any: %q %q %d", out, errText, code)
	}
	burst := int64(1)
	if err := operate.SetOverride(t.Context(), client, "calls", "b c", "tenant", operate.Override{Change: limits.Change{Rate: &throttle.Rate{Count: 2, Period: time.Second}, Burst: &burst}, Actor: "ann", Reason: "too fast"}); err != nil {
		t.Fatal(err)
	}
	at := client.Time(t.Context()).Val().Add(time.Millisecond).UTC()
	key := "headgate:{calls}:conformance:" + at.Format(time.DateOnly)
	err := client.HSet(t.Context(), key, "tenant:acme", fmt.Sprintf("%d 20 29", at.Hour()), "tenant:b%20c", fmt.Sprintf("%d 12 29 %d 9 2", at.Hour(), at.UnixMicro()),
		"tenant:zoe", fmt.Sprintf("%d 1 29", at.Hour()), "*", fmt.Sprintf("%d 3 0", at.Hour())).Err()
	if err != nil {
		t.Fatal(err)
	}
	out, errText, code := show("-n", "2")
	lines := strings.Split(out, "\n")
	if code != exitOK || len(lines) != 7 || !strings.HasPrefix(lines[1], "LIMIT ") || !strings.Contains(lines[2], "995ms   9     2 ") || strings.Contains(out, "\x1b") ||
		!strings.Contains(lines[2], "EXCEEDED: ann changed it at ") || !strings.HasSuffix(lines[2], " from 10/s, burst 20 to 2/s, burst 1 (too fast)") ||
		!strings.Contains(lines[3], "acme ") || !strings.HasSuffix(lines[3], "kept") || lines[4] != "and 1 more that kept further below their limits (-n)" || !strings.HasPrefix(lines[5], "some calls were not counted in 1 of these hours") {
		t.Errorf("%s%q %d", out, errText, code)
	}
	out, errText, code = show("--csv")
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if code != exitOK || err != nil || len(rows) != 4 || rows[2][1] != "acme" || rows[2][4] != "20" || rows[1][7] != "9" || !strings.Contains(rows[1][9], "ann changed it") {
		t.Errorf("%q %q %d, %v", rows, errText, code, err)
	}
	if !strings.HasPrefix(errText, "queue calls does not count its calls") || !strings.Contains(errText, "\nsome calls were not counted in 1 of these hours") || strings.Contains(errText, " more that kept") {
		t.Errorf("beside the CSV: %q", errText)
	}
	out, errText, code = show("--csv", "-n", "2")
	if rows, err := csv.NewReader(strings.NewReader(out)).ReadAll(); code != exitOK || err != nil || len(rows) != 3 || !strings.Contains(errText, "\nand 1 more that kept further below their limits (-n)\n") {
		t.Errorf("two of three as CSV: %q %q %d, %v", rows, errText, code, err)
	}
	out, errText, code = show("--json", "--tenant", "zoe", "--limit", "tenant")
	var answer struct {
		Buckets []struct{ Values map[string]string }
		Missed  []time.Time
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != exitOK || len(answer.Buckets) != 1 || answer.Buckets[0].Values["tenant"] != "zoe" || len(answer.Missed) != 1 {
		t.Errorf("%s %q %d, %v", out, errText, code, err)
	}
	for want, args := range map[string][]string{
		"--hours: 0 must be 1 to 720": {"--hours", "0"},
		"n: 0 must be 1 to 1000":      {"-n", "0"},
		"hours":                       {"--json", "--hours", "721"},
		"--queue: say which queue":    {"--queue", ""},
	} {
		if out, errText, code := show(args...); code != exitUsage || !strings.Contains(errText, want) || out != "" {
			t.Errorf("%v: %q %q %d", args, out, errText, code)
		}
	}
}

// TestUnknownCause: a violation that is older than the audit is not said to have no cause.
func TestUnknownCause(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 4, 12, 0, 0, time.Local)
	if got := causes([]inspect.Cause{{What: inspect.CauseUnknown, At: at}}); got != "not known, because the audit has all changes only since 2026-11-28 04:12" {
		t.Errorf("%q", got)
	}
}
