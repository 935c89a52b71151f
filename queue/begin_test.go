package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// TestNoFarSlotIsUsed: a slot further ahead than slots are given is from before the clock
// was set back. Neither the script nor the worker uses it.
func TestNoFarSlotIsUsed(t *testing.T) {
	r := startRig(t, -1, limitsOf(perTenant(10)), nil)
	client := r.server.Client()
	for ahead, kept := range map[time.Duration]bool{50 * time.Millisecond: true, 2 * time.Second: false, time.Hour: false} {
		tenant := ahead.String()
		id := r.add(t, func(job *Job) { job.Tenant = tenant })
		now := client.Time(t.Context()).Val()
		slot := fmt.Sprintf("%d %d 77", now.Add(ahead).UnixMicro(), now.Add(ahead+time.Minute).UnixMicro())
		client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_slot", slot)
		if ids := r.release(t, r.dispatcher(), 10); len(ids) == 0 || ids[len(ids)-1] != id {
			t.Fatalf("%v went; want %s", ids, id)
		}
		got := r.field(t, id, "hg_slot")
		e, _ := parseSlot(t, got)
		if sameSlot(t, got, slot) != kept || time.UnixMicro(e).Sub(now) > time.Second {
			t.Errorf("%v ahead: the slot %s became %s", ahead, slot, got)
		}
	}

	d := r.dispatcher()
	now := client.Time(t.Context()).Val()
	d.clock.observe(now.UnixMicro(), boottime.Now(), boottime.Now())
	for ahead, want := range map[time.Duration]answer{0: answerGo, store.Horizon: answerGo, 2 * time.Second: answerSlot, time.Hour: answerSlot} {
		e := now.Add(ahead).UnixMicro()
		jobs, err := d.readHanded(store.Read([]any{[]any{"id", "", "go", e, e + 1_000_000, int64(0), int64(0), now.UnixMicro(), int64(0), int64(0)}}), 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := jobs[0].answer; got != want {
			t.Errorf("the worker makes %q of a slot that lies %v ahead; want %q", got, ahead, want)
		}
	}
}

// TestKeptJobIsNotCalled: a job that is given back before its call does not count as called,
// although it was marked; and a run without a call reports why the job waits.
func TestKeptJobIsNotCalled(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	r.settles(t, settleQuestion{id: id, outcome: "beside"})
	if mark := r.field(t, id, "hg_called"); mark != "beside" {
		t.Errorf("before its call it is marked %q", mark)
	}
	r.settles(t, settleQuestion{id: id, outcome: "keep"})
	if mark := r.field(t, id, "hg_called"); mark != "" {
		t.Errorf("given back it is marked %q", mark)
	}
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_owner", "w:1")
	r.settles(t, settleQuestion{id: id, outcome: "refused", record: "throttled  0 0 0 0 0   the pool is full"})
	if log := store.ReadLog(r.field(t, id, "hg_log")); len(log) == 0 || log[len(log)-1].What != lifecycle.EventParked || log[len(log)-1].Detail != "the pool is full" {
		t.Errorf("its log is %+v", log)
	}
}
