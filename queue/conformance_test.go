package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// quota is a limit whose window a test does not see the end of.
func quota(name string, count int64, edit func(*limits.Limit)) limits.Limit {
	l := limits.Limit{Name: name, Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: count, Period: 1000 * time.Hour}}
	if edit != nil {
		edit(&l)
	}
	return l
}

// counted are limits of a queue that counts its calls.
func counted(set ...limits.Limit) limits.Set {
	all := limitsOf(set...)
	q := all.Queues[""]
	q.Conformance = true
	all.Queues[""] = q
	return all
}

// conformance returns the most in a window by bucket, as "LIMIT VALUES: MOST of ALLOWED".
func (r *rig) conformance(t *testing.T) (all []string, c inspect.Conformance) {
	t.Helper()
	now := time.Now()
	c, err := inspect.ReadConformance(t.Context(), r.server.Client(), r.queue, inspect.ConformanceQuery{From: now.Add(-time.Hour), To: now.Add(time.Minute), N: 100})
	if err == nil {
		err = operate.NameCauses(t.Context(), r.server.Client(), r.queue, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range c.Buckets {
		var text strings.Builder
		text.WriteString(b.Limit)
		for _, name := range slices.Sorted(maps.Keys(b.Values)) {
			text.WriteString(fmt.Sprintf(" %s=%s", name, b.Values[name]))
		}
		last := b.Hours[len(b.Hours)-1]
		all = append(all, fmt.Sprintf("%s: %d of %d", text.String(), last.Most, last.Allowed))
	}
	slices.Sort(all)
	return all, c
}

// TestConformance: what calls took of each limit is counted as it was, whoever made them.
func TestConformance(t *testing.T) {
	t.Parallel()
	began := time.Now()
	r := startRig(t, 10, counted(
		quota("calls", 1000, func(l *limits.Limit) { l.Per = []string{"tenant"} }),
		quota("tokens", 99, func(l *limits.Limit) { l.Per, l.Unit = []string{"tenant", "model"}, "tokens" }),
		quota("jobs", 1000, func(l *limits.Limit) { l.For = limits.Jobs }),
		quota("direct", 1000, func(l *limits.Limit) { l.For = limits.Direct }),
		limits.Limit{Name: "flight", Algorithm: throttle.Concurrency, Concurrency: 5},
	), nil)
	r.answer = func(ctx context.Context, job Running) error {
		if strings.Contains(job.attributes, "model=x%3A1") && job.Attempt == 1 {
			return SetActual(ctx, map[string]int64{"tokens": 7})
		}
		return nil
	}
	for i := range 10 {
		r.add(t, func(j *Job) {
			j.Tenant, j.Cost = "a b", 2
			if i < 4 {
				j.Tenant, j.Attributes, j.Costs = "é", map[string]string{"model": fmt.Sprintf("x:%d", i%2), "other": "not of a limit"}, map[string]int64{"tokens": 10}
			}
		})
	}
	for range 3 {
		job := r.call("a b")
		job.Cost = 5
		p, err := r.client.Take(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	settled := r.call("é")
	settled.Attributes, settled.Costs = map[string]string{"model": "x:2"}, map[string]int64{"tokens": 30}
	for _, actual := range []map[string]int64{nil, {"tokens": 4}} {
		p, err := r.client.Take(t.Context(), settled)
		if err != nil {
			t.Fatal(err)
		}
		if actual == nil {
			err = p.Cancel(t.Context())
		} else {
			err = p.Settle(t.Context(), actual)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r.run(t) // after what is given back, so that nothing is counted before
	r.wait(t)
	want := []string{
		"calls tenant=a b: 27 of 1000", "calls tenant=é: 9 of 1000", "direct: 16 of 1000", "jobs: 20 of 1000",
		"tokens model=x:0 tenant=é: 20 of 99", "tokens model=x:1 tenant=é: 14 of 99", "tokens model=x:2 tenant=é: 4 of 99",
	}
	var got []string
	until(t, "counted", func() bool {
		got, _ = r.conformance(t)
		return len(got) == len(want) && got[2] == want[2] && got[3] == want[3]
	})
	if !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
	trial, err := inspect.Try(t.Context(), r.server.Client(), r.queue, limits.Set{Queues: map[string]limits.Queue{r.queue: {}}}, inspect.TrialQuery{N: 10})
	if err != nil || trial.Calls != 18 || trial.Jobs != 10 || trial.Measured.Max <= 0 || trial.Measured.Max > time.Since(began) {
		t.Errorf("the calls that are kept: %+v, %v", trial, err)
	}
}

// TestNothingIsCountedUnlessAsked: a queue that does not count its calls keeps nothing more for it.
func TestNothingIsCountedUnlessAsked(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(quota("calls", 1000, func(l *limits.Limit) { l.Per = []string{"model"} })), nil)
	r.add(t, func(j *Job) {
		j.Attributes, j.Costs, j.Cost = map[string]string{"model": "m"}, map[string]int64{"tokens": 3}, 2
	})
	r.run(t)
	r.wait(t)
	if _, err := r.client.Take(t.Context(), r.call("a")); err != nil {
		t.Fatal(err)
	}
	r.seen.wait(t, "to redis: script:janitor", r.seen.outcomes("to redis: script:janitor")+2) // the chores that would count
	client := r.server.Client()
	entries := client.XRange(t.Context(), store.Key(r.queue, "events"), "-", "+").Val()
	if len(entries) != 1 || len(entries[0].Values) != 1 || !strings.HasSuffix(fmt.Sprint(entries[0].Values["1"]), " 0   ") {
		t.Errorf("the events are %v", entries)
	}
	for _, key := range redistest.Keys(t, client, store.Key(r.queue, "*")) {
		for _, name := range []string{"counted", "sent:", "conformance:"} {
			if strings.HasPrefix(key, store.Key(r.queue, name)) {
				t.Errorf("there is %s", key)
			}
		}
	}
	if c := r.seen.outcomes("to redis: script:calls"); c != 0 {
		t.Errorf("calls.lua ran %d times", c)
	}
}

// TestLostRunCounts: a run whose worker died counts at its slot, unless that was still ahead.
func TestLostRunCounts(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, counted(quota("calls", 1000, nil)), nil)
	released := make(chan struct{})
	r.answer = func(context.Context, Running) error {
		<-released
		return nil
	}
	r.run(t)
	id := r.add(t, func(j *Job) { j.Cost = 3 })
	r.wait(t)
	r.takeOver(t, id)
	close(released) // it was not dead: its end counts, but no second time
	until(t, "counted", func() bool { got, _ := r.conformance(t); return len(got) > 0 })
	r.seen.wait(t, string(lifecycle.Done), 1)
	r.seen.wait(t, "to redis: script:calls", r.seen.outcomes("to redis: script:calls")+2)
	if got, _ := r.conformance(t); !slices.Equal(got, []string{"calls: 3 of 1000"}) {
		t.Errorf("%v; want the call once", got)
	}
	if events, err := inspect.Events(t.Context(), r.server.Client(), r.queue, "", 10); err != nil || slices.ContainsFunc(events, func(e inspect.Event) bool { return e.Outcome == store.Lost }) {
		t.Errorf("events: %+v, %v", events, err)
	}
}

// TestViolationsAreNamed: jobs that were run beyond a limit, and a limit that was lowered, explain why it was exceeded.
func TestViolationsAreNamed(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, counted(quota("calls", 3, func(l *limits.Limit) { l.Per = []string{"tenant"} })), nil)
	for tenant, jobs := range map[string]int{"run": 5, "lowered": 4, "kept": 5} {
		r.enqueue(t, tenant, jobs)
	}
	runs := func(tenant string) {
		t.Helper()
		if _, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.RunNow, operate.Filter{Tenant: tenant}, ann, nil); err != nil {
			t.Fatal(err)
		}
	}
	r.run(t)
	until(t, "counted", func() bool { got, _ := r.conformance(t); return len(got) == 3 && len(r.all()) == 9 })
	runs("run")
	r.override(t, "lowered", "calls", limits.Change{Rate: &throttle.Rate{Count: 2, Period: 1000 * time.Hour}})
	runs("lowered")
	want := map[string]string{ // of the seconds in which a limit is known to have changed, the larger one counts
		"kept":    "",
		"run":     "5 of 3, run by ann (the campaign was a mistake)",
		"lowered": "4 of 3, run by ann (the campaign was a mistake), changed by ann (a test): 3/1000h0m0s to 2/1000h0m0s",
	}
	var got map[string]string
	until(t, "named", func() bool {
		_, c := r.conformance(t)
		got = map[string]string{}
		for _, b := range c.Buckets {
			got[b.Values["tenant"]] = causesOf(b)
		}
		return strings.HasPrefix(got["run"], "5") && strings.HasPrefix(got["lowered"], "4")
	})
	if !maps.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}

// causesOf returns the causes of the latest violation of a bucket, as text; "" if there is none.
func causesOf(b inspect.ConformanceBucket) string {
	over := b.Hours[len(b.Hours)-1].Over
	if over == nil {
		return ""
	}
	text := fmt.Sprintf("%d of %d", over.Took, over.Allowed)
	for _, cause := range over.Causes {
		text += ", " + string(cause.What)
		if cause.Actor != "" {
			text += fmt.Sprintf(" by %s (%s)", cause.Actor, cause.Reason)
		}
		if cause.Before != "" {
			text += fmt.Sprintf(": %s to %s", cause.Before, cause.After)
		}
	}
	return text
}

// TestEndOfAnOverrideIsNamed: what an override allowed until it ended explains why its limit was exceeded afterwards.
func TestEndOfAnOverrideIsNamed(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, counted(quota("calls", 3, func(l *limits.Limit) { l.Per = []string{"tenant"} })), nil)
	change := limits.Change{Rate: &throttle.Rate{Count: 6, Period: 1000 * time.Hour}}
	r.override(t, "a", "calls", change)
	r.enqueue(t, "a", 8)
	r.run(t)
	until(t, "counted", func() bool {
		got, _ := r.conformance(t)
		return slices.Equal(got, []string{"calls tenant=a: 6 of 6"})
	})
	ends := operate.Override{Change: change, Until: time.Now().Add(time.Second), Reason: "it goes well", Actor: "bob"}
	if err := operate.SetOverride(t.Context(), r.server.Client(), r.queue, "a", "calls", ends); err != nil {
		t.Fatal(err)
	}
	until(t, "ended", func() bool { return r.inForce(t, "a")["calls"].From == "queue" })
	if _, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.RunNow, operate.Filter{Tenant: "a"}, ann, nil); err != nil {
		t.Fatal(err)
	}
	const want = "8 of 6, run by ann (the campaign was a mistake), ended by bob (it goes well): 6/1000h0m0s to "
	var got string
	until(t, "named", func() bool {
		_, c := r.conformance(t)
		got = causesOf(c.Buckets[0])
		return strings.HasPrefix(got, "8")
	})
	if got != want {
		t.Errorf("%q; want %q", got, want)
	}
}

// TestLossIsNamed: after what was used of a limit was lost, a program that did not know of it lets calls go again. That
// explains why the limit was exceeded, as soon as one that did know has noticed it.
func TestLossIsNamed(t *testing.T) {
	t.Parallel()
	set := counted(quota("calls", 3, nil))
	r := startRig(t, -1, set, nil)
	client := r.server.Client()
	calls := func(c *Client) {
		t.Helper()
		for range 3 {
			p, err := c.Take(t.Context(), r.call("a"))
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	calls(r.client)
	lost := redistest.Keys(t, client, store.Key(r.queue, "b:*"))
	if len(lost) != 1 {
		t.Fatalf("the buckets are %v; want one", lost)
	}
	client.Del(t.Context(), lost[0], store.Key(r.queue, "limits"))
	before := client.Time(t.Context()).Val()
	set.Queues = map[string]limits.Queue{r.queue: set.Queues[""]}
	if err := operate.Publish(t.Context(), client, set); err != nil {
		t.Fatal(err)
	}
	after := client.Time(t.Context()).Val()
	calls(NewClient(client))
	if _, err := r.client.Take(t.Context(), r.call("a")); err == nil {
		t.Fatal("a seventh call went")
	}
	r.run(t)
	var c inspect.Conformance
	until(t, "counted", func() bool {
		var got []string
		got, c = r.conformance(t)
		return slices.Equal(got, []string{"calls: 6 of 3"})
	})
	if got := causesOf(c.Buckets[0]); got != "6 of 3, lost" {
		t.Errorf("%q; want the loss", got)
	} else if at := c.Buckets[0].Hours[0].Over.Causes[0].At; at.Before(before) || at.After(after) {
		t.Errorf("it was lost at %v; want the time between %v and %v, when limits were published again", at, before, after)
	}
	client.HDel(t.Context(), store.Key(r.queue, "faults"), "lost limits")
}

// TestLoweredLimitOfAGroupIsNamed: it explains why the group exceeded it, however many tenants the group has.
func TestLoweredLimitOfAGroupIsNamed(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, counted(), nil)
	publish := func(ofLarge int64) {
		t.Helper()
		set := counted(quota("group", 10, func(l *limits.Limit) { l.Per = []string{limits.GroupAttribute} }))
		set.Queues[r.queue] = set.Queues[""]
		delete(set.Queues, "")
		change := limits.Change{Rate: &throttle.Rate{Count: ofLarge, Period: 1000 * time.Hour}}
		set.Groups = map[string]limits.Group{"large": {Limits: map[string]map[string]limits.Change{r.queue: {"group": change}}}, "small": {}}
		set.Tenants = map[string]limits.Tenant{"z": {Group: "small"}}
		for i := range 150 { // more than an entry of the audit has differences
			set.Tenants[fmt.Sprintf("t%d", i)] = limits.Tenant{Group: "large"}
		}
		if err := operate.PublishBy(t.Context(), r.server.Client(), set, ann); err != nil {
			t.Fatal(err)
		}
	}
	publish(3)
	r.enqueue(t, "t149", 4)
	r.run(t)
	until(t, "counted", func() bool {
		got, _ := r.conformance(t)
		return slices.Equal(got, []string{"group group=large: 3 of 3"})
	})
	publish(2)
	if _, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.RunNow, operate.Filter{Tenant: "t149"}, ann, nil); err != nil {
		t.Fatal(err)
	}
	var over *inspect.Violation
	until(t, "counted again", func() bool {
		_, c := r.conformance(t)
		over = c.Buckets[0].Hours[len(c.Buckets[0].Hours)-1].Over
		return over != nil && over.Took == 4
	})
	if !slices.ContainsFunc(over.Causes, func(c inspect.Cause) bool {
		return c.What == inspect.CausedByChange && c.Actor == "ann" && c.Before == "3/1000h0m0s" && c.After == "2/1000h0m0s"
	}) {
		t.Errorf("the causes are %+v; want the lowered limit among them", over.Causes)
	}
}

// TestRecoveryBesideDamagedLimits: a job of a worker that died comes back, also if nobody can say whether the queue counts
// calls.
func TestRecoveryBesideDamagedLimits(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, counted(quota("calls", 1000, nil)), nil)
	id := r.add(t, nil)
	d := r.dispatcher()
	r.release(t, d, 1)
	until(t, "its slot has come", func() bool {
		var earliest int64
		_, err := fmt.Sscan(r.field(t, id, "hg_slot"), &earliest)
		return err == nil && r.server.Client().Time(t.Context()).Val().UnixMicro() > earliest
	})
	r.server.Client().HSet(t.Context(), store.Key(r.queue, "limits"), "*", "damaged")
	r.takeOver(t, id)
	if state := r.field(t, id, "state"); state != "aggregating" {
		t.Errorf("it is %q", state)
	}
	r.server.Client().HDel(t.Context(), store.Key(r.queue, "faults"), "lane a;kind=call", "job "+id, "limits", "queue", "script")
}
