package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/throttle"
)

type tooMany struct {
	after   time.Duration
	account bool
}

func (e tooMany) Error() string             { return "429: come back later" }
func (e tooMany) RetryAfter() time.Duration { return e.after }
func (e tooMany) WholeAccount() bool        { return e.account }

// strict is a provider that rejects all calls from the n-th one on, after the time of the
// call, until a time after its first rejection. All further rejections name that time, too, in whole
// seconds, rounded down.
type strict struct {
	refuses, took time.Duration
	after         int // calls that it takes before that
	account       bool

	mu       sync.Mutex
	taken    []time.Time
	refused  []time.Time // when they came
	answered time.Time   // the first of them
	attempts int         // the highest
}

func (p *strict) answer(_ context.Context, job Running) error {
	p.mu.Lock()
	now := time.Now()
	p.attempts = max(p.attempts, job.Attempt)
	if len(p.taken) < p.after || !p.answered.IsZero() && now.After(p.answered.Add(p.refuses)) {
		p.taken = append(p.taken, now)
		p.mu.Unlock()
		return nil
	}
	p.refused = append(p.refused, now)
	p.mu.Unlock()
	time.Sleep(p.took) // the call itself
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answered.IsZero() {
		p.answered = time.Now()
		return tooMany{p.refuses, p.account}
	}
	return tooMany{time.Until(p.answered.Add(p.refuses)).Truncate(time.Second), p.account}
}

// TestTimedThrottledIsOnePauseForAllWorkers: three workers share one limit, and the provider asks
// for a pause of 3 s. Except for the calls in flight, no call is made until the pause is
// over. Then the rate starts with one call and not with a burst. No attempt is spent.
func TestTimedThrottledIsOnePauseForAllWorkers(t *testing.T) {
	t.Parallel()
	const jobs, rate, burst, pause = 100, 50, 20, 3 * time.Second
	limit := perTenant(rate)
	limit.Burst = burst
	for name, account := range map[string]bool{"tenant": false, "account": true} {
		t.Run(name, func(t *testing.T) {
			limit := limit
			if account {
				limit.Per = nil
			}
			measured(t, func(t *testing.T, run *pacer.Run) {
				// The first rejection comes halfway between two slots.
				provider := &strict{refuses: pause, took: 250 * time.Millisecond, after: burst + 5, account: account}
				r := startRig(t, 1, limitsOf(limit), nil)
				r.answer = provider.answer
				for range 2 {
					other := newWorker(t, Config{Redis: r.server.Options(), Queues: []string{r.queue}, Observer: r.seen})
					Handle(other, "call", func(ctx context.Context, _ struct{}) error {
						job, _ := Current(ctx)
						return provider.answer(ctx, job)
					})
					runWorker(t, other)
				}
				// changes is how many times a pause began, or was made to end later.
				changes := func() int {
					t.Helper()
					n, err := r.server.Client().HGet(t.Context(), store.Key(r.queue, "totals"), "pauses").Int()
					if err != nil {
						t.Fatal(err)
					}
					return n
				}
				r.enqueue(t, "a", jobs)
				r.run(t)
				r.seen.wait(t, string(lifecycle.Throttled), 1)
				provider.mu.Lock()
				asked, inFlight := provider.answered, 0
				for _, at := range provider.refused {
					if !at.After(asked) {
						inFlight++
					}
				}
				provider.mu.Unlock()
				r.seen.wait(t, string(lifecycle.Throttled), inFlight)
				pauses, err := inspect.Pauses(t.Context(), r.server.Client(), r.queue)
				if err != nil || len(pauses) != 1 || pauses[0].By != "provider" || (pauses[0].Scope == inspect.Scope{}) != account {
					t.Errorf("pauses: %+v, %v; want one", pauses, err)
					return
				}
				begun := changes()
				if begun < 1 {
					t.Error("no change of pauses")
				}
				// Answers to the calls that were in flight name no later end.
				run.Number("changes of pauses", asked, time.Now(), float64(begun), 1)
				ends, asksFor := pauses[0].Until, asked.Add(pause)
				if ends.Before(asksFor.Add(-time.Millisecond)) {
					t.Errorf("the pause ends at %v; want %v or a little later", ends, asksFor)
				}
				run.Most("the end of the pause, after the time that the provider asked for", asked, ends, ends.Sub(asksFor), 50*time.Millisecond)
				r.seen.wait(t, string(lifecycle.Done), jobs)
				provider.mu.Lock()
				defer provider.mu.Unlock()
				if n := len(provider.refused); n != inFlight || inFlight < 2 {
					last := slices.MaxFunc(provider.refused, time.Time.Compare)
					run.Wrong(asked, last, "%d calls were refused, the last %v after the first answer; want the %d that were in flight then", n, last.Sub(asked), inFlight)
				}
				if n := r.seen.outcomes(lifecycle.Throttled); n != len(provider.refused) {
					t.Errorf("%d runs ended as throttled, of %d refused calls", n, len(provider.refused))
				}
				if provider.attempts != 1 {
					t.Errorf("attempt %d", provider.attempts)
				}
				after := provider.taken[provider.after:]
				if len(after) != jobs-provider.after {
					t.Errorf("%d calls after the pause; want %d", len(after), jobs-provider.after)
				}
				run.Law("after the pause", after, rate, 1)
				run.Took("the first call after the pause", ends, slices.MinFunc(after, time.Time.Compare), 100*time.Millisecond)
				if n := changes(); n != begun {
					t.Errorf("%d changes of pauses after the calls that were in flight; want none", n-begun)
				}
				if left, err := inspect.Pauses(t.Context(), r.server.Client(), r.queue); err != nil || len(left) > 0 {
					t.Errorf("after it: %+v, %v", left, err)
				}
			})
		})
	}
}

// TestPauses: a pause is for a tenant, a kind, or the queue. The pause that ends last
// applies, and the paused jobs go when it is over.
func TestPauses(t *testing.T) {
	r := startRig(t, 1, limitsOf(), nil)
	if err := operate.Publish(t.Context(), r.server.Client(), limits.Set{Queues: map[string]limits.Queue{r.queue: {Kinds: []string{"call", "other"}}}}); err != nil {
		t.Fatal(err)
	}
	a := r.add(t, nil)
	b := r.add(t, func(job *Job) { job.Tenant = "b" })
	other := r.add(t, func(job *Job) { job.Tenant, job.Kind = "b", "other" })
	client, d := r.server.Client(), r.dispatcher()
	d.kinds = ",call,other,"
	until := fmt.Sprint(time.Now().Add(time.Hour).UnixMicro(), " operator a test")
	for _, test := range []struct {
		scope string
		goes  []string
	}{
		{"*", nil}, {"a", []string{b, other}}, {"k:call", []string{other}}, {"c", []string{a, b, other}},
	} {
		client.HSet(t.Context(), store.Key(r.queue, "pauses"), test.scope, until)
		r.add(t, nil)
		ids := r.release(t, d, 100)
		goes := slices.DeleteFunc(ids, func(id string) bool { return id != a && id != b && id != other })
		slices.Sort(goes)
		slices.Sort(test.goes)
		if !slices.Equal(goes, test.goes) {
			t.Errorf("paused %s: %v went; want %v", test.scope, goes, test.goes)
		}
		// Back to where they were.
		client.Del(t.Context(), store.Key(r.queue, "pauses"), asynqwire.Key(r.queue, "active"), asynqwire.Key(r.queue, "lease"))
		for _, id := range ids {
			task := asynqwire.Key(r.queue, "t:"+id)
			client.HSet(t.Context(), task, "state", "aggregating")
			client.ZAdd(t.Context(), asynqwire.Key(r.queue, "g:"+client.HGet(t.Context(), task, "group").Val()), zOf(id, 1<<51))
		}
		for _, lane := range []string{"a;kind=call", "b;kind=call", "b;kind=other", "a", "b"} {
			client.ZAdd(t.Context(), store.Key(r.queue, "waiting"), zOf(lane, 0))
		}
	}
}

// TestAdaptiveLimit: a 429 halves the rate, once for each pause. The rate recovers in steps,
// never beyond the limit.
func TestAdaptiveLimit(t *testing.T) {
	limit := perTenant(64)
	limit.Adaptive = true
	r := startRig(t, 1, limitsOf(limit), nil)
	client := r.server.Client()
	id := r.add(t, nil)
	task := asynqwire.Key(r.queue, "t:"+id)
	throttle := func() {
		t.Helper()
		client.HSet(t.Context(), task, "hg_owner", "o", "state", "active")
		r.settles(t, settleQuestion{id: id, owner: "o", outcome: "free", hold: hold{who: ofTenant, length: time.Minute, reason: "429"}})
	}
	parts := func() string {
		return client.Get(t.Context(), store.Key(r.queue, "adapt:tenant:a")).Val()
	}
	var got, since int64
	for _, want := range []int64{512, 512, 256} {
		if want == 256 { // the next pause
			client.Del(t.Context(), store.Key(r.queue, "b:tenant:a"))
		}
		throttle()
		if _, err := fmt.Sscan(parts(), &got, new(int64), &since); err != nil || got != want {
			t.Fatalf("%d of 1024 parts are left, %v; want %d", got, err, want)
		}
	}
	rate := store.NewScript(`
local spec = lane_limits('a', tonumber(ARGV[2])).all[1].spec
return string.format('%.0f', spec.r * 1000000 / spec.p)`)
	for _, test := range []struct {
		after time.Duration
		want  string
	}{
		{0, "16"}, {1999 * time.Millisecond, "16"}, {2 * time.Second, "24"}, {4 * time.Second, "28"}, {8 * time.Second, "31"}, // up to what was refused
		{67 * time.Second, "31"}, {68 * time.Second, "32"}, {73 * time.Second, "34"}, {78 * time.Second, "38"}, {time.Hour, "64"},
	} {
		reply, err := rate.Run(t.Context(), client, store.ScriptKeys(r.queue), r.queue, since+test.after.Microseconds())
		if err != nil || reply != test.want {
			t.Errorf("%v after the 429: %v/s, %v; want %s", test.after, reply, err, test.want)
		}
	}
}

// TestDeadlinePassesWhileTheTenantIsPaused: a job expires on time even while its tenant is
// paused.
func TestDeadlinePassesWhileTheTenantIsPaused(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	client := r.server.Client()
	client.HSet(t.Context(), store.Key(r.queue, "pauses"), "a", fmt.Sprint(store.Endless, " operator a test"))
	deadline := time.Now().Add(1200 * time.Millisecond)
	ids := []string{
		r.add(t, nil), // before the other one, and endless
		r.add(t, func(job *Job) { job.Deadline = deadline }),
		r.add(t, func(job *Job) { job.Deadline, job.At = deadline, time.Now() }),
	}
	r.run(t)
	r.seen.wait(t, string(lifecycle.Expired), 2)
	r.stop() // asynq was told
	archived := r.archived(t)
	if archived[ids[1]] == "" || archived[ids[2]] == "" || len(archived) != 2 || time.Now().Before(deadline) {
		t.Errorf("archived: %v", archived)
	}
	if n := client.ZCard(t.Context(), store.Key(r.queue, "deadlines")).Val(); n != 0 {
		t.Errorf("%d deadlines are left", n)
	}
}

// TestSettlementWakesTheBlockedLane: a permit that comes back starts the next round of
// dispatch at once.
func TestSettlementWakesTheBlockedLane(t *testing.T) {
	r := startRig(t, 1, limitsOf(limits.Limit{Name: "one", Algorithm: throttle.Concurrency, Concurrency: 1}), nil)
	client := r.server.Client()
	first := r.add(t, nil)
	second := r.add(t, nil)
	d := r.dispatcher()
	if ids := r.release(t, d, 100); !slices.Equal(ids, []string{first}) {
		t.Fatalf("%v went", ids)
	}
	woken := 0
	g := &gate{queue: r.queue, redis: client, limits: d.limits, onWake: func() { woken++ }}
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+first), "hg_owner", "o")
	for range 2 { // as after a lost reply
		if mine, err := g.sendSettle([]settleQuestion{{id: first, owner: "o", tenant: "a", outcome: "done"}}); err != nil || !mine[0].mine {
			t.Fatal(mine, err)
		}
	}
	if woken != 1 {
		t.Errorf("woken %d times", woken)
	}
	if ids := r.release(t, d, 100); !slices.Equal(ids, []string{first, second}) {
		t.Errorf("%v went", ids)
	}
}

// TestWaitingForAnotherTryHoldsNoPermit: a job whose call the provider rejected, or whose
// outcome is unknown, gives its permit to the next job while it waits for its retry.
func TestWaitingForAnotherTryHoldsNoPermit(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{"refused": notToday{time.Now().Add(time.Hour)}, "unsure": unknown{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, 1, limitsOf(limits.Limit{Name: "one", Algorithm: throttle.Concurrency, Concurrency: 1}), nil)
			var calls []string
			Handle(r.worker, "tried", func(ctx context.Context, _ json.RawMessage) error {
				job, _ := Current(ctx)
				if calls = append(calls, job.ID); len(calls) == 1 {
					return answer
				}
				return nil
			}, RepeatUnknown())
			tried := func(job *Job) { job.Kind = "tried" }
			want := []string{r.add(t, tried), r.add(t, tried)}
			r.run(t)
			r.seen.wait(t, string(lifecycle.Done), 1)
			r.stop()
			if len(calls) < 2 || !slices.Equal(calls[:2], want) {
				t.Errorf("called: %v; want %v", calls, want)
			}
		})
	}
}

// TestSendWindow: outside of the window's hours a job waits for the next opening, but only
// jobs of the window's kind do.
func TestSendWindow(t *testing.T) {
	now := time.Now().UTC()
	day := now.AddDate(0, 0, 2).Weekday().String()[:3]
	closed, err := sendwindow.Parse(day + " 09:00-10:00 UTC")
	if err != nil {
		t.Fatal(err)
	}
	opens := closed.OpenAt(now)
	for name, edit := range map[string]func(*limits.Set, string){
		"tenant": func(l *limits.Set, _ string) { l.Tenants = map[string]limits.Tenant{"a": {SendWindow: closed}} },
		"kind": func(l *limits.Set, queue string) {
			l.Queues[queue] = limits.Queue{Kinds: []string{"call", "other"}, SendWindows: map[string]sendwindow.Window{"call": closed}}
		},
		"queue": func(l *limits.Set, queue string) {
			l.Queues[queue] = limits.Queue{Kinds: []string{"call", "other"}, SendWindows: map[string]sendwindow.Window{limits.AllKinds: closed}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, 1, limitsOf(), nil)
			set := limits.Set{Queues: map[string]limits.Queue{r.queue: {Kinds: []string{"call", "other"}}}}
			edit(&set, r.queue)
			if err := operate.Publish(t.Context(), r.server.Client(), set); err != nil {
				t.Fatal(err)
			}
			d := r.dispatcher()
			d.kinds = ",call,other,"
			held := r.add(t, nil)
			free := map[string]string{
				"tenant": r.add(t, func(job *Job) { job.Tenant = "b" }),
				"kind":   r.add(t, func(job *Job) { job.Kind = "other" }),
			}
			ids := r.release(t, d, 100)
			if slices.Contains(ids, held) || name != "queue" && !slices.Contains(ids, free[name]) || name == "queue" && len(ids) > 0 {
				t.Errorf("%v went; %s is closed, %v", ids, held, free)
			}
			due, err := r.server.Client().ZScore(t.Context(), store.Key(r.queue, "waiting"), "a;kind=call").Result()
			if err != nil || time.UnixMicro(int64(due)).UTC() != opens {
				t.Errorf("waits until %v, %v; want %v", time.UnixMicro(int64(due)).UTC(), err, opens)
			}
			// When the window is removed, the job goes at once.
			if err := operate.Publish(t.Context(), r.server.Client(), limits.Set{Queues: map[string]limits.Queue{r.queue: {Kinds: []string{"call", "other"}}}}); err != nil {
				t.Fatal(err)
			}
			if ids := r.release(t, d, 100); !slices.Contains(ids, held) {
				t.Errorf("%v went; want %s, which nothing holds any more", ids, held)
			}
		})
	}
}
