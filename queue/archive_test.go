package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/chores"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// fillArchive puts n jobs into asynq's archive, a second apart, the last now.
func fillArchive(t *testing.T, client redis.UniversalClient, queue string, n int) {
	t.Helper()
	now := time.Now().Unix()
	for from := 0; from < n; from += 1000 {
		pipe := client.Pipeline()
		for i := from; i < min(from+1000, n); i++ {
			id := fmt.Sprintf("old-%05d", i)
			msg := asynqwire.Encode(queue, id, "call", []byte(`{}`), map[string]string{asynqwire.HeaderTenant: "a"}, 0)
			pipe.HSet(t.Context(), asynqwire.Key(queue, "t:"+id), "msg", msg, "state", "archived")
			pipe.ZAdd(t.Context(), asynqwire.Key(queue, "archived"), zOf(id, float64(now-int64(n-i))))
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := asynqwire.RegisterQueues(t.Context(), client, queue); err != nil {
		t.Fatal(err)
	}
}

// TestArchiveIsNotCut: when asynq archives a task, it deletes archived tasks beyond 10,000
// and older than 90 days. Headgate's workers do not.
func TestArchiveIsNotCut(t *testing.T) {
	t.Parallel()
	const jobs = 10_050
	r := startRig(t, 1, limitsOf(), nil)
	client := r.server.Client()
	fillArchive(t, client, r.queue, jobs)
	client.ZAdd(t.Context(), asynqwire.Key(r.queue, "archived"), zOf("old-00000", float64(time.Now().AddDate(0, 0, -100).Unix())))
	r.answer = func(context.Context, Running) error { return permanent{} }
	r.add(t, nil)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Archived), 1)
	r.stop()
	both := client.ZCard(t.Context(), asynqwire.Key(r.queue, "archived")).Val() + client.ZCard(t.Context(), store.Key(r.queue, "archive")).Val()
	if both != jobs+1 {
		t.Errorf("%d jobs are archived; want all %d", both, jobs+1)
	}
	for _, i := range []int{0, 1, jobs - 1} {
		if client.Exists(t.Context(), asynqwire.Key(r.queue, fmt.Sprintf("t:old-%05d", i))).Val() != 1 {
			t.Errorf("archived job %d was deleted", i)
		}
	}
}

// TestArchiveMoves: jobs that asynq's tools would delete are moved, and still listed.
func TestArchiveMoves(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const jobs = 10_050
	server, name := redistest.Any(t), redistest.Queue(t)
	ctx, client := t.Context(), server.Client()
	fillArchive(t, client, name, jobs)
	// Many jobs of the same second are on both sides of the bound.
	pipe := client.Pipeline()
	for i := 900; i < 1200; i++ {
		pipe.ZAdd(ctx, asynqwire.Key(name, "archived"), zOf(fmt.Sprintf("old-%05d", i), float64(time.Now().Unix()-jobs+1000)))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	client.HSet(ctx, asynqwire.Key(name, "t:old-00500"), "hg_outcome", "expired")
	var want []string
	lists := inspect.New(client)
	collect := func(between func()) (ids []string) {
		t.Helper()
		query := inspect.JobQuery{State: lifecycle.StateArchived, Limit: 70}
		for {
			page, err := lists.ListJobs(ctx, name, query)
			if err != nil {
				t.Fatal(err)
			}
			for _, job := range page.Jobs {
				ids = append(ids, job.ID)
				if job.Kind != "call" || job.Tenant != "a" || time.Since(job.At) > 4*time.Hour {
					t.Fatalf("listed %+v", job)
				}
				if wanted := map[bool]lifecycle.Outcome{true: lifecycle.Expired, false: lifecycle.Archived}[job.ID == "old-00500"]; job.Outcome != wanted {
					t.Errorf("job %s: outcome %s", job.ID, job.Outcome)
				}
			}
			if page.Next == "" {
				return ids
			}
			query.Cursor = page.Next
			if between != nil {
				between()
			}
		}
	}
	want = collect(nil)
	if len(want) != jobs || want[0] != fmt.Sprintf("old-%05d", jobs-1) || want[jobs-1] != "old-00000" {
		t.Fatalf("%d listed, from %s to %s", len(want), want[0], want[len(want)-1])
	}

	var log bytes.Buffer
	c := chores.New(name, partition.Layout{Queue: name, N: 1}, client, nil, slog.New(slog.NewTextHandler(&log, nil)))
	// A page at a time, while a batch at a time is moved.
	got := collect(func() {
		if _, err := store.ArchiveScript.Run(ctx, client, store.ScriptKeys(name), name, chores.KeptByAsynq, int64(chores.KeptFor.Seconds()), 7); err != nil {
			t.Fatal(err)
		}
	})
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%d listed while the archive moved; want the same %d", len(got), len(want))
	}
	for range 2 {
		if err := c.MoveArchived(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, &log)
	}
	got = collect(nil)
	moved := client.ZCard(ctx, store.Key(name, "archive")).Val()
	if strings.Join(got, " ") != strings.Join(want, " ") || moved != jobs-chores.KeptByAsynq {
		t.Errorf("%d listed, %d of them moved; want the same %d, %d moved", len(got), moved, len(want), jobs-chores.KeptByAsynq)
	}
	status, err := inspect.New(client).Overview(ctx, name)
	if err != nil || status.Archived != jobs {
		t.Errorf("Overview.Archived = %d, %v", status.Archived, err)
	}

	// asynq's tools cut their own archive, and find nothing to cut.
	inspector := asynq.NewInspectorFromRedisClient(client)
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("call", nil), asynq.Queue(name), asynq.TaskID("by-hand")); err != nil {
		t.Fatal(err)
	}
	if err := inspector.ArchiveTask(name, "by-hand"); err != nil {
		t.Fatal(err)
	}
	if status, err := inspect.New(client).Overview(ctx, name); err != nil || status.Archived != jobs+1 {
		t.Errorf("Overview.Archived = %d, %v after asynq archived one more", status.Archived, err)
	}
	// They cannot run moved jobs, and return an error instead of losing them.
	if err := inspector.RunTask(name, "old-00000"); err == nil || client.HGet(ctx, asynqwire.Key(name, "t:old-00000"), "state").Val() != "archived" {
		t.Errorf("RunTask of a job that was moved: %v", err)
	}
	if info, err := inspector.GetTaskInfo(name, "old-00000"); err != nil || info.State != asynq.TaskStateArchived {
		t.Errorf("GetTaskInfo of a job that was moved: %+v, %v", info, err)
	}
	if r, err := NewClient(client).Result(ctx, name, "old-00000"); err != nil || r.Outcome != lifecycle.Archived || r.EndedAt.IsZero() {
		t.Errorf("Result of a job that was moved: %+v, %v", r, err)
	}
}

// TestOldArchiveMoves: old jobs are moved however few there are, and deleted ones are
// dropped.
func TestOldArchiveMoves(t *testing.T) {
	t.Parallel()
	server, name := redistest.Any(t), redistest.Queue(t)
	ctx, client := t.Context(), server.Client()
	fillArchive(t, client, name, 10)
	old := time.Now().AddDate(0, 0, -85)
	for i := range 3 {
		client.ZAdd(ctx, asynqwire.Key(name, "archived"), zOf(fmt.Sprintf("old-%05d", i), float64(old.Unix())))
	}
	client.Del(ctx, asynqwire.Key(name, "t:old-00001"))
	if err := chores.New(name, partition.Layout{Queue: name, N: 1}, client, nil, discardLogger()).MoveArchived(ctx); err != nil {
		t.Fatal(err)
	}
	if moved := client.ZRange(ctx, store.Key(name, "archive"), 0, -1).Val(); fmt.Sprint(moved) != "[old-00000 old-00002]" {
		t.Errorf("moved %v", moved)
	}
	// A job that was retried since is not in the archive.
	client.HSet(ctx, asynqwire.Key(name, "t:old-00002"), "state", "active")
	page, err := inspect.New(client).ListJobs(ctx, name, inspect.JobQuery{State: lifecycle.StateArchived})
	if err != nil || len(page.Jobs) != 8 || page.Next != "" || page.Jobs[7].ID != "old-00000" || page.Jobs[7].At.Unix() != old.Unix() {
		t.Errorf("ListJobs = %+v, %v", page, err)
	}
	drop := store.NewScript(`return archive_drop(ARGV[2]) and 1 or 0`, store.Lua("end"))
	for id, want := range map[string]int64{"old-00000": 1, "old-00005": 1, "old-00002": 1, "old-00001": 0} {
		if n, err := drop.Run(ctx, client, store.ScriptKeys(name), name, id); err != nil || n != want {
			t.Errorf("archive_drop(%s) = %v, %v; want %d", id, n, err, want)
		}
	}
}

// TestWorkerMovesTheArchive: the sweep does it, and the worker that archives
// loses nothing meanwhile.
func TestWorkerMovesTheArchive(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	r.answer = func(context.Context, Running) error { return permanent{} }
	fillArchive(t, r.server.Client(), r.queue, 9_990)
	const jobs = 60
	enqueueAll(t, r.client, slices.Repeat([]Job{{Kind: "call", Queue: r.queue, Tenant: "a", Payload: json.RawMessage(`{}`)}}, jobs)...)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Archived), jobs)
	until(t, "moved", func() bool { return r.server.Client().ZCard(t.Context(), store.Key(r.queue, "archive")).Val() >= 990 })
	r.stop()
	if status, err := inspect.New(r.server.Client()).Overview(t.Context(), r.queue); err != nil || status.Archived != 10_050 {
		t.Errorf("Status.Archived = %d, %v; want 10,050", status.Archived, err)
	}
}
