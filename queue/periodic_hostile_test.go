package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
)

// TestPeriodicDamaged: a damaged queue blocks only its own ticks, and damaged records of
// fired ticks are replaced.
func TestPeriodicDamaged(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	ctx := t.Context()
	for _, queue := range []string{"call", "mail"} {
		tm.set(Periodic{ID: queue, Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: Job{Kind: queue, Tenant: "a", Payload: struct{}{}}})
		tm.aged(queue, 48*time.Hour)
	}
	today := tm.now() / 86400 * 86400
	for _, name := range []string{store.Key("call", "periodic"), periodicFiredKey} {
		if err := tm.client.Set(ctx, name, "damaged", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	tm.mustRound(tm.ticks)
	wantFired(t, tm.fired("mail"), "mail", today)
	if got := tm.fired("call"); len(got) != 0 {
		t.Errorf("fired %v into the damaged queue", got)
	}
	if faults, err := inspect.Faults(ctx, tm.client, "call"); err != nil || len(faults) != 1 {
		t.Errorf("faults %+v, %v; want one", faults, err)
	}
	tm.client.Del(ctx, store.Key("call", "periodic"))
	tm.mustRound(tm.ticks)
	wantFired(t, tm.fired("call"), "call", today)
	wantFired(t, tm.fired("mail"), "mail", today)
}

// TestPeriodicDeclared: setting the same periodic job again changes nothing. After a change
// of the schedule, or a pause, only later ticks fire.
func TestPeriodicDeclared(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	ctx := t.Context()
	p := Periodic{ID: "x", Spec: "* * * * *", Zone: "UTC"}
	since := func() int64 {
		var stored storedPeriodic
		if err := json.Unmarshal([]byte(tm.client.HGet(ctx, periodicKey, "x").Val()), &stored); err != nil {
			t.Fatal(err)
		}
		return stored.Since
	}
	version := func() string { return tm.client.HGet(ctx, periodicKey, "").Val() }
	tm.set(p)
	tm.aged("x", time.Hour)
	old, before := since(), version()
	tm.set(p)
	if since() != old || version() != before {
		t.Error("the same again is a change")
	}
	p.Job = Job{Kind: "call", Tenant: "other", Payload: 1}
	tm.set(p)
	if since() != old || version() == before {
		t.Error("another job must not forget what was missed, and must reach the workers")
	}
	p.Paused = true
	tm.set(p)
	tm.mustRound(tm.ticks)
	wantFired(t, tm.fired("call"), "x")
	p.Paused = false
	tm.set(p)
	if list, err := NewClient(tm.client).ListPeriodic(ctx); err != nil || len(list) != 1 || !list[0].Paused {
		t.Errorf("a program that starts ended the pause of an operator: %+v, %v", list, err)
	}
	if there, err := NewClient(tm.client).PausePeriodic(ctx, "x", false); err != nil || !there {
		t.Error(there, err)
	}
	if since() == old {
		t.Error("ticks of a pause count as missed")
	}
	tm.aged("x", time.Hour)
	p.Spec = "*/2 * * * *"
	tm.set(p)
	if since() == old {
		t.Error("ticks before a change of the schedule count as missed")
	}
	if there, err := NewClient(tm.client).PausePeriodic(ctx, "x", true); err != nil || !there {
		t.Error(there, err)
	}
	if list, err := NewClient(tm.client).ListPeriodic(ctx); err != nil || len(list) != 1 || !list[0].Paused || !list[0].Next.IsZero() || list[0].Job.Tenant != "other" || list[0].MaxLate != time.Hour {
		t.Errorf("%+v, %v", list, err)
	}
	for _, id := range []string{"", "y"} {
		if there, err := NewClient(tm.client).PausePeriodic(ctx, id, true); err != nil || there {
			t.Errorf("pause of %q: %v, %v", id, there, err)
		}
		if there, err := NewClient(tm.client).RemovePeriodic(ctx, id); err != nil || there {
			t.Errorf("removal of %q: %v, %v", id, there, err)
		}
	}
	if there, err := NewClient(tm.client).RemovePeriodic(ctx, "x"); err != nil || !there {
		t.Error(there, err)
	}
	if list, err := NewClient(tm.client).ListPeriodic(ctx); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestRemovePeriodicWithoutQueue: a periodic job is removed also if no queue has its kind any more.
func TestRemovePeriodicWithoutQueue(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	tm.set(Periodic{ID: "x", Spec: "@daily", Zone: "UTC"})
	set := limits.Set{Queues: map[string]limits.Queue{"call": {Kinds: []string{"mail"}}}}
	if err := operate.Publish(t.Context(), tm.client, set); err != nil {
		t.Fatal(err)
	}
	if there, err := NewClient(tm.client).RemovePeriodic(t.Context(), "x"); err != nil || !there {
		t.Errorf("%v, %v", there, err)
	}
}

// TestPeriodicOfAnUnknownQueue: a client that requires limits says of a periodic job, too, that its queue has none.
func TestPeriodicOfAnUnknownQueue(t *testing.T) {
	t.Parallel()
	client := NewClient(redistest.Any(t).Client()).RequireLimits()
	err := client.SetPeriodic(t.Context(), Periodic{ID: "x", Spec: "@daily", Zone: "UTC", Job: Job{Kind: "call", Queue: "unknown", Tenant: "a"}})
	if !errors.Is(err, ErrUnknownQueue) {
		t.Errorf("%v; want %v", err, ErrUnknownQueue)
	}
}

func TestHostilePeriodic(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	ctx := t.Context()
	tests := map[string]struct {
		edit          func(*Periodic)
		field, reason string
	}{
		"no id":          {func(p *Periodic) { p.ID = "" }, "id", "empty"},
		"id of 201":      {func(p *Periodic) { p.ID = strings.Repeat("x", 201) }, "id", "the maximum is 200"},
		"id with NUL":    {func(p *Periodic) { p.ID = "a\x00" }, "id", "control"},
		"id not UTF-8":   {func(p *Periodic) { p.ID = "\xff" }, "id", "UTF-8"},
		"no spec":        {func(p *Periodic) { p.Spec = "" }, "spec", "empty"},
		"never":          {func(p *Periodic) { p.Spec = "0 0 30 2 *" }, "spec", "no tick in the next five years"},
		"no zone":        {func(p *Periodic) { p.Zone = "" }, "zone", "required"},
		"late by 1 s":    {func(p *Periodic) { p.MaxLate = time.Second }, "max_late", "10s to 24h"},
		"late by a week": {func(p *Periodic) { p.MaxLate = 7 * 24 * time.Hour }, "max_late", "10s to 24h"},
		"late by -1":     {func(p *Periodic) { p.MaxLate = math.MinInt64 }, "max_late", "10s to 24h"},
		"overlap":        {func(p *Periodic) { p.Overlap = "forbid" }, "overlap", `"forbid" is not skip, queue or replace`},
		"at":             {func(p *Periodic) { p.Job.At = time.Now() }, "job.at", "leave it out"},
		"in":             {func(p *Periodic) { p.Job.In = 1 }, "job.in", "leave it out"},
		"key":            {func(p *Periodic) { p.Job.Key = "k" }, "job.key", "leave it out"},
		"deadline":       {func(p *Periodic) { p.Job.Deadline = time.Now().Add(time.Hour) }, "job.deadline", "leave it out"},
		"no kind":        {func(p *Periodic) { p.Job.Kind = "" }, "job.kind", "1 to 64"},
		"no tenant":      {func(p *Periodic) { p.Job.Tenant = "" }, "job.tenant", "empty"},
		"queue":          {func(p *Periodic) { p.Job.Queue = "{}" }, "job.queue", "1 to 64"},
		"a large job":    {func(p *Periodic) { p.Job.Payload = make([]byte, 2<<20) }, "job.payload", "the maximum is"},
		"a func":         {func(p *Periodic) { p.Job.Payload = func() {} }, "job.payload", "unsupported type"},
		"key window":     {func(p *Periodic) { p.Job.KeyWindow = time.Hour }, "job.key", "key_window"},
		"costs":          {func(p *Periodic) { p.Job.Costs = map[string]int64{"tokens": -1} }, "job.costs", "tokens"},
		"attempts":       {func(p *Periodic) { p.Job.MaxAttempts = -1 }, "job.max_attempts", "must be 1 to"},
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			p := Periodic{ID: "x", Spec: "@daily", Zone: "UTC", Job: Job{Kind: "call", Tenant: "a"}}
			test.edit(&p)
			err := NewClient(tm.client).SetPeriodic(ctx, p)
			invalid, ok := errors.AsType[*validation.Error](err)
			if !ok || invalid.Field != test.field || !strings.Contains(invalid.Reason, test.reason) || len(err.Error()) > 300 {
				t.Errorf("%v; want %s: …%s…", err, test.field, test.reason)
			}
		})
	}
	if err := NewClient(tm.client).SetPeriodic(ctx, Periodic{}); err == nil || len(validation.Unjoin(err)) != 5 {
		t.Errorf("nothing at all: %v; want id, spec, and kind, queue and tenant of the job", err)
	}
	if n := len(redistest.Keys(t, tm.client, "*")); n > 0 {
		t.Errorf("%d keys were written", n)
	}

	// Entries of any name and payload fire next to damaged ones.
	ids := []string{"{}", "*", "a b", "0", "日本", `"`, `{"since":1,"paused":true,`, "%d %s", strings.Repeat("é", 100), "\u202e"}
	for _, id := range ids {
		tm.set(Periodic{ID: id, Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: Job{Kind: "call", Tenant: "a", Payload: []byte("\xff\x00" + id)}})
		tm.aged(id, 48*time.Hour)
	}
	tm.client.HSet(ctx, periodicKey, "broken", "{", "of tomorrow", `{"since":1,"paused":false,"spec":"@lunar","zone":"UTC","max_late_seconds":60}`)
	tm.client.HSet(ctx, periodicFiredKey, "0", "nonsense")
	today := tm.now() / 86400 * 86400
	for range 2 {
		tm.mustRound(tm.ticks)
		got := tm.fired("call")
		for _, id := range ids {
			if got[fmt.Sprint(id, " ", today)] != 1 {
				t.Errorf("%q did not fire once: %v", id, got)
			}
		}
	}
	list, err := NewClient(tm.client).ListPeriodic(ctx)
	if err != nil || len(list) != len(ids)+2 {
		t.Fatalf("%d entries, %v", len(list), err)
	}
	for _, state := range list {
		broken := state.ID == "broken" || state.ID == "of tomorrow"
		if (state.Err != nil) != broken || (state.LastFired.Unix() == today) == broken || state.Next.IsZero() != broken {
			t.Errorf("%+v", state)
		}
		if payload, _ := state.Job.Payload.([]byte); !broken && string(payload) != "\xff\x00"+state.ID {
			t.Errorf("%q has the payload %q", state.ID, payload)
		}
	}
}
