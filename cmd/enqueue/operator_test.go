package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// ops runs a command as ann would, on a queue with three jobs of acme and one of
// a tenant whose name does something to a terminal.
func ops(t *testing.T) (run func(args ...string) (out, errText string, code int)) {
	run, _ = opsOn(t)
	return run
}

func opsOn(t *testing.T) (run func(args ...string) (out, errText string, code int), client *redis.Client) {
	t.Helper()
	t.Setenv("USER", "ann")
	url, client := own(t)
	enqueuer := queue.NewClient(client)
	for _, job := range []queue.Job{
		{Kind: "call", Tenant: "acme", Key: "1"}, {Kind: "call", Tenant: "acme", Key: "2"}, {Kind: "email", Tenant: "acme", Key: "3"},
		{Kind: "call", Tenant: "\u202ebob", Key: "4"},
	} {
		job.Payload = "hush"
		if _, err := enqueuer.Enqueue(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	return func(args ...string) (out, errText string, code int) {
		t.Helper()
		return enqueue(t, "", append(args, "--redis", url)...)
	}, client
}

func TestVerbCommands(t *testing.T) {
	run := ops(t)
	steps := []struct {
		args []string
		code int
		want string // of both outputs
	}{
		{[]string{"cancel", "--queue", "calls", "--tenant", "acme", "--dry-run"}, exitOK, "would cancel 3 jobs (3 waiting)"},
		{[]string{"cancel", "--queue", "calls", "--tenant", "acme", "--reason", "x"}, exitUsage, "say --yes"},
		{[]string{"cancel", "--queue", "calls", "--tenant", "acme", "--kind", "call", "--reason", "wrong text", "--yes"}, exitOK, "cancelled 2 jobs (2 waiting)"},
		{[]string{"cancel", "--queue", "calls", "--id", "acme:3", "--reason", "one"}, exitOK, "cancelled 1 job (1 waiting)"},
		{[]string{"cancel", "--queue", "calls", "--id", "acme:3", "--reason", "one"}, exitUsage, "is archived: cancel is for jobs that are"},
		{[]string{"cancel", "--queue", "calls", "--id", "nobody", "--reason", "one"}, exitUsage, "there is no job"},
		{[]string{"cancel", "--queue", "calls", "--tenant", "acme", "--reason", "x", "--yes"}, exitOK, "cancelled 0 jobs"},
		{[]string{"retry", "--queue", "calls", "--kind", "email", "--reason", "after all", "--yes"}, exitOK, "put back 1 job (1 archived)"},
		{[]string{"run", "--queue", "calls", "--id", "acme:3", "--reason", "now"}, exitUsage, "beyond every limit of queue calls: say --yes"},
		{[]string{"run", "--queue", "calls", "--id", "acme:3", "--reason", "now", "--yes"}, exitOK, "handed to the workers 1 job (1 waiting)"},
		{[]string{"delete", "--queue", "calls", "--id", "acme:1", "--reason", "erase"}, exitUsage, "say --yes"},
		{[]string{"delete", "--queue", "calls", "--reason", "erase", "--yes"}, exitOK, "deleted 2 jobs (2 archived)"},
		{[]string{"cancel", "--queue", "cals", "--reason", "x", "--yes"}, exitUsage, `did you mean "calls"?`},
		{[]string{"cancel", "--reason", "x", "--yes"}, exitUsage, "--queue: "},
		{[]string{"cancel", "--queue", "calls", "--yes"}, exitUsage, "--reason: "},
		{[]string{"cancel", "--queue", "calls", "--reason", "x", "--actor", "a\nb", "--yes"}, exitUsage, "actor: "},
		{[]string{"cancel", "--queue", "calls", "--reason", "a\nb", "--yes"}, exitUsage, "reason: "},
		{[]string{"cancel", "--queue", "calls", "--kind", "*", "--reason", "x", "--yes"}, exitUsage, "kind: "},
		{[]string{"cancel", "calls"}, exitUsage, "takes no arguments"},
	}
	for _, step := range steps {
		out, errText, code := run(step.args...)
		if code != step.code || !strings.Contains(out+errText, step.want) || strings.Contains(out+errText, "hush") {
			t.Errorf("%v: %q, %q, exit %d; want %d and %q", step.args, out, errText, code, step.code, step.want)
		}
	}
	out, _, code := run("cancel", "--queue", "calls", "--dry-run", "--json")
	var tally tallyJSON
	if err := json.Unmarshal([]byte(out), &tally); err != nil || code != exitOK || !tally.DryRun || tally.Jobs != 2 || tally.ByState[lifecycle.StatePending] != 1 {
		t.Errorf("--json: %q, %v", out, err)
	}
	out, _, code = run("audit", "--json")
	var audit struct{ Entries []operate.AuditEntry }
	if err := json.Unmarshal([]byte(out), &audit); err != nil || code != exitOK || len(audit.Entries) != 6 {
		t.Fatalf("audit: %q, %v", out, err)
	}
	for i, action := range []string{"delete", "run", "retry", "cancel", "cancel", "publish"} {
		if e := audit.Entries[i]; e.Action != action || (action != "publish" && e.Actor != "cli:ann") {
			t.Errorf("entry %d: %+v", i, e)
		}
	}
	if out, _, _ := run("audit", "-n", "3"); strings.Count(out, "\n") != 4 || !strings.Contains(out, "after all") || strings.Contains(out, "hush") {
		t.Errorf("audit: %q", out)
	}
	if _, errText, code := run("audit", "-n", "-1"); code != exitUsage || strings.Count(errText, "must be") != 1 {
		t.Errorf("audit of 0: %q %d", errText, code)
	}
}

func TestPauseCommands(t *testing.T) {
	run := ops(t)
	steps := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"pause", "--queue", "calls", "--tenant", "acme", "--dry-run"}, exitOK, "tenant acme in queue calls: would hold 3 jobs"},
		{[]string{"pause", "--queue", "calls", "--tenant", "acme", "--reason", "x"}, exitUsage, "say --yes"},
		{[]string{"pause", "--queue", "calls", "--tenant", "acme", "--for", "2h", "--reason", "bounces", "--yes"}, exitOK, "is paused by cli:ann until "},
		{[]string{"pause", "--queue", "calls", "--tenant", "acem", "--for", "1m", "--reason", "bounces", "--yes"}, exitOK, "warning: queue calls has seen no job of tenant acem"},
		{[]string{"resume", "--queue", "calls", "--tenant", "acem", "--reason", "no such tenant", "--yes"}, exitOK, "is resumed"},
		{[]string{"pause", "--queue", "calls", "--reason", "all of it", "--yes"}, exitOK, "queue calls is paused by cli:ann until somebody resumes: all of it; it holds 4 jobs"},
		{[]string{"pause", "--queue", "calls", "--kind", "call", "--tenant", "acme", "--reason", "x", "--yes"}, exitUsage, "--kind: "},
		{[]string{"pause", "--queue", "calls", "--for", "-1s", "--reason", "x", "--yes"}, exitUsage, "--for: "},
		{[]string{"pause", "--queue", "calls", "--for", "2", "--reason", "x", "--yes"}, exitUsage, "for"},
		{[]string{"tenants"}, exitOK, "with its queue paused by cli:ann until somebody resumes: all of it; paused by cli:ann until "},
		{[]string{"tenants"}, exitOK, `"\u202ebob"`},
		{[]string{"resume", "--queue", "calls", "--reason", "done"}, exitUsage, "say --yes"},
		{[]string{"resume", "--queue", "calls", "--reason", "done", "--yes"}, exitOK, "queue calls is resumed"},
		{[]string{"resume", "--queue", "calls", "--reason", "done"}, exitOK, "queue calls was not paused"},
		{[]string{"resume", "--queue", "calls", "--tenant", "acme", "--reason", "done", "--yes"}, exitOK, "is resumed"},
		{[]string{"resume", "--queue", "cals", "--reason", "done", "--yes"}, exitUsage, "did you mean"},
	}
	for _, step := range steps {
		if out, errText, code := run(step.args...); code != step.code || !strings.Contains(out+errText, step.want) {
			t.Errorf("%v: %q, %q, exit %d; want %d and %q", step.args, out, errText, code, step.code, step.want)
		}
	}
	out, _, _ := run("tenants", "--queue", "calls", "--json")
	var list struct {
		Total   int
		Tenants []struct {
			Tenant  string
			Waiting int64
			Weight  float64
			Pauses  []any
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || list.Total != 2 || len(list.Tenants) != 2 || list.Tenants[0].Tenant != "acme" || list.Tenants[0].Waiting != 3 || list.Tenants[0].Weight != 1 || list.Tenants[0].Pauses == nil {
		t.Errorf("tenants --json: %q, %v", out, err)
	}
}

func TestLimitsCommands(t *testing.T) {
	run := ops(t)
	set := []string{"limits", "set", "--queue", "calls", "--tenant", "acme", "--limit", "tenant", "--reason", "launch"}
	steps := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"limits", "show"}, exitOK, "token_bucket  10/s, burst 20  queue"},
		{append(set, "--rate", "50/s", "--for", "2h"), exitUsage, "say --yes"},
		{append(set, "--rate", "1/s", "--burst", "1", "--dry-run"), exitOK, "now:   acme is held by no limit"},
		{append(set[:8:8], "--rate", "1/s", "--burst", "1", "--dry-run"), exitOK, "after: acme is held by limit \"tenant\" (1/s), next slot now"},
		{[]string{"limits", "show", "--tenant", "acme"}, exitOK, "10/s, burst 20  queue"},
		{append(set, "--rate", "50/s", "--for", "2h", "--yes"), exitOK, "limit tenant of tenant acme in queue calls is now 50/s, burst 20, until"},
		{[]string{"limits", "show", "--tenant", "acme"}, exitOK, "50/s, burst 20  override"},
		{[]string{"limits", "show", "--tenant", "acme"}, exitOK, "ann: launch"},
		{[]string{"limits", "show", "--tenant", "other"}, exitOK, "10/s, burst 20  queue"},
		{[]string{"tenants"}, exitOK, "tenant 50/s, burst 20"},
		{set, exitUsage, "nothing changes"},
		{append(set, "--rate", "fast"), exitUsage, "rate"},
		{append(set, "--burst", "-1"), exitUsage, "burst"},
		{append(set, "--concurrency", "3"), exitUsage, "concurrency: this limit has a rate"},
		{append(set, "--rate", "5/s", "--limit", "tenat"), exitUsage, `did you mean "tenant"?`},
		{append(set, "--rate", "5/s", "--tenant", ""), exitUsage, "--tenant: "},
		{append(set, "--rate", "5/s", "--for", "0s"), exitUsage, "--for: "},
		{[]string{"limits", "clear", "--queue", "calls", "--tenant", "acme", "--limit", "tenant", "--reason", "over"}, exitOK, "is again 10/s, burst 20"},
		{[]string{"limits", "clear", "--queue", "calls", "--tenant", "acme", "--limit", "tenant", "--reason", "over"}, exitOK, "was not changed: it is 10/s"},
		{[]string{"limits", "sett"}, exitUsage, `did you mean "set"?`},
		{[]string{"audit"}, exitOK, "tenant: 50/s, burst 20 → 10/s, burst 20"},
	}
	for _, step := range steps {
		if out, errText, code := run(step.args...); code != step.code || !strings.Contains(out+errText, step.want) {
			t.Errorf("%v: %q, %q, exit %d; want %d and %q", step.args, out, errText, code, step.code, step.want)
		}
	}
	out, _, _ := run(append(set, "--burst", "7", "--yes", "--json")...)
	if !strings.Contains(out, `"applied":true`) {
		t.Errorf("set --json: %q", out)
	}
	if out, errText, code := run("limits", "show", "--queue", "calls", "--tenant", "acme"); code != exitOK || !strings.Contains(out, "burst 7") || !strings.Contains(out, "cli:ann") {
		t.Errorf("after set --json: %q, %q", out, errText)
	}
	if out, errText, code := run("limits", "clear", "--queue", "calls", "--tenant", "acme", "--limit", "tenant", "--reason", "over", "--json"); code != exitOK || out != `{"cleared":true}`+"\n" {
		t.Errorf("clear --json: %q, %q, exit %d", out, errText, code)
	}
	if out, errText, code := run("limits", "set", "--queue", "calls", "--tenant", "acme", "--limit", "none", "--rate", "1/s", "--reason", "x", "--yes", "--json"); code != exitUsage || out != "" {
		t.Errorf("set --json of no limit: %q, %q, exit %d", out, errText, code)
	}
}

// An override that does not fit what was published since is shown with the reason,
// and can be cleared.
func TestLimitsCommandsOfOverridesNotInForce(t *testing.T) {
	run, client := opsOn(t)
	set := []string{"limits", "set", "--queue", "calls", "--tenant", "acme", "--limit", "tenant", "--rate", "50/s", "--reason", "launch", "--yes"}
	show := []string{"limits", "show", "--queue", "calls", "--tenant", "acme"}
	clear := []string{"limits", "clear", "--queue", "calls", "--tenant", "acme", "--limit", "tenant", "--reason", "over"}
	check := func(want string, args ...string) {
		t.Helper()
		if out, errText, code := run(args...); code != exitOK || !strings.Contains(out, want) {
			t.Errorf("%v: %q, %q, exit %d; want %q", args, out, errText, code, want)
		}
	}
	publish := func(set ...limits.Limit) {
		t.Helper()
		if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{"calls": {Limits: set}}}); err != nil {
			t.Fatal(err)
		}
	}
	check("is now 50/s", set...)
	publish(limits.Limit{Per: []string{"tenant"}, Name: "tenant", Algorithm: throttle.Concurrency, Concurrency: 3})
	check("override (rate 50/s, by cli:ann) is not in force: rate: a concurrency has none", show...)
	publish()
	check("override (rate 50/s, by cli:ann) is not in force: the queue no longer has this limit", show...)
	check("queue calls has no limit tenant any more: the override of tenant acme is cleared", clear...)
}
