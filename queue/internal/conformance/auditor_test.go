package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// told is a call that a test tells auditors of.
type told struct {
	tenant, model string
	endpoint      string
	at, cost      int64
	tokens        int64
	direct, back  bool
	waited        string // "@MS"
}

// counted returns what the record of a call has because its queue counts calls.
func (c told) counted() (taken, attributes string) {
	taken = "1"
	if c.cost != 1 || c.tokens > 0 {
		taken = fmt.Sprintf("%d;tokens=%d;tokens=9", c.cost, c.tokens)
	}
	if c.waited != "" {
		taken = strings.TrimPrefix(taken, "1") + c.waited
	}
	if c.back {
		taken = "-" + taken
	}
	switch {
	case c.model != "":
		attributes = "model=" + rediskey.Escape(c.model)
	case c.endpoint != "":
		attributes = limits.EndpointAttribute + "=" + rediskey.Escape(c.endpoint)
	}
	return taken, attributes
}

// audited is a queue whose calls a test writes into its events.
type audited struct {
	t      testing.TB
	client redis.UniversalClient
	of     partition.Layout
	rules  []limits.Limit
}

func startAudited(t testing.TB, partitions int, rules ...limits.Limit) *audited {
	t.Helper()
	a := &audited{t, redistest.Shared(t).Client(), partition.Layout{Queue: redistest.Queue(t), N: partitions}, rules}
	for _, home := range a.of.Names() {
		a.publish(home, rules)
	}
	return a
}

// publish puts limits into effect in a partition.
func (a *audited) publish(home string, rules []limits.Limit) {
	a.t.Helper()
	q := effective.Queue{Conformance: true}
	for _, rule := range rules {
		q.Limits = append(q.Limits, effective.Store(rule))
	}
	text, err := json.Marshal(q)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := a.client.HSet(a.t.Context(), store.Key(home, "limits"), "*", text).Err(); err != nil {
		a.t.Fatal(err)
	}
}

// event writes runs into the events of the partition of the tenant of the first, as record.lua does.
func (a *audited) event(reason string, calls ...told) {
	a.t.Helper()
	const id = "b8b7c7a4-1c7e-4f0e-9d57-6f2f3c0a7b61"
	values := []string{"1", strings.Join([]string{id, "call", "a", "archived  1 0 0 0 1   too late"}, "\t")}           // made no call
	values = append(values, "2", strings.Join([]string{id, "call", "a", "done ok 1 1795824003000000 9 0 0   "}, "\t")) // before calls were counted
	for i, c := range calls {
		outcome := "done ok"
		if c.direct {
			outcome = store.Direct + " "
		}
		taken, attributes := c.counted()
		run := fmt.Sprintf("%s 1 %d 10 0 0 %s %s %s", outcome, c.at, taken, attributes, reason)
		values = append(values, strconv.Itoa(i+3), strings.Join([]string{id, "call", rediskey.Escape(c.tenant), run}, "\t"))
	}
	if err := a.client.XAdd(a.t.Context(), &redis.XAddArgs{Stream: store.Key(a.of.Home(calls[0].tenant), "events"), Values: values}).Err(); err != nil {
		a.t.Fatal(err)
	}
}

// hours returns what is kept, by day and bucket.
func (a *audited) hours(day int64) map[string]string {
	a.t.Helper()
	all, err := a.client.HGetAll(a.t.Context(), HoursKey(a.of.Queue, day)).Result()
	if err != nil {
		a.t.Fatal(err)
	}
	return all
}

// want computes the hours of a day from all calls at once.
func (a *audited) want(day int64, calls []told) map[string]string {
	a.t.Helper()
	all := map[string]Hours{}
	for i := range a.rules {
		rule := &a.rules[i]
		of, ok := RuleOf(*rule, effective.Spec(*rule), day*Day, day*Day+Day)
		if !ok {
			a.t.Fatalf("%s has no windows", rule.Name)
		}
		taken := map[string][]Call{}
		for _, c := range calls {
			n := c.cost
			if rule.Unit != "" {
				n = c.tokens
			}
			if n == 0 || rule.For == limits.Jobs && c.direct || rule.For == limits.Direct && !c.direct {
				continue
			}
			var values []string
			for _, attr := range rule.Per {
				values = append(values, rediskey.Escape(map[string]string{"tenant": c.tenant, "model": c.model}[attr]))
			}
			name := rule.Name + ":" + strings.Join(values, ";")
			taken[name] = append(taken[name], Call{c.at, n})
		}
		for name, calls := range taken {
			for _, end := range calls {
				var n int64
				for _, c := range calls {
					if c.At <= end.At && c.At >= of.begin(end.At) {
						n += c.N
					}
				}
				if end.At/Day == day {
					if all[name] == nil {
						all[name] = Hours{}
					}
					all[name].note(end.At, n, of.allowed(end.N))
				}
			}
		}
	}
	texts := map[string]string{}
	for name, hours := range all {
		texts[name] = hours.String()
	}
	return texts
}

func (a *audited) count(auditors ...*Auditor) {
	a.t.Helper()
	for _, auditor := range auditors {
		if err := auditor.Count(a.t.Context()); err != nil {
			a.t.Fatal(err)
		}
	}
}

var day = 24 * time.Hour

// rulesOfAll has a limit of each kind that says something about calls in a window.
var rulesOfAll = []limits.Limit{
	{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(3), Burst: 2, Per: []string{"tenant"}},
	{Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.Rate{Count: 20, Period: time.Minute}, Capacity: 10},
	{Name: "log", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 5, Period: 3 * time.Hour}, Per: []string{"tenant", "model"}},
	{Name: "counter", Algorithm: throttle.SlidingWindowCounter, Rate: throttle.Rate{Count: 5, Period: time.Hour}},
	{Name: "tokens", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 50, Period: time.Hour}, Unit: "tokens", Per: []string{"tenant"}},
	{Name: "daily", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 100, Period: day}, Location: time.UTC},
	{Name: "jobs", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(3), Burst: 2, For: limits.Jobs},
	{Name: "direct", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(3), Burst: 2, For: limits.Direct},
}

// TestAuditorsTakeTurns: whoever counts, with calls that become known late and in any order, and auditors that begin
// in between, each hour has what all calls at once give, for limits of all kinds and in all partitions.
func TestAuditorsTakeTurns(t *testing.T) {
	t.Parallel()
	a := startAudited(t, 3, rulesOfAll...)
	random := rand.New(rand.NewPCG(1, 2))
	auditors := []*Auditor{NewAuditor(a.of, a.client), NewAuditor(a.of, a.client)}
	now := time.Now().Truncate(day).UnixMicro() + 5*hour // all of it on one day: TestMidnight is about two
	var calls []told
	for range 60 {
		now += random.Int64N(hour / 4) // what was before is counted
		for range random.IntN(12) {
			now += []int64{0, 1, 300_000, 10e6, 40e6}[random.IntN(5)]
			c := told{
				tenant: []string{"a", "b c", "é;x"}[random.IntN(3)], model: []string{"", "m", "n:1"}[random.IntN(3)],
				at: now - random.Int64N(Late/3), cost: 1, direct: random.IntN(4) == 0,
			}
			if random.IntN(3) == 0 {
				c.cost, c.tokens = 1+random.Int64N(3), random.Int64N(30)
			}
			calls = append(calls, c)
			a.event("why not", c)
		}
		if random.IntN(5) == 0 { // a worker that begins
			auditors[random.IntN(2)] = NewAuditor(a.of, a.client)
		}
		next := auditors[random.IntN(2)]
		a.count(next, next) // one that the other was faster than notices it at first
	}
	today := now / Day
	got, want := a.hours(today), a.want(today, calls)
	if len(want) < 15 || len(got) != len(want) {
		t.Errorf("%d buckets are kept; want %d", len(got), len(want))
	}
	for name, hours := range want {
		if got[name] != hours {
			t.Errorf("%s: %s; want %s", name, got[name], hours)
		}
	}
}

// TestMidnight: a call that becomes known after midnight counts in the windows of both days.
func TestMidnight(t *testing.T) {
	t.Parallel()
	a := startAudited(t, 1, limits.Limit{Name: "log", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 5, Period: time.Hour}})
	midnight := time.Now().Truncate(day).UnixMicro()
	calls := []told{{tenant: "a", at: midnight - 2e6, cost: 1}, {tenant: "a", at: midnight + 3e6, cost: 1}, {tenant: "a", at: midnight - 1e6, cost: 1}}
	for _, c := range calls {
		a.event("", c)
		a.count(NewAuditor(a.of, a.client), NewAuditor(a.of, a.client))
	}
	for _, of := range []int64{midnight/Day - 1, midnight / Day} {
		if got, want := a.hours(of), a.want(of, calls); len(want) != 1 || !maps.Equal(got, want) {
			t.Errorf("day %d: %v; want %v", of, got, want)
		}
	}
}

// TestCallsOfGroups: calls of a group's tenants count together under a limit per group, and those of others do not.
func TestCallsOfGroups(t *testing.T) {
	t.Parallel()
	a := startAudited(t, 1, limits.Limit{Name: "group", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Burst: 2, Per: []string{limits.GroupAttribute}})
	for _, tenant := range []string{"a", "b"} {
		if err := a.client.HSet(a.t.Context(), store.Key(a.of.Names()[0], "limits"), "t:"+tenant, `{"group":"r"}`).Err(); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now().UnixMicro()
	for _, tenant := range []string{"a", "b", "c", "b"} {
		a.event("", told{tenant: tenant, at: now, cost: 1})
	}
	auditor := NewAuditor(a.of, a.client)
	auditor.entries = 1 // so that the limits of c are read when those of b are known already
	a.count(auditor)
	hours := a.hours(now / Day)
	if of := ParseHours(hours["group:r"]); len(of) != 1 || len(hours) != 1 {
		t.Fatalf("hours: %v", hours)
	} else {
		for _, hour := range of {
			if hour.Most != 3 {
				t.Errorf("%d calls of the group, want 3", hour.Most)
			}
		}
	}
}

// TestMissedCalls: calls that come too late, or whose events are gone, are said to be missing.
func TestMissedCalls(t *testing.T) {
	t.Parallel()
	a := startAudited(t, 1, limits.Limit{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Burst: 2, Per: []string{"tenant"}})
	auditor, now := NewAuditor(a.of, a.client), time.Now().UnixMicro()
	missed := func() (n int64) {
		for _, h := range ParseHours(a.hours(time.Now().UnixMicro() / Day)[Missed]) {
			n += h.Most
		}
		return n
	}
	a.event("", told{tenant: "a", at: now, cost: 1})
	a.event("", told{tenant: "a", at: now - Late, cost: 1})
	a.count(auditor)
	if n := missed(); n != 0 {
		t.Fatalf("%d calls are missed", n)
	}
	a.event("", told{tenant: "a", at: now - Late - 1, cost: 1})
	a.count(auditor)
	if n := missed(); n != 1 {
		t.Fatalf("%d calls are missed; want 1", n)
	}
	a.event("", told{tenant: "a", at: now, cost: 1})
	a.event("", told{tenant: "a", at: now, cost: 1})
	a.client.XTrimMaxLen(t.Context(), store.Key(a.of.Queue, "events"), 1)
	a.count(auditor)
	if n := missed(); n != 2 {
		t.Fatalf("%d times calls are missed; want 2", n)
	}
	a.client.Del(t.Context(), store.Key(a.of.Queue, "events"))
	a.count(auditor)
	a.event("", told{tenant: "a", at: now, cost: 1})
	a.count(auditor)
	if got := a.hours(now / Day)["tenant:a"]; missed() != 3 || !strings.HasSuffix(got, " 3 2") && !strings.Contains(got, " 3 2 ") {
		t.Errorf("missed %d times, and kept %q", missed(), got)
	}
}

// TestWhatIsKeptIsBounded: of each bucket its windows are kept, once, and for no longer than they count.
func TestWhatIsKeptIsBounded(t *testing.T) {
	t.Parallel()
	a := startAudited(t, 1, limits.Limit{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Burst: 2, Per: []string{"tenant"}})
	auditor, at := NewAuditor(a.of, a.client), time.Now().UnixMicro()
	key := sentKey(a.of.Queue, "tenant:a")
	for i := range 400 {
		a.event("", told{tenant: "a", at: at + int64(i)*10e6, cost: 1})
		if i%10 == 9 {
			a.count(auditor)
		}
		if n := a.client.StrLen(t.Context(), key).Val(); n > 3*91*4+256+40 {
			t.Fatalf("%d bytes after %d calls", n, i+1)
		}
	}
	if left := a.client.PTTL(t.Context(), key).Val(); left <= Late*time.Microsecond || left > 2*Late*time.Microsecond+2*time.Second {
		t.Errorf("the calls are kept for %v", left)
	}
	if left := a.client.TTL(t.Context(), HoursKey(a.of.Queue, at/Day)).Val(); left < 31*day || left > 32*day {
		t.Errorf("the hours are kept for %v", left)
	}
	auditor.now = time.UnixMicro(at + 4000e6 + 2*Late)
	auditor.tidy()
	if len(auditor.buckets) != 1 || auditor.buckets[Missed] == nil {
		t.Errorf("%d buckets in memory", len(auditor.buckets))
	}
}

// TestUnreadableCalls: what cannot be read is said to be missing, and all else is counted.
func TestUnreadableCalls(t *testing.T) {
	t.Parallel()
	a := startAudited(t, 1, limits.Limit{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Burst: 2, Per: []string{"tenant"}})
	now := time.Now().UnixMicro()
	for _, run := range []string{"1 a=b\nc=d ", "1;x=1 model=\x01", "x  ", "1;tokens=1\n  ", "99999999999999999999  ", "-- ", "", "1"} {
		text := fmt.Sprintf("id\tcall\ta\tdone ok 1 %d 10 0 0 %s why not", now, run)
		if err := a.client.XAdd(t.Context(), &redis.XAddArgs{Stream: store.Key(a.of.Queue, "events"), Values: []string{"1", text}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	a.event("", told{tenant: "b", at: now, cost: 1})
	auditor := NewAuditor(a.of, a.client)
	a.count(auditor)
	hours := a.hours(now / Day)
	if hours["tenant:b"] == "" || !strings.Contains(hours[Missed], " 6 0") {
		t.Errorf("%v", hours)
	}
	a.count(auditor)
	if again := a.hours(now / Day); !maps.Equal(again, hours) {
		t.Errorf("%v, and then %v", hours, again)
	}
}

// TestLimitThatChanged: a window is compared with the limit of its time, also if a call in it becomes known later.
func TestLimitThatChanged(t *testing.T) {
	t.Parallel()
	rule := limits.Limit{Name: "log", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 20, Period: time.Minute}}
	a := startAudited(t, 1, rule)
	auditor := NewAuditor(a.of, a.client)
	now := func() int64 { return a.client.Time(t.Context()).Val().UnixMicro() }
	began := now() - 5*60e6
	for i := range int64(19) {
		a.event("", told{tenant: "a", at: began + i, cost: 1})
	}
	a.count(auditor)
	rule.Rate.Count = 5
	a.publish(a.of.Queue, []limits.Limit{rule})
	a.event("", told{tenant: "a", at: began - 1, cost: 1})
	a.count(auditor) // which learns of the change
	is := func() (all string) {
		for day := began / Day; day <= now()/Day; day++ {
			all += a.hours(day)["log:"]
		}
		return all
	}
	if got := is(); !strings.HasSuffix(got, " 20 20") {
		t.Errorf("after the change: %q", got)
	}
	for range 6 {
		a.event("", told{tenant: "a", at: now(), cost: 1})
	}
	a.count(auditor)
	if got := is(); !strings.HasSuffix(got, " 6 5") {
		t.Errorf("with more than the new limit: %q", got)
	}
}

// TestLimitThatWasRaised: a window is compared with the limit of its time, not with a larger one that came later.
func TestLimitThatWasRaised(t *testing.T) {
	t.Parallel()
	rule := limits.Limit{Name: "log", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 2, Period: time.Minute}}
	a := startAudited(t, 1, rule)
	auditor, at := NewAuditor(a.of, a.client), a.client.Time(t.Context()).Val().UnixMicro()-5*60e6
	for i := range int64(2) {
		a.event("", told{tenant: "a", at: at + i, cost: 1})
	}
	a.count(auditor)
	rule.Rate.Count = 20
	a.publish(a.of.Queue, []limits.Limit{rule})
	a.event("", told{tenant: "a", at: at - 1, cost: 1})
	a.count(auditor)
	var got strings.Builder
	for _, day := range []int64{at/Day - 1, at / Day} {
		got.WriteString(a.hours(day)["log:"])
	}
	if !strings.HasSuffix(got.String(), " 3 2") {
		t.Errorf("%q", got.String())
	}
}

// TestCallsThatEndLateAfterARaise: what a raised limit allowed was allowed, even if calls of other tenants were counted
// before these calls ended.
func TestCallsThatEndLateAfterARaise(t *testing.T) {
	t.Parallel()
	rule := limits.Limit{Name: "tenant", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 2, Period: time.Minute}, Per: []string{"tenant"}}
	a := startAudited(t, 1, rule)
	auditor := NewAuditor(a.of, a.client)
	now := func() int64 { return a.client.Time(t.Context()).Val().UnixMicro() }
	a.event("", told{tenant: "a", at: now(), cost: 1})
	a.count(auditor)
	rule.Rate.Count = 20
	a.publish(a.of.Queue, []limits.Limit{rule})
	left := now()
	a.event("", told{tenant: "b", at: now(), cost: 1})
	a.count(auditor)
	for i := range int64(4) {
		a.event("", told{tenant: "a", at: left + i, cost: 1})
	}
	a.count(auditor)
	got := ""
	for day := left / Day; day <= (left+1e6)/Day; day++ {
		got += a.hours(day)["tenant:a"]
	}
	if !strings.HasSuffix(got, " 5 20") {
		t.Errorf("%q; want 5 of 20", got)
	}
}

// TestKeptCallsThatCannotBeRead: if one of the commands that read what is kept fails, nothing is written over it, and the
// calls are counted the next time.
func TestKeptCallsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	a := startAudited(t, 1, limits.Limit{Name: "log", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 2, Period: time.Hour}})
	now := time.Now().UnixMicro()
	a.event("", told{tenant: "a", at: now - 2, cost: 1})
	a.event("", told{tenant: "a", at: now - 1, cost: 1})
	a.count(NewAuditor(a.of, a.client))
	before := a.hours(now / Day)

	failing, client := "", redistest.Shared(t).Client()
	client.AddHook(redistest.OnRequest(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		err := send() // the first error: the first bucket has no calls
		for _, cmd := range slices.Backward(cmds) {
			if read, ok := cmd.(*redis.StringCmd); ok && len(cmds) > 1 && cmd.Name() == failing {
				read.SetVal("")
				read.SetErr(errors.New("the connection is lost"))
				break
			}
		}
		return err
	}))
	auditor := NewAuditor(a.of, client)
	a.event("", told{tenant: "a", at: now, cost: 1})
	for _, failing = range []string{"get", "hget"} {
		if err := auditor.Count(t.Context()); err == nil || !strings.Contains(err.Error(), "the connection is lost") {
			t.Errorf("the last %s of what is kept failed: %v", failing, err)
		}
		if got := a.hours(now / Day); !maps.Equal(got, before) {
			t.Errorf("%v, and before the last %s failed %v", got, failing, before)
		}
	}
	failing = ""
	a.count(auditor)
	if got := a.hours(now / Day)["log:"]; !strings.HasSuffix(got, " 3 2") {
		t.Errorf("%q", got)
	}
}

// TestKeptCallsThatExpired: after an idle time Redis has forgotten the calls of a bucket, and the worker has not.
func TestKeptCallsThatExpired(t *testing.T) {
	t.Parallel()
	a := startAudited(t, 1, limits.Limit{Name: "log", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 2, Period: time.Hour}})
	auditor, now := NewAuditor(a.of, a.client), time.Now().UnixMicro()
	a.event("", told{tenant: "a", at: now - 2, cost: 1})
	a.count(auditor)
	a.client.Del(t.Context(), sentKey(a.of.Queue, "log:"))
	auditor.buckets["log:"].lasts = now - 1
	a.event("", told{tenant: "a", at: now - 1, cost: 1})
	a.count(auditor)
	a.event("", told{tenant: "a", at: now, cost: 1})
	a.count(NewAuditor(a.of, a.client))
	if got := a.hours(now / Day)["log:"]; !strings.HasSuffix(got, " 3 2") {
		t.Errorf("%q", got)
	}
}

// TestCountedAgain: events of a time in which calls were not counted are not missed.
func TestCountedAgain(t *testing.T) {
	t.Parallel()
	a := startAudited(t, 1, limits.Limit{Name: "log", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 2, Period: time.Hour}})
	auditor, now := NewAuditor(a.of, a.client), time.Now().UnixMicro()
	a.event("", told{tenant: "a", at: now - 1, cost: 1})
	a.count(auditor)
	a.event("", told{tenant: "a"}) // not counted: below it has no more than this
	a.client.XTrimMaxLen(t.Context(), store.Key(a.of.Queue, "events"), 0)
	run := fmt.Sprintf("id\tcall\ta\tdone ok 1 %d 10 0 0   ", now)
	a.client.XAdd(t.Context(), &redis.XAddArgs{Stream: store.Key(a.of.Queue, "events"), Values: []string{"1", run}})
	a.event("", told{tenant: "a", at: now, cost: 1})
	a.count(auditor)
	if got := a.hours(now / Day); got[Missed] != "" || !strings.HasSuffix(got["log:"], " 2 2") {
		t.Errorf("%v", got)
	}
}

// TestManyBuckets: if many buckets change with few calls, fewer are counted at a time.
func TestManyBuckets(t *testing.T) {
	t.Parallel()
	a := startAudited(t, 1, limits.Limit{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Per: []string{"tenant"}},
		limits.Limit{Name: "other", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Per: []string{"tenant"}})
	auditor, now := NewAuditor(a.of, a.client), time.Now().UnixMicro()
	for i := range 200 {
		var calls []told
		for k := range 6 {
			calls = append(calls, told{tenant: fmt.Sprintf("t%d", i*6+k), at: now, cost: 1})
		}
		a.event("", calls...)
	}
	a.count(auditor)
	if got := a.hours(now / Day); len(got) != 2400 || auditor.entries > 50 {
		t.Errorf("%d buckets, and %d entries at a time", len(got), auditor.entries)
	}
	for range 10 {
		a.event("", told{tenant: "t1", at: now, cost: 1})
		a.count(auditor)
	}
	if auditor.entries != mostEntries {
		t.Errorf("%d entries at a time", auditor.entries)
	}
}
