package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
	"github.com/headgate/headgate/throttle"
)

// TestStatusWithoutANode: while a node of a Cluster does not answer, status shows all that the others have, says which
// partitions are missing, and ends as partly done because of a queue that it cannot show.
func TestStatusWithoutANode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	owner := func(key string) *redistest.Server { return cluster.Owner(cluster.Slot(key)) }
	needed := []*redistest.Server{owner("asynq:queues"), owner(workers.ListKey)}
	var whole, served, away string
	for i := 0; whole == "" || away == ""; i++ {
		if name := fmt.Sprint("q", i); slices.Contains(needed, owner("{"+name+"}")) {
			whole, served = served, name
		} else {
			away = name
		}
	}
	set := limits.Set{Queues: map[string]limits.Queue{served: {Partitions: 8, Limits: []limits.Limit{{Name: "account", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(10), Burst: 1}}}, whole: {}, away: {}}}
	if err := operate.Publish(t.Context(), cluster.Client(), set); err != nil {
		t.Fatal(err)
	}
	owner("{" + away + "}").Kill()
	url := "redis+cluster://" + strings.Join(cluster.Options().Addrs, ",")
	shown, missing := "queue "+served+": 0 waiting", " of 8 partitions of queue "+served+" do not answer"

	out, errText, code := enqueue(t, "", "status", "--redis", url)
	if code != exitPartial || !strings.Contains(out, shown) || !strings.Contains(out, missing) || strings.Contains(out, away) || !strings.Contains(errText, fmt.Sprintf("queue %q", away)) {
		t.Errorf("%s%s exit code %d\nwant %q, %q, and an error of queue %q", out, errText, code, shown, missing, away)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, writer := io.Pipe()
	go func() {
		writer.CloseWithError(watchStatus(ctx, &options{redisURL: url}, "", 0, time.Millisecond, writer))
	}()
	lines, pages := bufio.NewScanner(reader), 0
	for pages < 2 && lines.Scan() {
		if strings.Contains(lines.Text(), fmt.Sprintf("queue %q", away)) {
			pages++
		}
	}
	if stop(); pages < 2 {
		t.Errorf("it watches for %d pages", pages)
	}
	_ = reader.Close()

	out, errText, code = enqueue(t, "", "status", "--json", "--redis", url)
	if code != exitPartial || !json.Valid([]byte(out)) || !strings.Contains(out, fmt.Sprintf(`"queue":%q`, served)) || !strings.Contains(errText, fmt.Sprintf("queue %q", away)) {
		t.Errorf("%s%s exit code %d\nwant JSON with queue %q, and an error of queue %q", out, errText, code, served, away)
	}
	watching, unwatch := context.WithCancel(t.Context())
	defer unwatch()
	reader, writer = io.Pipe()
	go func() {
		writer.CloseWithError(watchStatus(watching, &options{redisURL: url, json: true}, "", 0, time.Millisecond, writer))
	}()
	for decoder, pages := json.NewDecoder(reader), 0; pages < 2; pages++ {
		var page struct{ Queues []struct{ Queue string } }
		if err := decoder.Decode(&page); err != nil || len(page.Queues) == 0 {
			t.Fatalf("page %d as JSON: %+v, %v", pages, page, err)
		}
	}
	unwatch()
	_ = reader.Close()

	for _, command := range [][]string{{"tenants"}, {"failures"}, {"limits", "show"}, {"audit"}} {
		out, errText, code := enqueue(t, "", append(command, "--redis", url)...)
		if code != exitPartial || strings.Contains(out, away) || !strings.Contains(errText, away) || command[0] == "limits" && !strings.Contains(out, served) {
			t.Errorf("%s: %s%s exit code %d\nwant what the other queues have, and an error of queue %q", command, out, errText, code, away)
		}
	}
	out, errText, code = enqueue(t, "", "status", "--queue", served, "--redis", url)
	if code != exitOK || !strings.Contains(out, shown) || !strings.Contains(out, missing) {
		t.Errorf("%s%s exit code %d\nwant %q and %q", out, errText, code, shown, missing)
	}
}

// TestChangesWithoutANode: while a node does not answer that has a part of a queue, commands change the others, and say
// what they could not count or change.
func TestChangesWithoutANode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	client, ctx := cluster.Client(), t.Context()
	owner := func(key string) *redistest.Server { return cluster.Owner(cluster.Slot(key)) }
	needed, name := []*redistest.Server{owner("asynq:queues"), owner(workers.ListKey)}, "q"
	for slices.Contains(needed, owner("{"+name+"}")) {
		name += "q"
	}
	gone, away := owner("{"+name+"}"), 0 // it has the first partition
	layout := partition.Layout{Queue: name, N: 8}
	for _, home := range layout.Names() {
		if owner("{"+home+"}") == gone {
			away++
		}
	}
	if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{name: {Partitions: 8, Kinds: []string{"call"}}}}); err != nil {
		t.Fatal(err)
	}
	producer, reached := queue.NewClient(client), 0
	for i := range 30 {
		tenant := fmt.Sprint("t", i)
		if owner("{"+layout.Home(tenant)+"}") != gone {
			reached++
		}
		if _, err := producer.Enqueue(ctx, queue.Job{Kind: "call", Tenant: tenant}); err != nil {
			t.Fatal(err)
		}
	}
	file := put(t, filepath.Join(t.TempDir(), "limits.yaml"), "queues: {"+name+": {kinds: [call], partitions: 8, max_backlog: 5}}")
	gone.Kill()
	url := "redis+cluster://" + strings.Join(cluster.Options().Addrs, ",")
	parts, jobs := fmt.Sprintf(" %d of its 8 partitions", away), fmt.Sprintf("at least %d jobs", reached)
	uncounted := "the jobs of queue \"" + name + "\" were not counted in" + parts
	for _, test := range []struct {
		args, out, err string
		partial        bool
	}{
		{"cancel --dry-run", "would cancel " + jobs, uncounted, true},
		{"pause --dry-run", "would hold " + jobs, uncounted, true},
		{"pause --yes --reason x", "", fmt.Sprintf("pause queue %q:%s may be as before", name, parts), true},
		{"status", "paused by", "", false},
		{"pause --yes --reason x --json", "", fmt.Sprintf("for %d of the 8 partitions", away), true},
		{"resume --yes --reason x --json", "", fmt.Sprintf("for %d of the 8 partitions", away), true},
		{"resume --yes --reason x", "", fmt.Sprintf("resume queue %q:%s may be as before", name, parts), true},
		{"cancel --yes --reason x", "cancelled " + fmt.Sprint(reached), "would cancel " + jobs, true},
		{"retry --yes --reason x", "put back " + fmt.Sprint(reached), "would retry " + jobs, true},
		{"limits apply " + file + " --yes --reason x", "", "published in part", false},
	} {
		args := append(strings.Fields(test.args), "--redis", url)
		if !strings.Contains(test.args, "apply") {
			args = append(args, "--queue", name)
		}
		out, errText, code := enqueue(t, "", args...)
		if !strings.Contains(out, test.out) || !strings.Contains(errText, test.err) || code == exitOK && test.args != "status" || test.partial && code != exitPartial {
			t.Errorf("%s: %s%sexit code %d; want %q and %q", test.args, out, errText, code, test.out, test.err)
		}
	}
}
