package queue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
)

// round dispatches once.
func (r *rig) round(t *testing.T, d *dispatcher) {
	t.Helper()
	if _, err := d.round(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
}

// fault returns the fault that is reported under a name.
func (r *rig) fault(t *testing.T, what string) string {
	t.Helper()
	return r.server.Client().HGet(t.Context(), store.Key(r.queue, "faults"), what).Val()
}

// TestGhosts: jobs that asynq's tools moved, but that their lane still lists, are removed
// from the lane and not released. A job that is not where its state says stays.
func TestGhosts(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client, ctx := r.server.Client(), t.Context()
	lane := asynqwire.Key(r.queue, "g:"+r.lane("a"))
	var ghosts []string
	for _, state := range []string{"scheduled", "retry", "archived", "completed", "pending", "active"} {
		id := r.add(t, nil)
		client.HSet(ctx, asynqwire.Key(r.queue, "t:"+id), "state", state)
		if state == "pending" || state == "active" {
			client.LPush(ctx, asynqwire.Key(r.queue, state), id)
		} else {
			client.ZAdd(ctx, asynqwire.Key(r.queue, state), zOf(id, 9e9))
		}
		ghosts = append(ghosts, id)
	}
	ours := r.add(t, nil)
	client.HSet(ctx, asynqwire.Key(r.queue, "t:"+ours), "state", "archived")
	client.ZAdd(ctx, store.Key(r.queue, "archive"), zOf(ours, 9e9))
	deleted := r.add(t, nil)
	client.Del(ctx, asynqwire.Key(r.queue, "t:"+deleted))
	nowhere, late := r.add(t, nil), r.add(t, nil)
	client.HSet(ctx, asynqwire.Key(r.queue, "t:"+nowhere), "state", "retry")
	client.HSet(ctx, asynqwire.Key(r.queue, "t:"+late), "hg_deadline", "soon")
	good := r.add(t, nil)
	for range 3 {
		r.round(t, r.dispatcher())
	}
	if state := r.field(t, good, "state"); state != "active" {
		t.Errorf("the job behind them is %s", state)
	}
	if left := client.ZRange(ctx, lane, 0, -1).Val(); !slices.Equal(left, []string{nowhere, late}) {
		t.Errorf("%v are left in the lane; want those that cannot be understood, %s and %s", left, nowhere, late)
	}
	if n := countsOf(t, client, r.queue, "a").Waiting; n != 2 {
		t.Errorf("%d wait by the count; want 2", n)
	}
	if released := client.LRange(ctx, asynqwire.Key(r.queue, "active"), 0, -1).Val(); !slices.Contains(released, good) || len(released) != 3 {
		t.Errorf("%v are active; want %s, %s that was pending, and %s that was", released, good, ghosts[4], ghosts[5])
	}
	if text := r.fault(t, "job "+nowhere) + r.fault(t, "job "+late); !strings.Contains(text, `its state is "retry"`) || !strings.Contains(text, "no number") {
		t.Errorf("the faults are %q", text)
	}
}

// TestManyGhosts: more ghosts than a round looks at do not block their lane.
func TestManyGhosts(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client, lane := r.server.Client(), asynqwire.Key(r.queue, "g:"+r.lane("a"))
	r.enqueue(t, "a", 600)
	for _, id := range client.ZRange(t.Context(), lane, 0, -1).Val() {
		client.Del(t.Context(), asynqwire.Key(r.queue, "t:"+id))
	}
	good := r.add(t, nil)
	d := r.dispatcher()
	r.round(t, d)
	if n := client.ZCard(t.Context(), lane).Val(); n != 601-32*16 {
		t.Errorf("%d of 601 are left in the lane; want 16 to be looked at in each of 32 turns of a call", n)
	}
	until(t, "the job behind them is released", func() bool {
		r.round(t, d)
		return r.field(t, good, "state") == "active"
	})
	if n := countsOf(t, client, r.queue, "a").Waiting; n != 0 {
		t.Errorf("%d wait by the count; want none", n)
	}
}

// TestScheduledForOthers: a scheduled task of asynq's own client, of a kind that this worker
// does not handle, becomes due. It waits in the lane of its tenant like a job.
func TestScheduledForOthers(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	info, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("other;endpoint=x", []byte(`{}`)), asynq.Queue(r.queue), asynq.ProcessIn(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	client.ZAdd(t.Context(), asynqwire.Key(r.queue, "scheduled"), zOf(info.ID, 10))
	d := r.dispatcher()
	d.kinds = ",call,"
	r.round(t, d)
	if err := client.ZScore(t.Context(), asynqwire.Key(r.queue, "g:default;kind=other%3Bendpoint%3Dx"), info.ID).Err(); err != nil || r.field(t, info.ID, "state") != "aggregating" {
		t.Errorf("it is %s, and in its lane: %v", r.field(t, info.ID, "state"), err)
	}
	if client.ZCard(t.Context(), asynqwire.Key(r.queue, "scheduled")).Val() != 0 {
		t.Error("it is still scheduled")
	}
	r.round(t, d)
	d.kinds = ",other%3Bendpoint%3Dx,"
	if ids := r.release(t, d, 10); !slices.Equal(ids, []string{info.ID}) {
		t.Errorf("%v went to the worker that handles it", ids)
	}
}

// TestDeadlinesElsewhere: a job expires while it is scheduled, and in a lane with jobs of
// another priority. It gets no slot, because it takes no permits. The deadline of a damaged job is looked at again later.
func TestDeadlinesElsewhere(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client, ctx := r.server.Client(), t.Context()
	soon := func(job *Job) { job.Deadline = time.Now().Add(2 * time.Hour) }
	scheduled := r.add(t, func(job *Job) { soon(job); job.At = time.Now().Add(time.Hour) })
	high := r.add(t, func(job *Job) { soon(job); job.Priority = High })
	low := r.add(t, func(job *Job) { job.Priority = Low })
	damaged := r.add(t, func(job *Job) { soon(job); job.Tenant = "b" })
	task := asynqwire.Key(r.queue, "t:"+damaged)
	client.Del(ctx, task)
	client.Set(ctx, task, "damaged", 0)
	for _, id := range []string{scheduled, high, damaged} {
		client.ZAdd(ctx, store.Key(r.queue, "deadlines"), zOf(id, 10))
	}
	r.round(t, r.dispatcher())
	went := client.LRange(ctx, asynqwire.Key(r.queue, "active"), 0, -1).Val()
	slices.Sort(went)
	want := []string{scheduled, high, low}
	slices.Sort(want)
	if !slices.Equal(went, want) {
		t.Errorf("%v went; want %v", went, want)
	}
	if n := client.ZCard(ctx, asynqwire.Key(r.queue, "scheduled")).Val(); n != 0 {
		t.Errorf("%d are still scheduled", n)
	}
	for _, id := range []string{scheduled, high} {
		if slot := r.field(t, id, "hg_slot"); !strings.HasPrefix(slot, "0 0 ") {
			t.Errorf("%s has the slot %q", id, slot)
		}
	}
	if at := client.ZScore(ctx, store.Key(r.queue, "deadlines"), damaged).Val(); at < float64(time.Now().Add(30*time.Second).UnixMicro()) {
		t.Errorf("the damaged one is looked at again at %.0f", at)
	}
}

// TestDeadlineBeforeTheSlot: a job that cannot go before its deadline is handed to a worker
// to be archived, and takes no permits.
func TestDeadlineBeforeTheSlot(t *testing.T) {
	r := startRig(t, -1, limitsOf(perTenant(10)), nil)
	client := r.server.Client()
	first := r.add(t, nil)
	r.round(t, r.dispatcher())
	bucket := client.Get(t.Context(), store.Key(r.queue, "b:tenant:a")).Val()
	id := r.add(t, nil)
	slot, _ := parseSlot(t, r.field(t, first, "hg_slot")) // the next one comes 100 ms later
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_deadline", slot+60_000)
	client.ZAdd(t.Context(), store.Key(r.queue, "waiting"), zOf(r.lane("a"), 1))
	r.round(t, r.dispatcher())
	if state := r.field(t, id, "state"); state != "active" {
		t.Errorf("it is %s; want it to be put away", state)
	}
	if after := client.Get(t.Context(), store.Key(r.queue, "b:tenant:a")).Val(); after != bucket {
		t.Errorf("its limit was %s and is %s", bucket, after)
	}
}

// TestDamagedTenants: the limits of all tenants are damaged. Their lanes are set aside, and
// not looked at again and again.
func TestDamagedTenants(t *testing.T) {
	for n := range 4 {
		r := startRig(t, -1, limitsOf(sharedBy(1000), inFlight(5)), nil)
		client := r.server.Client()
		for i := range n {
			tenant := fmt.Sprint("t", i)
			client.HSet(t.Context(), store.Key(r.queue, "limits"), "t:"+tenant, "x")
			r.add(t, func(job *Job) { job.Tenant = tenant })
			ghost := r.add(t, func(job *Job) { job.Tenant = "gone" + tenant })
			client.HSet(t.Context(), store.Key(r.queue, "limits"), "t:gone"+tenant, "x")
			client.Del(t.Context(), asynqwire.Key(r.queue, "t:"+ghost))
		}
		if n == 0 { // it is alone, so it need not be in line
			r.server.Client().HSet(t.Context(), store.Key(r.queue, "limits"), "t:t0", "x")
			r.add(t, func(job *Job) { job.Tenant = "t0" })
		}
		d := r.dispatcher()
		until(t, "there is nothing to do", func() bool {
			wait, err := d.round(t.Context(), 100)
			if err != nil {
				t.Fatal(err)
			}
			return wait > 0
		})
		if text := r.fault(t, "lane "+r.lane("t0")); text == "" {
			t.Errorf("%d tenants: nothing is said of a lane that cannot be understood", n)
		}
	}
}

// TestPendingTasks: tasks that asynq's clients and tools made pending go to their lane or to
// a worker. Damaged ones stay, behind the others.
func TestPendingTasks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := &rig{server: server.Redis(), queue: "q", client: NewClient(server.Client())}
	client, ctx := server.Client(), t.Context()
	pending := asynqwire.Key("q", "pending")
	d := r.dispatcher()
	d.kinds = ",call,"
	became := map[string]string{}
	d.hand = func(jobs []handed) {
		for _, job := range jobs {
			became[job.id] = string(job.answer)
		}
	}
	waits := func(edit func(*Job), fields ...any) string {
		id := r.add(t, edit)
		client.ZRem(ctx, asynqwire.Key("q", "g:"+r.field(t, id, "group")), id)
		countWaiting(t, client, "q", "a", -1)
		client.HSet(ctx, asynqwire.Key("q", "t:"+id), append(fields, "state", "pending")...)
		client.LPush(ctx, pending, id)
		return id
	}
	other := func(job *Job) { job.Kind = "other" }

	client.Set(ctx, pending, "x", 0)
	r.round(t, d)
	if text := r.fault(t, pending); !strings.Contains(text, "WRONGTYPE") {
		t.Errorf("a text among the lists: the fault is %q", text)
	}
	client.Del(ctx, pending)

	// Any worker can put away ended jobs. Other jobs need a worker with a handler.
	theirs, ended, mine := waits(other), waits(other, "hg_done", "1"), waits(nil)
	client.LPush(ctx, pending, "deleted")
	damaged := waits(nil, "hg_slot", "damaged")
	client.LPush(ctx, pending, waits(other)) // it is there twice
	r.round(t, d)
	r.round(t, d)
	if want := map[string]string{ended: "done", mine: "go"}; !maps.Equal(became, want) {
		t.Errorf("the worker was handed %v; want %v", became, want)
	}
	if state := r.field(t, theirs, "state"); state != "aggregating" {
		t.Errorf("the task of another worker is %s; want it in its lane", state)
	}
	if left := client.LRange(ctx, pending, 0, -1).Val(); !slices.Equal(left, []string{damaged}) || r.fault(t, "job "+damaged) == "" {
		t.Errorf("%v are pending, and the fault is %q; want %s", left, r.fault(t, "job "+damaged), damaged)
	}

	// Further back than a round looks, and behind a damaged job.
	for range 150 {
		waits(other)
	}
	last := waits(nil)
	until(t, "the last of many is handed over", func() bool {
		r.round(t, d)
		return became[last] == "go"
	})
	until(t, "what is left, a damaged job, does not keep the worker busy", func() bool {
		wait, err := d.round(ctx, 100)
		return err == nil && wait > 0
	})
}
