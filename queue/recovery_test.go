package queue

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestRecovererCompares(t *testing.T) {
	r := &recoverer{}
	at := func(seconds float64, leases map[string]string, dead ...string) {
		t.Helper()
		got := r.compare(leases, time.Duration(seconds*float64(time.Second)))
		slices.Sort(got)
		if fmt.Sprint(got) != fmt.Sprint(dead) {
			t.Errorf("at %v s: dead = %v; want %v", seconds, got, dead)
		}
	}
	// b is renewed, a is silent, c stands in active without a lease.
	for s := 0.0; s <= 11; s++ {
		at(100+s, map[string]string{"a": "7", "b": strconv.Itoa(int(s) / 5), "c": ""})
	}
	at(111.5, map[string]string{"a": "7", "b": "2", "c": ""}, "a", "c")
	// A gap in looking: whatever was silent may have moved, so it counts anew.
	at(130, map[string]string{"a": "7", "b": "2"})
	for s := 131.0; s <= 141; s++ {
		at(s, map[string]string{"a": "7", "b": "9"})
	}
	at(141.5, map[string]string{"a": "7", "b": "9"}, "a")
}

// TestRecovery drives recover.lua through the life of a job whose workers die.
func TestRecovery(t *testing.T) {
	r := startRig(t, 1, limitsOf(perTenant(100)), nil)
	ctx, client := t.Context(), r.server.Client()
	id := r.add(t, nil)
	task := asynqKey(r.queue, "t:"+id)
	// take is a worker that dequeues the job as asynq does, and whose gate saw it.
	take := func(lease int, owner string) {
		t.Helper()
		client.ZRem(ctx, asynqKey(r.queue, "g:a;kind=call"), id)
		client.HSet(ctx, task, "state", "active", "hg_slot", "1 2 77")
		client.LPush(ctx, asynqKey(r.queue, "active"), id)
		client.ZAdd(ctx, asynqKey(r.queue, "lease"), redis.Z{Score: float64(lease), Member: id})
		if owner != "" {
			client.HSet(ctx, task, "hg_owner", owner)
		}
	}
	recover := func(seen string) int64 {
		t.Helper()
		n, err := recoverScript.Run(ctx, client, scriptKeys(r.queue), r.queue, id, seen)
		if err != nil {
			t.Fatal(err)
		}
		return n.(int64)
	}
	field := func(name string) string { return client.HGet(ctx, task, name).Val() }

	take(10, "w1")
	if n := recover("9"); n != 0 || field("state") != "active" {
		t.Fatalf("a job whose lease moved was taken: %d, %s", n, field("state"))
	}
	if n := recover("10"); n != 1 || field("state") != "aggregating" || field("hg_crashes") != "1" {
		t.Fatalf("recovered %d, state %s, crashes %s; want it in its lane with 1", n, field("state"), field("hg_crashes"))
	}
	if score := client.ZScore(ctx, asynqKey(r.queue, "g:a;kind=call"), id).Val(); score != 77 {
		t.Errorf("it stands at %v in its lane; want its old place, 77", score)
	}
	if n := recover("10"); n != 0 {
		t.Errorf("two recoverers both took it")
	}

	client.HDel(ctx, task, "hg_owner")
	take(20, "")
	recover("20")
	if field("hg_crashes") != "1" {
		t.Errorf("crashes = %s after a worker died that had not touched it", field("hg_crashes"))
	}
	take(30, "w2")
	recover("30")
	take(40, "w3")
	recover("40")
	if field("hg_crashes") != "2" || field("state") != "aggregating" {
		t.Errorf("crashes = %s: a suspect that did not run alone was blamed", field("hg_crashes"))
	}
	take(50, "w4")
	client.HSet(ctx, task, "hg_alone", "1")
	recover("50")
	if field("hg_crashes") != "3" || field("state") != "pending" {
		t.Errorf("crashes = %s, state %s; want it handed to a worker to archive", field("hg_crashes"), field("state"))
	}
	r.run(t)
	r.seen.wait(t, string(Crashed), 1)
	r.stop()
	if reason := r.archived(t)[id]; reason == "" || r.jobs[id] != 0 {
		t.Errorf("archived with %q after %d calls", reason, r.jobs[id])
	}
}

// TestDoneIsNeverCalledAgain: a lost acknowledgement makes asynq run a task
// twice; the mark of the first settlement ends it without a call.
func TestDoneIsNeverCalledAgain(t *testing.T) {
	r := startRig(t, 1, limitsOf(), nil)
	id := r.add(t, nil)
	task := asynqKey(r.queue, "t:"+id)
	ctx, client := t.Context(), r.server.Client()
	client.ZRem(ctx, asynqKey(r.queue, "g:a;kind=call"), id)
	client.HSet(ctx, task, "state", "active", "hg_done", "1", "hg_owner", "w")
	client.LPush(ctx, asynqKey(r.queue, "active"), id)
	if _, err := recoverScript.Run(ctx, client, scriptKeys(r.queue), r.queue, id, ""); err != nil {
		t.Fatal(err)
	}
	r.run(t)
	r.seen.wait(t, string(Done), 1)
	r.stop()
	if r.jobs[id] != 0 {
		t.Error("a job that was done was called again")
	}
	if client.Exists(ctx, task).Val() != 0 {
		t.Error("it is still there")
	}
}

// TestSettleIsFenced: a worker that lost a job to another writes nothing.
func TestSettleIsFenced(t *testing.T) {
	r := startRig(t, 1, limitsOf(), nil)
	id := r.add(t, nil)
	ctx, client := t.Context(), r.server.Client()
	task := asynqKey(r.queue, "t:"+id)
	client.HSet(ctx, task, "hg_owner", "theirs")
	settle := func(owner string) bool {
		t.Helper()
		g := &gate{queue: r.queue, redis: client}
		mine, err := g.sendSettle([]settleQuestion{{id: id, owner: owner, tenant: "a", outcome: "done"}})
		if err != nil {
			t.Fatal(err)
		}
		return mine[0].mine
	}
	if settle("ours") || client.HExists(ctx, task, "hg_done").Val() {
		t.Error("a job of another worker was settled")
	}
	for range 2 { // a repeat after a lost reply
		if !settle("theirs") {
			t.Error("the owner could not settle")
		}
	}
	if done := client.HGet(ctx, key(r.queue, "done"), "a").Val(); done != "1" {
		t.Errorf("counted %s times", done)
	}
}
