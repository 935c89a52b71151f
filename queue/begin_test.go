package queue

import (
	"fmt"
	"testing"
	"time"
)

// TestBeginGivesNoFarSlot: a slot that lies further ahead than any is given comes from a
// clock that was set back. Neither the script nor the worker goes by it.
func TestBeginGivesNoFarSlot(t *testing.T) {
	r := startRig(t, -1, limitsOf(perTenant(10)), nil)
	client := r.server.Client()
	g := (&gate{queue: r.queue, redis: client, logger: r.worker.logger, clock: &redisClock{}}).init()
	for ahead, want := range map[time.Duration][2]string{
		0: {"go", "go"}, 2 * time.Second: {"go", "slot"}, time.Hour: {"slot", "slot"},
	} {
		id := r.add(t, nil)
		r.hold(t, id, "")
		now := client.Time(t.Context()).Val().Add(ahead).UnixMicro()
		client.HSet(t.Context(), asynqKey(r.queue, "t:"+id), "hg_slot", fmt.Sprintf("%d %d 77", now, now+1_000_000))
		client.HDel(t.Context(), asynqKey(r.queue, "t:"+id), "hg_owner")
		reply, err := beginScript.Run(t.Context(), client, scriptKeys(r.queue), r.queue, id, "w:1", "a", "call")
		if err != nil {
			t.Fatal(err)
		}
		answer, err := g.begin(t.Context(), Running{ID: id, Queue: r.queue, Kind: "call", Tenant: "a"}, "w:1")
		if err != nil {
			t.Fatal(err)
		}
		if said := reply.([]any)[0]; said != want[0] || answer.answer != want[1] {
			t.Errorf("%v ahead: the script says %v and the worker %s; want %v", ahead, said, answer.answer, want)
		}
	}
}

// TestKeptJobIsNotCalled: a job that is given back before its call is not one that was
// being called, though it was marked; and a run that made no call says why it waits.
func TestKeptJobIsNotCalled(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	settle := func(outcome, record string) {
		t.Helper()
		if _, err := settleScript.Run(t.Context(), client, scriptKeys(r.queue), r.queue, "none", 0, id, "w:1", "a", "call", outcome, 0, " ", "", "", record); err != nil {
			t.Fatal(err)
		}
	}
	settle("beside", "")
	if mark := r.field(t, id, "hg_called"); mark != "beside" {
		t.Errorf("before its call it is marked %q", mark)
	}
	settle("keep", "")
	if mark := r.field(t, id, "hg_called"); mark != "" {
		t.Errorf("given back it is marked %q", mark)
	}
	client.HSet(t.Context(), asynqKey(r.queue, "t:"+id), "hg_owner", "w:1")
	settle("refused", "throttled  0 0 0 0 0 the pool is full")
	if log := readLog(r.field(t, id, "hg_log")); len(log) == 0 || log[len(log)-1].What != JobParked || log[len(log)-1].Detail != "the pool is full" {
		t.Errorf("its log is %+v", log)
	}
}
