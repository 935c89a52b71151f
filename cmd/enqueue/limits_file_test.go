package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/queue/operate"
)

// TestLimitsCheck: each broken file says at its end what is wrong with it, and check says just
// that, without a Redis.
func TestLimitsCheck(t *testing.T) {
	t.Setenv("HEADGATE_REDIS_URL", "redis://127.0.0.1:1")
	t.Chdir("testdata/broken")
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for line := range strings.Lines(string(text)) {
			if mistake, ok := strings.CutPrefix(line, "# "+file); ok {
				want = append(want, file+mistake)
			}
		}
		out, errText, code := enqueue(t, "", "limits", "check", file)
		first, rest, _ := strings.Cut(errText, file+":")
		got := file + ":" + rest
		if code != exitUsage || out != "" || len(want) == 0 || got != strings.Join(want, "") || first != file+" has "+counted(len(want), "mistake") {
			t.Errorf("exit %d:\n%s\nwant:\n%s", code, errText, strings.Join(want, ""))
		}
	}
	if out, errText, code := enqueue(t, "", "limits", "check", "../../../../limits.yaml"); code != exitOK || !strings.HasPrefix(out, "../../../../limits.yaml: ok: 2 queues, 8 limits, ") {
		t.Errorf("the sample: %q, %q, exit %d", out, errText, code)
	}
	doubtful := put(t, filepath.Join(t.TempDir(), "limits.yaml"),
		"queues: {email: {limits: [{name: a, algorithm: leaky_bucket, rate: 1/s, per: [tenannt, region, host]}]}}")
	const warning = `queues.email.limits[0].per: jobs have "tenannt" only if they bring it; did you mean "tenant"?`
	if out, errText, code := enqueue(t, "", "limits", "check", doubtful); code != exitOK || errText != doubtful+": warning: "+warning+"\n" || !strings.Contains(out, ": ok: 1 queue, 1 limit, ") {
		t.Errorf("a doubtful attribute: %q, %q, exit %d", out, errText, code)
	}
	for _, args := range [][]string{{"limits", "check"}, {"limits", "check", "a", "b"}, {"limits", "check", "none.yaml"}} {
		if out, errText, code := enqueue(t, "", args...); code != exitUsage || errText == "" {
			t.Errorf("%v: %q, %q, exit %d", args, out, errText, code)
		}
	}
}

// TestLimitsGoRound: a file that is applied differs in nothing from what is in effect, nor does
// what is exported.
func TestLimitsGoRound(t *testing.T) {
	t.Setenv("USER", "ann")
	url, client := own(t)
	file := filepath.Join(t.TempDir(), "limits.yaml")
	write := func(text string) { put(t, file, text) }
	step := func(code int, want []string, args ...string) string {
		t.Helper()
		out, errText, got := enqueue(t, "", append(args, "--redis", url)...)
		for _, text := range want {
			if !strings.Contains(out+errText, text) {
				t.Errorf("%v: %q, %q lacks %q", args, out, errText, text)
			}
		}
		if got != code {
			t.Errorf("%v: exit %d, %q; want %d", args, got, errText, code)
		}
		return out
	}
	write(`queues:
  calls:
    kinds: [call, webhook, email]
    max_backlog: 500
    limits:
      - {name: tenant, algorithm: token_bucket, rate: 20/s, burst: 20, per: [tenant, region]}
      - {name: daily, algorithm: fixed_window, rate: 1000/day, timezone: Europe/Berlin}
  sms:
    kinds: [sms]
    limits: [{name: account, algorithm: leaky_bucket, rate: 5/s, reserve: {direct: 20%}}]
tenants:
  "a: b": {weight: 3, limits: {calls: {tenant: {rate: 50/s}}}}
`)
	diff := step(exitOK, []string{
		"queue calls, own values of 1 tenant:\n", "  + daily: fixed_window 1000/day, Europe/Berlin\n", "  + max_backlog: 500\n",
		"  ~ tenant: token_bucket 10/s, burst 20, per tenant → token_bucket 20/s, burst 20, per tenant and region\n",
		"  + a: b: tenant: 50/s, burst 20\n", "  + a: b: weight: 3\n", "queue sms (new), own values of 1 tenant:\n", "  + account: leaky_bucket 5/s\n",
	}, "limits", "diff", file)
	if step(exitOK, nil, "limits", "apply", file, "--dry-run") != diff {
		t.Error("a dry run of apply shows something else than diff")
	}
	var list []comparisonJSON
	if err := json.Unmarshal([]byte(step(exitOK, nil, "limits", "diff", file, "--json")), &list); err != nil || len(list) != 2 || list[0].Queue != "calls" ||
		list[0].After["max_backlog"] != "500" || list[0].Tenants != 1 || !list[1].New || list[0].New {
		t.Errorf("%+v, %v", list, err)
	}
	step(exitUsage, []string{"--reason: "}, "limits", "apply", file)
	step(exitUsage, []string{"say --yes"}, "limits", "apply", file, "--reason", "more")
	step(exitOK, []string{"queue calls", "is in effect"}, "limits", "apply", file, "--reason", "more", "--yes")
	entries, err := operate.Audit(t.Context(), client, "calls", 1)
	if err != nil || len(entries) != 1 || entries[0].Actor != "cli:ann" || entries[0].Reason != file+": more" || entries[0].Action != "publish" {
		t.Errorf("audit: %+v, %v", entries, err)
	}
	if out := step(exitOK, nil, "limits", "diff", file); out != "" {
		t.Errorf("after apply: %q", out)
	}
	step(exitOK, []string{"the limits in effect are those of"}, "limits", "apply", file, "--reason", "again")

	step(exitOK, []string{"sms    account-jobs  -               token_bucket  4/s, burst 2 for jobs"}, "limits", "show")
	exported := step(exitOK, nil, "limits", "export")
	write(exported)
	step(exitOK, []string{"ok: 2 queues, 4 limits, 1 tenant"}, "limits", "check", file)
	if out := step(exitOK, nil, "limits", "diff", file); out != "" {
		t.Errorf("of what was exported: %q", out)
	}
	if again := step(exitOK, nil, "limits", "export"); again != exported {
		t.Errorf("export: %q and then %q", exported, again)
	}
	write(step(exitOK, nil, "limits", "export", "--queue", "sms"))
	step(exitOK, []string{"not in the file, and left as they are: calls"}, "limits", "diff", file)
	step(exitUsage, []string{"export prints YAML"}, "limits", "export", "--json")
	write("queues: {sms: {}}\n")
	step(exitOK, []string{"  - account: leaky_bucket 5/s\n", "  - kinds: sms\n"}, "limits", "diff", file)
	if !slices.Contains(client.SMembers(t.Context(), "asynq:queues").Val(), "sms") {
		t.Error("the queue is not registered")
	}
	write("queues: {calls: {}, sms: {}}\nbudgets: [{name: spend, rate: 5/day, queues: [calls, sms]}]\n")
	step(exitOK, []string{"  + spend: fixed_window 5/day, one budget of calls, sms\n"}, "limits", "apply", file, "--reason", "a budget", "--yes")
	write(step(exitOK, nil, "limits", "export", "--queue", "sms"))
	step(exitOK, []string{"ok: 2 queues"}, "limits", "check", file)
}
