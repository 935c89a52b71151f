package queue

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// provider is a token bucket that its callers do not know.
type provider struct {
	mu      sync.Mutex
	rate    float64 // per second
	left    float64
	at      time.Time
	sent    []time.Time // calls that it admitted
	refused int
}

const providerBurst = 5

// take admits a call, or returns in how long it would. It returns what is left and the rate.
func (p *provider) take(now time.Time) (left, rate float64, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = min(p.left+p.rate*now.Sub(p.at).Seconds(), providerBurst)
	p.at = now
	if p.left < 1 {
		p.refused++
		return 0, p.rate, time.Duration((1 - p.left) / p.rate * 1e9)
	}
	p.left--
	p.sent = append(p.sent, now)
	return p.left, p.rate, 0
}

func (p *provider) set(rate float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = rate
}

// since returns the calls that were admitted from a moment on, and how many were refused in all.
func (p *provider) since(from time.Time) (sent []time.Time, refused int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.sent {
		if !at.Before(from) {
			sent = append(sent, at)
		}
	}
	return sent, p.refused
}

// adaptive starts a queue of 100/s under a provider's limit.
func adaptive(t *testing.T, p *provider, says bool) *rig {
	t.Helper()
	limit := sharedBy(100)
	limit.Adaptive = true
	r := startRig(t, -1, limitsOf(limit), nil)
	p.at = time.Now()
	r.answer = func(ctx context.Context, _ Running) error {
		left, rate, wait := p.take(time.Now())
		if says {
			if err := SetQuota(ctx, Quota{Limit: int64(rate * 60), Window: time.Minute, Remaining: new(int64(left))}); err != nil {
				return err
			}
		}
		if wait > 0 {
			return tooMany{after: max(wait, 200*time.Millisecond), account: true}
		}
		return nil
	}
	return r
}

// TestTimedQuota: a limit follows what the provider says, down at once and up as soon as it says so.
func TestTimedQuota(t *testing.T) {
	t.Parallel()
	measured(t, func(t *testing.T, run *pacer.Run) {
		p := &provider{rate: 80}
		r := adaptive(t, p, true)
		r.enqueue(t, "a", 1500)
		r.run(t)
		var began time.Time
		for _, rate := range []float64{80, 30, 90} {
			p.set(rate)
			began = time.Now()
			time.Sleep(5 * time.Second) // the provider's limit stays for that long
			sent, _ := p.since(began.Add(time.Second))
			run.Used(fmt.Sprintf("%.0f/s, a second after the provider has said it", rate), sent, rate, 0.95)
		}
		sent, refused := p.since(time.Time{})
		run.Number("refused calls, in percent", sent[0], sent[len(sent)-1], 100*float64(refused)/float64(len(sent)), 1)
	})
}

// TestTimedRefusals: a limit finds what the provider admits if that says nothing, but refuses calls.
func TestTimedRefusals(t *testing.T) {
	t.Parallel()
	measured(t, func(t *testing.T, run *pacer.Run) {
		p := &provider{rate: 37}
		r := adaptive(t, p, false)
		r.enqueue(t, "a", 2000)
		r.run(t)
		began := time.Now()
		time.Sleep(30 * time.Second) // until it has found the provider's limit
		sent, _ := p.since(began.Add(20 * time.Second))
		run.Used("37/s that nobody said, after 20 s", sent, 37, 0.95)
	})
}

// TestQuotaIsKept: what the provider says is kept, and forgotten, and never raises a limit.
func TestQuotaIsKept(t *testing.T) {
	t.Parallel()
	limit := limits.Limit{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(64), Burst: 50, Per: []string{"tenant"}, Adaptive: true}
	tokens := limits.Limit{Name: "tokens", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 6000, Period: time.Minute}, Unit: "tokens", Adaptive: true}
	fixed := quota("fixed", 1000, nil)
	r := startRig(t, -1, limitsOf(limit, tokens, fixed), nil)
	client := r.server.Client()
	var quotas []Quota
	r.answer = func(ctx context.Context, _ Running) error { return SetQuota(ctx, quotas...) }
	state := store.NewScript(`
local all = {}
local now = clock() + tonumber(ARGV[2])
for i, entry in ipairs(lane_limits('a', now).all) do
  all[i] = string.format('%.0f', entry.spec.w and entry.spec.b or entry.spec.r * 1000000 / entry.spec.p)
end
all[4] = string.format('%.0f', limit_left(lane_limits('a', now).all[1].spec, bucket(lane_limits('a', now).all[1], now), now))
return table.concat(all, ' ')`)
	now := func(after time.Duration) string {
		reply, err := state.Run(t.Context(), client, store.ScriptKeys(r.queue), r.queue, after.Microseconds())
		if err != nil {
			t.Fatal(err)
		}
		return reply.(string)
	}
	r.run(t)
	done := 0
	say := func(all ...Quota) {
		t.Helper()
		quotas = all
		done++
		r.add(t, func(j *Job) { j.Tenant, j.Costs = "a", map[string]int64{"tokens": 1} })
		r.seen.wait(t, string(lifecycle.Done), done)
		until(t, "settled", func() bool { return len(client.Keys(t.Context(), "asynq:{"+r.queue+"}:t:*").Val()) == 0 })
	}
	for _, step := range []struct {
		name  string
		said  []Quota
		after time.Duration
		want  string // permits a second, tokens a minute, the other limit
	}{
		{"nothing", nil, 0, "64 6000 1000"},
		{"less", []Quota{{Of: QuotaOfTenant, Limit: 16 * 60, Window: time.Minute}, {Unit: "tokens", Limit: 1500, Window: time.Minute}}, 0, "16 1500 1000"},
		{"for ten minutes", nil, 9 * time.Minute, "16 1500 1000"},
		{"then no more", nil, 11 * time.Minute, "64 6000 1000"},
		{"another window", []Quota{{Of: QuotaOfTenant, Limit: 32, Window: time.Second}, {Unit: "tokens", Limit: 3000 * 60, Window: time.Hour}}, 0, "32 3000 1000"},
		{"more than the file", []Quota{{Of: QuotaOfTenant, Limit: 1 << 30, Window: time.Minute}, {Unit: "tokens", Limit: 1 << 30, Window: time.Second}}, 0, "64 6000 1000"},
		{"a limit of an unknown window, and another unit", []Quota{{Of: QuotaOfTenant, Limit: 1}, {Unit: "images", Limit: 1, Window: time.Hour}}, 0, "64 6000 1000"},
		{"the other account of each", []Quota{{Limit: 1, Window: time.Minute}, {Unit: "tokens", Of: QuotaOfTenant, Limit: 1, Window: time.Minute}}, 0, "64 6000 1000"},
		{"almost nothing", []Quota{{Of: QuotaOfTenant, Limit: 1, Window: 24 * time.Hour}}, 0, "0 6000 1000"},
	} {
		say(step.said...)
		if got := now(step.after); !strings.HasPrefix(got, step.want+" ") {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
	say(Quota{Of: QuotaOfTenant, Limit: 64, Window: time.Second, Remaining: new(int64(3))})
	var left int
	if _, err := fmt.Sscan(strings.Fields(now(0))[3], &left); err != nil || left > 20 {
		t.Errorf("%d permits are left of 50 after the provider has said 3", left)
	}
}

// TestReserveOfAnAdaptiveLimit: the part of a limit for one side is lowered with it, whichever side hears something or is
// refused.
func TestReserveOfAnAdaptiveLimit(t *testing.T) {
	t.Parallel()
	limit := func(name string, side limits.Side, rate int64, per ...string) limits.Limit {
		return limits.Limit{Name: name, Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: rate, Period: time.Hour}, Burst: rate, Per: per, For: side, Adaptive: true}
	}
	r := startRig(t, -1, limitsOf(limit("account", limits.Both, 100), limit("account-jobs", limits.Jobs, 80), limit("other-jobs", limits.Jobs, 80),
		limit("tenant", limits.Both, 100, "tenant"), limit("tenant-jobs", limits.Jobs, 80, "tenant")), nil)
	script := store.NewScript(`
local now, all = clock(), {}
local found = lane_limits(lane_name('a', ''), now, ARGV[2] == 'direct')
if ARGV[3] == '429' then
  pause_all(found.own, now, now - 1, 'too fast') -- it is over
elseif ARGV[3] ~= '' then
  hear(found, now, ARGV[3])
end
for i, entry in ipairs(found.all) do
  all[i] = string.format('%s %.0f', entry.name, entry.spec.r / entry.spec.p * 3600000000)
  if ARGV[3] == '' then all[i] = all[i] .. string.format(' %.0f', math.floor(limit_left(entry.spec, bucket(entry, now), now))) end
end
return table.concat(all, ', ')`)
	for _, step := range []struct {
		by         limits.Side
		what, jobs string // jobs is of each limit its rate and what is left
	}{
		{limits.Jobs, " 50 3600000000 20 account;", "account 50 20, account-jobs 40 16, other-jobs 50 20, tenant 100 100, tenant-jobs 80 80"},
		{limits.Direct, " 25 3600000000 10 account;", "account 25 10, account-jobs 20 16, other-jobs 50 20, tenant 100 100, tenant-jobs 80 80"},
		{limits.Direct, "429", "account 25 10, account-jobs 20 16, other-jobs 50 20, tenant 50 100, tenant-jobs 40 80"},
	} {
		var jobs any
		for _, args := range [][]any{{string(step.by), step.what}, {string(limits.Jobs), ""}} {
			reply, err := script.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), append([]any{r.queue}, args...)...)
			if err != nil {
				t.Fatal(err)
			}
			jobs = reply
		}
		if jobs != step.jobs {
			t.Errorf("%s of %s: jobs have %v; want %s", step.what, step.by, jobs, step.jobs)
		}
	}
	r.enqueue(t, "a", 1)
	parts := map[string]float64{"account": 0.25, "account-jobs": 0.25, "other-jobs": 0.625, "tenant": 0.5, "tenant-jobs": 0.5}
	for _, l := range r.tenant(t, "a").Limits {
		if l.Adapted != parts[l.Name] {
			t.Errorf("a forecast has %v of limit %s; want %v", l.Adapted, l.Name, parts[l.Name])
		}
	}
}

// TestQuotaBeforeTheAccountedMoment: as much remains as the provider says, also if it answers before the moment for which
// the call is accounted.
func TestQuotaBeforeTheAccountedMoment(t *testing.T) {
	t.Parallel()
	for algorithm, burst := range map[throttle.Algorithm]int64{throttle.TokenBucket: 50, throttle.FixedWindow: 0} {
		r := startRig(t, -1, limitsOf(limits.Limit{Name: "account", Algorithm: algorithm, Rate: throttle.Rate{Count: 50, Period: time.Minute}, Burst: burst, Adaptive: true}), nil)
		script := store.NewScript(`
local now = clock()
local found = lane_limits(lane_name('a', ''), now)
local entry = found.all[1]
local at = now + 20000
limit_commit(entry.spec, bucket(entry, now), now, at, 1, 'a call')
hear(found, now, ' 50 60000000 42 account;')
return limit_left(entry.spec, bucket(entry, now), at)`)
		if left, err := script.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue); err != nil || left != int64(42) {
			t.Errorf("%s: %v remain, %v; want 42", algorithm, left, err)
		}
	}
}

// TestRemainingOfAChangedLimit: as much remains as the provider says, also if it says at once that the limit is another one.
func TestRemainingOfAChangedLimit(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []throttle.Algorithm{throttle.TokenBucket, throttle.FixedWindow, throttle.SlidingWindowCounter, throttle.SlidingWindowLog} {
		limit := limits.Limit{Name: "account", Algorithm: algorithm, Rate: throttle.Rate{Count: 100, Period: time.Minute}, Adaptive: true}
		if algorithm == throttle.TokenBucket {
			limit.Burst = 100
		}
		r := startRig(t, -1, limitsOf(limit), nil)
		run := func(then string) int64 {
			t.Helper()
			left, err := store.NewScript(`
local now = clock()
local found = lane_limits(lane_name('a', ''), now)
local entry = found.all[1]
`+then).Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue)
			if err != nil {
				t.Fatal(err)
			}
			n, _ := left.(int64)
			return n
		}
		for _, step := range []struct {
			said string
			left int64
		}{{"50 60000000 49", 49}, {"100 60000000 30", 30}} {
			run(`limit_commit(entry.spec, bucket(entry, now), now, now, 1, 'a call'); hear(found, now, ' ` + step.said + ` account;'); return 0`)
			if left := run(`return limit_left(entry.spec, bucket(entry, now), now)`); left != step.left {
				t.Errorf("%s: the provider said %s, and %d remain", algorithm, step.said, left)
			}
		}
	}
}

// TestWhatFollowsAQuota: a quota is followed by the limits of its scope, and by no others.
func TestWhatFollowsAQuota(t *testing.T) {
	t.Parallel()
	limit := func(name string, per ...string) limits.Limit {
		return limits.Limit{Name: name, Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(64), Burst: 50, Per: per, Adaptive: true}
	}
	season := limit("season", limits.EndpointAttribute) // of which what remains for a second says nothing
	season.Algorithm, season.Rate, season.Burst = throttle.FixedWindow, throttle.Rate{Count: 9000, Period: 100 * 24 * time.Hour}, 0
	r := startRig(t, -1, limitsOf(limit("account"), limit("tenant", "tenant"), limit("endpoint", limits.EndpointAttribute), limit("both", "tenant", limits.EndpointAttribute), season), nil)
	script := store.NewScript(`
local now, all = clock(), {}
local found = lane_limits(lane_name('a', ';endpoint=h:1'), now)
hear(found, now, ARGV[2])
for i, entry in ipairs(found.all) do
  all[i] = string.format('%s %.0f %.0f', entry.name, parts_now(entry.key, now), limit_left(entry.spec, bucket(entry, now), now))
end
return table.concat(all, ', ')`)
	for _, step := range []struct {
		said Quota
		want string // of each limit: its parts of 1024, and what is left of its bucket
	}{
		{Quota{Limit: 32, Window: time.Second}, "account 512 50, tenant 1024 50, endpoint 1024 50, both 1024 50, season 1024 9000"},
		{Quota{Of: QuotaOfTenant, Limit: 8, Window: time.Second}, "account 512 50, tenant 128 50, endpoint 1024 50, both 1024 50, season 1024 9000"},
		{Quota{Of: QuotaOfEndpoint, Limit: 16, Window: time.Second, Remaining: new(int64(3))}, "account 512 50, tenant 128 50, endpoint 256 3, both 256 3, season 1024 9000"},
	} {
		c := &call{quotas: []Quota{step.said}}
		reply, err := script.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, c.told(0, true, false))
		if err != nil || reply != step.want {
			t.Errorf("%+v: %v, %v; want %s", step.said, reply, err, step.want)
		}
	}
}

// TestRefusalsBelowAQuota: where the provider says what it admits, a refusal lowers a limit by a sixteenth, and not in the
// second in which it said so; a quota that differs forgets them.
func TestRefusalsBelowAQuota(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	script := store.NewScript(`
local entry = {adaptive = true, unit = '', key = 'bucket', published = {a = 'lb', p = 1000000, r = 100, b = 1}}
if ARGV[3] == 'lower' then lower(entry, tonumber(ARGV[2])) else hear({shared = {entry}}, tonumber(ARGV[2]), ARGV[3]) end
return string.format('%.0f', parts_now('bucket', tonumber(ARGV[2])))`)
	const s, began = int64(1_000_000), int64(1_795_900_000_000_000)
	for _, step := range []struct {
		at   int64
		what string
		want string // parts of 1024
	}{
		{0, " 50 1000000 -1 account;", "512"},
		{s / 2, "lower", "512"},
		{2 * s, "lower", "480"},
		{3 * s, " 80 1000000 -1 account;", "819"},
		{90 * s, " 50 1000000 -1 account;", "512"},
		{650 * s, " 50 1000000 -1 account;", "512"}, // it counts on
		{651 * s, " 90 1000000 -1 account;", "921"},
		{660 * s, "lower", "863"},
		{661 * s, " 70 1000000 -1 account;", "716"},
		// Also if it says that it admits all of the limit, or more.
		{670 * s, " 100 1000000 -1 account;", "1024"},
		{672 * s, "lower", "960"},
		{673 * s, " 120 1000000 -1 account;", "960"},
	} {
		reply, err := script.Run(t.Context(), client, store.ScriptKeys(r.queue), r.queue, began+step.at, step.what)
		if err != nil || reply != step.want {
			t.Errorf("%q after %d s: %v parts, %v; want %s", step.what, step.at/s, reply, err, step.want)
		}
	}
}

// TestSetQuota: quotas that cannot be are refused, and nothing of them is set.
func TestSetQuota(t *testing.T) {
	t.Parallel()
	if err := SetQuota(t.Context(), Quota{}); err == nil || !strings.Contains(err.Error(), "ctx is not from a handler") {
		t.Errorf("outside of a handler: %v", err)
	}
	c := &call{}
	ctx := context.WithValue(t.Context(), callKey{}, c)
	for want, q := range map[string]Quota{
		"the unit \"a b\" is not 1 to 64": {Unit: "a b"},
		"a limit of -1 must be 0 to":      {Limit: -1},
		"a window of 1ns must be 1µs to":  {Window: 1},
		"a window of 8760h0m0s must be":   {Window: 365 * 24 * time.Hour},
		"-2 that remain must be 0 to":     {Remaining: new(int64(-2))},
		"a quota of \"host\" must be of":  {Of: "host"},
	} {
		if err := SetQuota(ctx, Quota{Limit: 5, Window: time.Second}, q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	var many []Quota
	for i := range 17 {
		many = append(many, Quota{Unit: fmt.Sprint("u", i)})
	}
	if err := SetQuota(ctx, many...); err == nil || len(c.quotas) != 0 {
		t.Errorf("17 quotas: %v, %d are set", err, len(c.quotas))
	}
	if err := SetQuota(ctx, Quota{Limit: 5, Window: time.Second, Remaining: new(int64(7))}, Quota{Unit: "tokens", Of: QuotaOfTenant, Limit: 9, Window: time.Minute}, Quota{Limit: 6, Window: time.Second, Remaining: new(int64(8))}); err != nil {
		t.Fatal(err)
	}
	for took, want := range map[time.Duration]string{time.Millisecond: "tokens 9 60000000 -1 tenant; 6 1000000 8 account;", time.Second: "tokens 9 60000000 -1 tenant; 6 1000000 -1 account;"} {
		if text := c.told(took, true, false); text != want {
			t.Errorf("after %v: %q, want %q", took, text, want)
		}
	}
}

// TestLevelNearTheRefusedOne: a level that is refused close to the one before it is lowered by a little.
func TestLevelNearTheRefusedOne(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	script := store.NewScript(`local level, ends, before = level_at({low = 512, high = 512}, tonumber(ARGV[2])) return {level, ends, before or 0}`)
	for _, test := range []struct {
		after time.Duration
		want  string
	}{{time.Second, "[512 60000000 0]"}, {3 * time.Second, "[512 60000000 480]"}} {
		reply, err := script.Run(context.Background(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, test.after.Microseconds())
		if got := fmt.Sprint(reply); err != nil || got != test.want {
			t.Errorf("%v after a refusal: %s, %v; want %s", test.after, got, err, test.want)
		}
	}
}
