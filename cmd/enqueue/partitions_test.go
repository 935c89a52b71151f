package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestPartitionsAreOneQueue: every command prints of a queue in four partitions what it prints of an undivided
// one, and exits alike.
func TestPartitionsAreOneQueue(t *testing.T) {
	t.Setenv("USER", "ann")
	one, four := printed(t, 1), printed(t, 4)
	for _, does := range []string{"24 accepted", "cancelled 3 jobs", "put back", "handed to the workers 3", "deleted 3", "is paused by", "is resumed", "50/h", "nightly", "has jobs", "is removed"} {
		if !strings.Contains(strings.Join(one, "\n"), does) {
			t.Errorf("nothing says %q", does)
		}
	}
	for i := range one {
		if one[i] != four[i] {
			t.Errorf("one partition: %s\nfour: %s", one[i], four[i])
		}
		if strings.Contains(four[i], "calls@") {
			t.Errorf("it names a partition: %s", four[i])
		}
	}
}

// passing is what differs between two runs: times, and what depends on them, such as which of the tenants
// with as many jobs is the last.
var passing = regexp.MustCompile(`\(in [^)]*\)|\d{4}-\d\d-\d\d[T ][\d:.]+(Z|[+-]\d\d:\d\d)?|\b\d\d:\d\d(:\d\d)?\b|\(?in [\d.]+ ?(ms|s|min|h|days)\)?|"(drains_at|now|at|allowed_per_second|rate|since|next|last)":[^,}]*|\b\d+(\.\d+)? (ms|s|min|h)\b|\b\w+ ago\b|\(\d+/s\)|"top":{.*?"text":"[^"]*"},`)

// spread is what a queue says of its partitions where its limits are shown.
var spread = regexp.MustCompile(`(?m)^ *(\+ )?partitions: \d+\n|partitions: none → \d+; |"partitions":"\d+",`)

// printed returns what commands print of a queue of n partitions.
func printed(t *testing.T, n int) (all []string) {
	server := redistest.Start(t)
	redistest.Serve(server.Client(), "calls", "call", "other")
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name, text string) { put(t, filepath.Join(dir, name), text) }
	const file = `queues:
  calls:
    kinds: [call, other]
    partitions: %d
    limits: [{name: tenant, per: [tenant], algorithm: token_bucket, rate: 10/h, burst: 20}]
`
	write("limits.yaml", fmt.Sprintf(file, n))
	write("other.yaml", strings.Replace(fmt.Sprintf(file, n), "10/h", "20/h", 1)+"tenants: {t1: {weight: 3}}")
	run := func(stdin string, args ...string) {
		t.Helper()
		out, errText, code := enqueue(t, stdin, append(args, "--redis", server.URL())...)
		text := fmt.Sprintf("%q\nexit %d\n%s\n%s", args, code, out, errText)
		text = strings.ReplaceAll(text, server.URL(), "REDIS")
		text = spread.ReplaceAllString(text, "")
		text = regexp.MustCompile(` +`).ReplaceAllString(text, " ") // columns are as wide as their texts
		if strings.Contains(text, "unknown flag") {
			t.Fatal(text)
		}
		all = append(all, passing.ReplaceAllString(text, "…"))
	}
	operate := func(args ...string) {
		t.Helper()
		run("", append(args, "--queue", "calls", "--reason", "a test", "--yes")...)
	}

	run("", "limits", "check", "limits.yaml")
	run("", "limits", "diff", "limits.yaml")
	run("", "limits", "apply", "limits.yaml", "--reason", "a test", "--yes")
	run("", "limits", "apply", "limits.yaml", "--reason", "a test", "--yes")
	run("", "limits", "diff", "other.yaml")
	run("", "limits", "apply", "other.yaml", "--reason", "a test", "--yes")
	run("", "limits", "export")
	run("", "limits", "show")
	var lines strings.Builder
	for i := range 24 {
		fmt.Fprintf(&lines, `{"kind":"%s","tenant":"t%d","key":"k%d","payload":%d}`+"\n", []string{"call", "other"}[i%2], i%8, i, i)
	}
	run(lines.String(), "bulk", "-")
	run("", "workers")
	for _, name := range []string{"status", "tenants", "failures"} {
		run("", name)
		run("", name, "--queue", "calls")
	}
	run("", "jobs", "list", "--queue", "calls", "--tenant", "t3")
	run("", "jobs", "show", "--queue", "calls", "t3:k3")
	run("", "explain", "--queue", "calls", "t3:k3")
	run("", "explain", "--queue", "calls", "t3:none")

	run("", "cancel", "--queue", "calls", "--dry-run")
	operate("cancel", "--tenant", "t3")
	operate("cancel", "--kind", "other")
	operate("cancel", "--id", "t4:k4")
	operate("cancel", "--id", "t4:k4")
	operate("cancel", "--id", "t4:none")
	operate("cancel", "--id", "nobody")
	operate("retry", "--tenant", "t1")
	operate("retry", "--reason-contains", "a test", "--kind", "other")
	operate("run", "--tenant", "t2")
	operate("run", "--id", "t0:k0")
	operate("cancel", "--tenant", "t6")
	operate("delete", "--tenant", "t6")
	run("", "cancel", "--queue", "calls", "--dry-run", "--json")
	run("", "failures", "--queue", "calls")
	run("", "status", "--json")

	operate("pause")
	operate("pause", "--tenant", "t5", "--for", "2h")
	operate("pause", "--kind", "other")
	run("", "pause", "--queue", "calls", "--dry-run")
	run("", "tenants")
	run("", "status")
	for range 2 {
		operate("resume")
		operate("resume", "--tenant", "t5")
		operate("resume", "--kind", "other")
		operate("resume", "--endpoint", "example.com:443")
	}
	operate("limits", "set", "--tenant", "t5", "--limit", "tenant", "--rate", "50/h")
	operate("limits", "set", "--tenant", "t5", "--limit", "tenan", "--rate", "50/h")
	run("", "limits", "show", "--tenant", "t5")
	run("", "limits", "show", "--tenant", "t6")
	run("", "limits", "clear", "--queue", "calls", "--tenant", "t5", "--limit", "tenant", "--reason", "over")
	run("", "limits", "clear", "--queue", "calls", "--tenant", "t5", "--limit", "tenant", "--reason", "over")
	for _, args := range []string{
		"add nightly --spec @daily --zone UTC --kind call --tenant t5 --payload 1 --reason x", "list", "pause nightly --reason x", "resume nightly --reason x",
		"remove nightly --reason x", "list",
	} {
		run("", append([]string{"periodic"}, strings.Fields(args)...)...)
	}
	run("", "audit")
	run("", "audit", "--queue", "calls", "-n", "5")
	run("", "audit", "--json")

	redistest.Serve(server.Client(), "elsewhere", "call")
	operate("unregister")
	server.Client().Del(t.Context(), "headgate:workers")
	operate("unregister")
	operate("cancel")
	operate("delete")
	operate("unregister")
	operate("unregister")
	run("", "status")
	run("", "limits", "apply", "limits.yaml", "--reason", "again", "--yes")
	run("", "audit", "--queue", "calls")
	return all
}
