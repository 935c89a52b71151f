package faults

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/law"
	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/stage"
)

var all = flag.Bool("all", false, "run every scenario, not only the shortest")

const tenant = "acme"

// scenario is a fault under load, and what is promised about it.
type scenario struct {
	name, fault string // as in docs/reliability.md
	quick       bool   // runs without -all

	limits  string        // the limits file; "": rate per second for each tenant
	rate    float64       // 0: 100 calls a second
	burst   int           // 0: 1
	jobs    int           // waiting before the fault; 0: 1,000
	latency time.Duration // of the receiver
	workers int           // 0: 2
	env     []string      // of the workers
	redis   []string      // of Redis
	struck  bool          // the fault strikes all calls of the receiver, so the pacer has another one

	start  func(*show) *redistest.Server // starts Redis; nil: as usual
	before func(*show)                   // the workers do not run yet
	fleet  func(*show)                   // starts the workers; nil: as usual
	strike func(*show)                   // returns when the fault is over
	after  func(*show)                   // when all jobs have ended

	promise promise
}

// promise is what is promised beside these: nothing that was acknowledged is lost, a job that is called
// more than once was under way at the fault and has the same key each time, and no limit is exceeded.
type promise struct {
	wiped    bool          // all that Redis had is lost, and nothing that it accepts after that
	lost     int           // most acknowledged jobs that may be lost
	forgets  time.Duration // what Redis was told in so much time before the fault is lost
	twice    int           // most jobs that may be called more than once
	flows    time.Duration // until calls are made at half of the limit again; 0: 5 s
	again    time.Duration // until the first job under way at the fault is called again, if any was; 0: nothing is promised
	over     int           // calls beyond the limit in a window
	used     float64       // least part of the limit used during the fault; 0: nothing is promised
	archived int           // jobs that end without a call that was accepted
	unended  bool          // the test does not wait until all jobs have ended: others are in a lane, pending or active
}

// show is a scenario under way.
type show struct {
	*stage.Stage
	scenario
	relay         *redistest.Relay
	clock         *redistest.Clock
	program       string // of workers that are not as usual
	began, healed time.Time
	ids           []string             // of jobs sent by the scenario
	asked         map[string]time.Time // when the last request to accept a job began, by its id
	busy          string               // why the times of this run prove nothing; "": they do
}

// heal notes that the fault is over, or the last one of several. Without it, that is when strike returns.
func (x *show) heal() { x.healed = time.Now() }

// run returns the row of the scenario, or why the machine was too busy to measure it.
func (sc scenario) run(t *testing.T) (row, busy string) {
	if sc.rate == 0 {
		sc.rate = 100
	}
	if sc.burst == 0 {
		sc.burst = 1
	}
	if sc.jobs == 0 {
		sc.jobs = 1000
	}
	if sc.workers == 0 {
		sc.workers = 2
	}
	if sc.promise.flows == 0 {
		sc.promise.flows = 5 * time.Second
	}
	if sc.limits == "" {
		sc.limits = fmt.Sprintf(`queues: {webhook: {kinds: [webhook], limits: [{name: tenant, per: [tenant], algorithm: token_bucket, rate: %v/s, burst: %d}]}}`, sc.rate, sc.burst)
	}
	x := &show{scenario: sc, Stage: &stage.Stage{T: t}, asked: map[string]time.Time{}}
	var server *redistest.Server
	if sc.start != nil {
		server = sc.start(x)
	} else {
		server = redistest.Start(t, sc.redis...)
	}
	x.Stage = stage.Bare(t, sc.limits, server)
	x.Receive()
	if sc.latency > 0 {
		x.Order(fmt.Sprintf("/slow?ms=%d", sc.latency.Milliseconds()))
	}
	if sc.before != nil {
		sc.before(x)
	}
	x.send(tenant, sc.jobs, "")
	paced := x.Stage
	if sc.struck {
		paced = &stage.Stage{T: t, Bin: x.Bin}
		paced.Receive()
	}
	paces := pacer.Beside(t, paced.Calls, func() []pacer.Call { return paced.Paced("/calls") })
	if sc.fleet != nil {
		sc.fleet(x)
	} else {
		for range sc.workers {
			x.Worker(sc.env...)
		}
	}
	live := x.produce()
	x.Wait(tenant, int(2*sc.rate+sc.rate*sc.latency.Seconds()), 60*time.Second)

	x.began = time.Now()
	sc.strike(x)
	if x.healed.IsZero() {
		x.heal()
	}
	time.Sleep(3 * time.Second) // new jobs are accepted after the fault, too
	live.end()
	if !sc.promise.unended {
		x.end(4 * time.Minute)
	}
	if sc.after != nil {
		sc.after(x)
	}

	var placed map[string]bool
	if sc.promise.unended {
		placed = x.placed() // before the log is read: a job that has no place any more is in it
	}
	calls := x.Stage.Log()
	a, err := settleAccount(t.Context(), server.Client(), slices.Concat(x.ids, live.accepted), live.unknown, calls)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(x.asked, live.asked)
	x.judge(a, placed)
	// Until the last call: the receiver is busy with the list after that.
	row = x.measure(calls, a, paces(calls[0].At, calls[len(calls)-1].At))
	t.Log(row, x.busy)
	return row, x.busy
}

// send enqueues jobs before or during the fault with `enqueue bulk`.
func (x *show) send(tenant string, n int, fields string) {
	x.T.Helper()
	asked := time.Now()
	x.Bulk(x.Jobs(tenant, n, fields))
	for i := range n {
		id := fmt.Sprintf("%s:%s-%d", tenant, tenant, i)
		x.ids = append(x.ids, id)
		x.asked[id] = asked
	}
}

// sendAgain enqueues jobs that were sent before, with the same keys.
func (x *show) sendAgain(tenant string, n int) {
	x.T.Helper()
	asked := time.Now()
	x.Send(x.Jobs(tenant, n, ""))
	for i := range n {
		x.asked[fmt.Sprintf("%s:%s-%d", tenant, tenant, i)] = asked
	}
}

// end waits until nothing waits, or is under way.
func (x *show) end(limit time.Duration) {
	x.T.Helper()
	client := x.Redis.Client()
	x.Until(limit, "all jobs have ended", func() bool {
		waiting, err := client.Eval(x.T.Context(), `local n = 0
for _, lane in ipairs(redis.call('SMEMBERS', KEYS[1])) do n = n + redis.call('ZCARD', 'asynq:{webhook}:g:' .. lane) end
return n + redis.call('LLEN', KEYS[2]) + redis.call('LLEN', KEYS[3]) + redis.call('ZCARD', KEYS[4]) + redis.call('ZCARD', KEYS[5])`,
			[]string{"asynq:{webhook}:groups", "asynq:{webhook}:pending", "asynq:{webhook}:active", "asynq:{webhook}:retry", "asynq:{webhook}:scheduled"}).Int()
		return err == nil && waiting == 0
	})
}

// placed returns the ids of jobs that wait in a lane or for a worker, or that a worker has.
func (x *show) placed() map[string]bool {
	x.T.Helper()
	ids, err := x.Redis.Client().Eval(x.T.Context(), `local all = {}
local function add(ids) for _, id in ipairs(ids) do all[#all + 1] = id end end
for _, lane in ipairs(redis.call('SMEMBERS', KEYS[1])) do add(redis.call('ZRANGE', 'asynq:{webhook}:g:' .. lane, 0, -1)) end
add(redis.call('LRANGE', KEYS[2], 0, -1))
add(redis.call('LRANGE', KEYS[3], 0, -1))
return all`, []string{"asynq:{webhook}:groups", "asynq:{webhook}:pending", "asynq:{webhook}:active"}).StringSlice()
	if err != nil {
		x.T.Fatal(err)
	}
	placed := map[string]bool{}
	for _, id := range ids {
		placed[id] = true
	}
	return placed
}

// judge compares the account with the promise. Only jobs that the test does not wait for may be placed instead of called.
func (x *show) judge(a account, placed map[string]bool) {
	x.T.Helper()
	few := func(ids []string) string { return strings.Join(ids[:min(len(ids), 5)], ", ") }
	lost := slices.Clone(a.lost)
	if x.promise.wiped {
		lost = slices.DeleteFunc(lost, func(id string) bool { return x.asked[id].Before(x.healed) })
	}
	if len(lost) > x.promise.lost {
		x.T.Errorf("%d acknowledged jobs were not called and are not in Redis, at most %d may: %s", len(lost), x.promise.lost, few(lost))
	}
	if len(a.keys) > 0 {
		x.T.Errorf("%d jobs were called with different idempotency keys: %s", len(a.keys), few(a.keys))
	}
	if len(a.strange) > 0 {
		x.T.Errorf("%d jobs were called that nobody sent: %s", len(a.strange), few(a.strange))
	}
	if len(a.again) > x.promise.twice {
		x.T.Errorf("%d jobs were called more than once, at most %d may", len(a.again), x.promise.twice)
	}
	// Under way is a job whose call had not been settled when the fault began, or began before its end.
	from, to := x.began.Add(-x.latency-time.Second-x.promise.forgets), x.healed.Add(time.Second)
	if x.promise.wiped {
		from = time.Time{} // what is sent again is new to a Redis without its data
	}
	for id, calls := range a.again {
		for _, call := range calls[:len(calls)-1] {
			if call.At.Before(from) || call.At.After(to) {
				x.T.Errorf("%s was called again, although its call %v after the begin of the fault was not under way: %v", id, call.At.Sub(x.began), calls)
				return
			}
		}
	}
	for state, ids := range a.elsewhere {
		if x.promise.unended {
			ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return placed[id] })
			if len(ids) > 0 {
				x.T.Errorf("%d jobs were not called, and are neither in a lane, nor pending or active. Their state is %s: %s", len(ids), state, few(ids))
			}
		} else if state != "archived" || len(ids) > x.promise.archived {
			x.T.Errorf("%d jobs were not called, they are %s: %s", len(ids), state, few(ids))
		}
	}
}

// measure returns the row of the scenario. A call may be as late as the pacer was at that moment.
func (x *show) measure(calls []sandbox.Call, a account, paced pacer.Calls) string {
	x.T.Helper()
	wrong := x.T.Errorf
	if late, behind := paced.Latest(), paced.Behind(); late > pacer.Starved || behind > pacer.Busy {
		x.busy = fmt.Sprintf("machine too busy: the pacer's calls were up to %v late, and %.1f %% of them later than %v", late, 100*behind, pacer.Bound)
		wrong = x.T.Logf
	}
	// Each tenant has the limit of the scenario for itself.
	of := map[string][]time.Time{}
	for _, call := range calls {
		of[call.Tenant] = append(of[call.Tenant], call.At)
	}
	early := time.Duration(math.MinInt64)
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if busy, err := x.law(of[name], paced); err != nil {
			x.T.Errorf("%s: %v", name, err)
		} else if busy != "" {
			x.busy = name + ": " + busy
			x.T.Log(x.busy)
		}
		excess := law.ExcessLate(of[name], x.rate, x.burst, paced.LateAt)
		early = max(early, time.Duration(excess/x.rate*float64(time.Second)))
		x.T.Logf("%d calls of %s were judged, at worst %.3f over the limit", len(of[name]), name, excess)
	}
	at := slices.SortedFunc(slices.Values(of[tenant]), time.Time.Compare)

	flows, ok := x.flowsAgain(at)
	if !ok {
		wrong("calls do not flow again")
	} else if flows > x.promise.flows {
		wrong("calls flow again after %v, promised are %v", flows, x.promise.flows)
	}
	until := x.healed.Add(flows)
	if least := x.began.Add(5 * time.Second); until.Before(least) {
		until = least // a fault of a moment
	}
	during := x.used(at, x.began, until)
	if during < x.promise.used {
		wrong("%.2f of the limit was used during the fault, promised is %.2f", during, x.promise.used)
	}
	took, err := x.tookAgain(a)
	if err != nil {
		wrong("%v", err)
	}
	lost := fmt.Sprintf("%d (≤ %d)", len(a.lost), x.promise.lost)
	if x.promise.wiped {
		lost = fmt.Sprint(len(a.lost), " (all that Redis had)")
	}
	promised := ""
	if x.promise.used > 0 {
		promised = fmt.Sprintf(" (≥ %.0f %%)", 100*x.promise.used)
	}
	return fmt.Sprintf("| %s | %d | %s | %d (≤ %d) | %.1f s (≤ %.0f s) | %s | %.0f %%%s | %.1f ms (≤ %.0f ms) | %.1f %% |\n",
		x.fault, a.acknowledged, lost, len(a.again), x.promise.twice, flows.Seconds(), x.promise.flows.Seconds(), took,
		100*during, promised, max(0, early.Seconds()*1000), x.tolerance().Seconds()*1000, 100*paced.Behind())
}

// law judges the calls of a tenant by its limit. If it is broken, err says so, or busy if delays of the machine can be the reason:
// the pacer was late, and no delay beyond its own, or beyond [pacer.Starved], is needed to explain it.
func (x *show) law(at []time.Time, paced pacer.Calls) (busy string, err error) {
	late := paced.Latest()
	err = law.CheckLate(at, x.rate, x.burst, x.tolerance(), paced.LateAt)
	if err == nil || late <= pacer.Bound || law.Check(at, x.rate, x.burst, max(late, pacer.Starved)+x.tolerance()) != nil {
		return "", err
	}
	return fmt.Sprintf("machine too busy: the pacer's calls were up to %v late; %v", late, err), nil
}

// tolerance is how much closer together calls may arrive than their limit allows.
func (x *show) tolerance() time.Duration {
	return pacer.Tolerance + time.Duration(float64(x.promise.over)/x.rate*float64(time.Second))
}

// tookAgain says how long after the fault the first job under way was called again. The last one may be called later by the
// time that all of them take at the limit. Where long calls are cut off, some were under way: if none was called
// again, the scenario has judged nothing.
func (x *show) tookAgain(a account) (string, error) {
	promised := x.promise.again
	if promised == 0 {
		return "-", nil
	}
	var after []time.Duration
	for _, of := range a.again {
		// Those called again before were cut off by an earlier part of the fault.
		if by := of[len(of)-1].At.Sub(x.healed); by > 0 {
			after = append(after, by)
		}
	}
	switch {
	case len(after) == 0 && x.latency >= time.Second:
		return "", errors.New("no job was called more than once, so the scenario says nothing about calls under way")
	case len(after) == 0:
		return "none was", nil
	}
	first, last := slices.Min(after), slices.Max(after)
	all := promised + time.Duration(float64(len(after))/x.rate*float64(time.Second))
	switch x.T.Logf("%d jobs under way were called again, from %v to %v after the fault (≤ %v)", len(after), first, last, all); {
	case first > promised:
		return "", fmt.Errorf("the first job under way was called again after %v, promised are %v", first, promised)
	case last > all:
		return "", fmt.Errorf("the last of %d jobs under way was called again after %v, promised are %v", len(after), last, all)
	}
	return fmt.Sprintf("%.1f s (≤ %.0f s)", first.Seconds(), promised.Seconds()), nil
}

// flowsAgain is how long after the fault it took until the calls of a second were half of the limit.
func (x *show) flowsAgain(at []time.Time) (after time.Duration, ok bool) {
	n := int(x.rate / 2)
	for i, t := range at {
		if !t.Before(x.healed) && i+n < len(at) && at[i+n].Sub(t) <= time.Second {
			return t.Sub(x.healed), true
		}
	}
	return 0, false
}

// used is the part of the limit that was used between two times.
func (x *show) used(at []time.Time, from, to time.Time) float64 {
	n := 0
	for _, t := range at {
		if !t.Before(from) && t.Before(to) {
			n++
		}
	}
	return float64(n) / x.rate / max(to.Sub(from).Seconds(), 1/x.rate)
}
