package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
)

// said is an error with the methods that a test wants.
type said struct {
	text                         string
	unknown, permanent, uncalled bool
}

func (e said) Error() string   { return e.text }
func (e said) Unknown() bool   { return e.unknown }
func (e said) Permanent() bool { return e.permanent }
func (e said) NotCalled() bool { return e.uncalled }

func TestAnswerOf(t *testing.T) {
	for _, test := range []struct {
		err  error
		want lifecycle.Answer
	}{
		{nil, lifecycle.AnswerOK},
		{errors.New("502"), lifecycle.AnswerRetryable},
		{throttled{time.Second}, lifecycle.AnswerThrottled},
		{notToday{time.Now()}, lifecycle.AnswerPostponed},
		{permanent{}, lifecycle.AnswerPermanent},
		{said{}, lifecycle.AnswerRetryable},
		{said{unknown: true}, lifecycle.AnswerUnknown},
		{said{permanent: true, unknown: true}, lifecycle.AnswerUnknown},
		{fmt.Errorf("behind: %w", said{permanent: true}), lifecycle.AnswerPermanent},
		{fmt.Errorf("behind: %w", said{permanent: true, uncalled: true}), ""},
		{fmt.Errorf("%w: %w", throttled{time.Second}, said{uncalled: true}), ""},
	} {
		if got := answerOf(test.err); got != test.want {
			t.Errorf("answerOf(%#v) = %q, want %q", test.err, got, test.want)
		}
	}
}

// onBothRedises runs a test on a real Redis and on the embedded one.
func onBothRedises(t *testing.T, test func(t *testing.T, server *redistest.Redis)) {
	t.Run("redis", func(t *testing.T) { test(t, redistest.Any(t)) })
	t.Run("embedded", func(t *testing.T) { test(t, redistest.Of(redistest.Embedded(t))) })
}

// record is a worker whose handler returns an answer by the job's key.
type record struct {
	client redis.UniversalClient
	queue  string
	seen   *counter
	stop   func()
}

func startRecord(t *testing.T, server *redistest.Redis, set limits.Queue, answer func(context.Context, Running) error) *record {
	t.Helper()
	client := server.Client()
	r := &record{client: client, queue: redistest.Queue(t), seen: newCounter()}
	if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{r.queue: set}}); err != nil {
		t.Fatal(err)
	}
	worker := newWorker(t, Config{Redis: server.Options(), Queues: []string{r.queue}, Concurrency: 20, ShutdownTimeout: 200 * time.Millisecond, Observer: r.seen})
	Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
		job, _ := Current(ctx)
		return answer(ctx, job)
	})
	Handle(worker, "typed", func(context.Context, int) error { return nil })
	r.stop = runWorker(t, worker)
	return r
}

func (r *record) add(t *testing.T, job Job) string {
	t.Helper()
	return r.addAll(t, job)[0]
}

// addAll adds jobs together, so that no limit recovers between them.
func (r *record) addAll(t *testing.T, jobs ...Job) []string {
	t.Helper()
	for i := range jobs {
		job := &jobs[i]
		job.Kind, job.Queue, job.Tenant = cmp.Or(job.Kind, "call"), r.queue, cmp.Or(job.Tenant, "a b")
		if job.Payload == nil {
			job.Payload = json.RawMessage(`{}`)
		}
	}
	return enqueueAll(t, NewClient(r.client), jobs...)
}

// counted returns the totals of answers and outcomes.
func (r *record) counted(t *testing.T) map[string]string {
	t.Helper()
	all, err := r.client.HGetAll(t.Context(), store.Key(r.queue, "totals")).Result()
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(all, func(field, _ string) bool {
		return !strings.HasPrefix(field, "answer:") && !strings.HasPrefix(field, "outcome:")
	})
	return all
}

func (r *record) log(t *testing.T, id string) []lifecycle.Event {
	t.Helper()
	text, err := r.client.HGet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_log").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return store.ReadLog(text)
}

func whats(log []lifecycle.Event) (all []string) {
	for _, e := range log {
		all = append(all, e.What)
	}
	return all
}

// TestRecord: the result of every kind of run is counted and published as an event, once.
// Runs without a call do not count as an answer.
func TestRecord(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	onBothRedises(t, func(t *testing.T, server *redistest.Redis) {
		client := server.Client()
		cutOff := make(chan struct{})
		r := startRecord(t, server, limits.Queue{}, func(ctx context.Context, job Running) error {
			switch _, what, _ := strings.Cut(job.ID, ":"); what {
			case "done", "plain":
				return nil
			case "retried":
				if job.Attempt == 1 {
					return errors.New("502\n\t" + strings.Repeat("é", 200))
				}
				return nil
			case "throttled":
				return throttled{time.Hour}
			case "refused":
				return fmt.Errorf("%w: %w", notToday{time.Now().Add(time.Hour)}, said{text: "down", uncalled: true})
			case "parked":
				return notToday{time.Now().Add(time.Hour)}
			case "permanent":
				return permanent{}
			case "unknown":
				return said{text: "no answer", unknown: true}
			case "last":
				return errors.New("503")
			case "cut":
				close(cutOff)
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		for _, what := range []string{"done", "retried", "refused", "parked", "permanent", "unknown"} {
			r.add(t, Job{Key: what})
		}
		r.add(t, Job{Key: "throttled", Tenant: "other"})
		r.add(t, Job{Key: "last", MaxAttempts: 1})
		r.add(t, Job{Key: "undecodable", Kind: "typed", Payload: "text"})
		r.seen.wait(t, string(lifecycle.Throttled), 1)
		r.add(t, Job{Key: "expired", Tenant: "other", Deadline: time.Now().Add(2 * time.Second)})
		cancelled := r.add(t, Job{Key: "cancelled", In: time.Hour})
		followed := r.add(t, Job{Key: "followed", In: time.Hour, OnFailure: &Job{Kind: "call", Queue: r.queue, Payload: json.RawMessage(`{}`), In: time.Hour}})
		for _, id := range []string{cancelled, followed} {
			if _, err := operate.Apply(t.Context(), client, r.queue, operate.Cancel, operate.Filter{ID: id}, ann, nil); err != nil {
				t.Fatal(err)
			}
		}
		for what, n := range map[lifecycle.Outcome]int{lifecycle.Done: 2, lifecycle.Retried: 1, lifecycle.Throttled: 1, lifecycle.Postponed: 2, lifecycle.Archived: 3, lifecycle.Unknown: 1, lifecycle.Expired: 1, lifecycle.Cancelled: 1} {
			r.seen.wait(t, string(what), n)
		}
		r.add(t, Job{Key: "cut"})
		<-cutOff
		r.stop()

		want := map[string]string{
			"answer:ok": "2", "answer:retryable": "2", "answer:throttled": "1", "answer:postponed": "1", "answer:permanent": "1", "answer:unknown": "2",
			"outcome:retried": "1", "outcome:throttled": "1", "outcome:postponed": "1", "outcome:archived": "3", "outcome:unknown": "1",
			"outcome:expired": "1", "outcome:cancelled": "2", "outcome:parked": "1",
		}
		if got := r.counted(t); !maps.Equal(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
		if answers, calls := store.ReadAnswers(want); calls != 9 || answers[lifecycle.AnswerUnknown] != 2 || len(answers) != len(lifecycle.Answers()) {
			t.Errorf("%v, %d calls", answers, calls)
		}
		events, err := inspect.Events(t.Context(), client, r.queue, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		told := map[string][]string{}
		for _, e := range events {
			_, what, _ := strings.Cut(e.Job, ":")
			told[what] = append(told[what], fmt.Sprintf("%s %s %d", e.Outcome, e.Answer, e.Attempt))
			switch {
			case e.Queue != r.queue || e.At.Before(time.Now().Add(-time.Minute)) || e.At.After(time.Now().Add(time.Minute)):
				t.Errorf("event %+v", e)
			case len(e.Reason) > 300 || !utf8.ValidString(e.Reason) || strings.ContainsAny(e.Reason, "\n\t"):
				t.Errorf("reason %q", e.Reason)
			case e.Took > 0 && e.Answer == "" || e.Took == 0 && what == "cut":
				t.Errorf("%s took %v", e.Job, e.Took)
			case (e.Reason == "") != (e.Outcome == lifecycle.Done):
				t.Errorf("%s: reason %q", e.Job, e.Reason)
			}
			if want := map[bool]string{true: "other", false: "a b"}[what == "throttled" || what == "expired"]; e.Tenant != want {
				t.Errorf("%s is of tenant %q, want %q", e.Job, e.Tenant, want)
			}
			if want := map[bool]string{true: "typed", false: "call"}[what == "undecodable"]; e.Kind != want {
				t.Errorf("%s is of kind %q, want %q", e.Job, e.Kind, want)
			}
		}
		wantTold := map[string][]string{
			"done": {"done ok 1"}, "retried": {"retried retryable 1", "done ok 2"}, "throttled": {"throttled throttled 1"}, "parked": {"postponed postponed 1"},
			"permanent": {"archived permanent 1"}, "unknown": {"unknown unknown 1"}, "last": {"archived retryable 1"}, "undecodable": {"archived  0"},
			"expired": {"expired  0"}, "cancelled": {"cancelled  0"}, "followed": {"cancelled  0"}, "cut": {"parked unknown 1"},
		}
		if !reflect.DeepEqual(told, wantTold) {
			t.Errorf("told %v,\nwant %v", told, wantTold)
		}

		for what, want := range map[string][]string{
			"done":        {lifecycle.EventEnqueued, lifecycle.EventReleased, lifecycle.EventCalled, lifecycle.EventAnswered, lifecycle.EventEnded},
			"retried":     {lifecycle.EventEnqueued, lifecycle.EventReleased, lifecycle.EventCalled, lifecycle.EventAnswered, lifecycle.EventRetry, lifecycle.EventReleased, lifecycle.EventCalled, lifecycle.EventAnswered, lifecycle.EventEnded},
			"refused":     {lifecycle.EventEnqueued, lifecycle.EventReleased, lifecycle.EventParked},
			"parked":      {lifecycle.EventEnqueued, lifecycle.EventReleased, lifecycle.EventCalled, lifecycle.EventAnswered, lifecycle.EventParked},
			"permanent":   {lifecycle.EventEnqueued, lifecycle.EventReleased, lifecycle.EventCalled, lifecycle.EventAnswered, lifecycle.EventEnded},
			"undecodable": {lifecycle.EventEnqueued, lifecycle.EventReleased, lifecycle.EventEnded},
			"cancelled":   {lifecycle.EventEnqueued, lifecycle.EventEnded},
			"followed":    {lifecycle.EventEnqueued, lifecycle.EventEnded},
			"cut":         {lifecycle.EventEnqueued, lifecycle.EventReleased, lifecycle.EventCalled, lifecycle.EventAnswered, lifecycle.EventParked},
		} {
			log := r.log(t, "a%20b:"+what)
			if !slices.Equal(whats(log), want) {
				t.Errorf("%s: %+v, want %v", what, log, want)
			}
		}
		log := r.log(t, "other:throttled")
		if !slices.Equal(whats(log), []string{lifecycle.EventEnqueued, lifecycle.EventReleased, lifecycle.EventCalled, lifecycle.EventAnswered, lifecycle.EventPaused}) {
			t.Fatalf("throttled: %+v", log)
		}
		if answered, paused := log[3], log[4]; answered.Answer != lifecycle.AnswerThrottled || answered.Detail != "429" || answered.Attempt != 1 ||
			paused.Detail != "tenant" || paused.Until.Sub(paused.At) != time.Hour {
			t.Errorf("throttled: %+v", log)
		}
		log = r.log(t, "a%20b:retried")
		if answered, retry := log[3], log[4]; len(answered.Detail) > 200 || !strings.HasPrefix(answered.Detail, "502") || !strings.HasSuffix(answered.Detail, "é") ||
			!retry.Until.After(retry.At) || retry.Until.Sub(retry.At) > time.Second {
			t.Errorf("retried: %+v", log)
		}
		if end := log[len(log)-1]; end.Detail != "done" || end.Attempt != 2 {
			t.Errorf("retried: %+v", end)
		}
		for i := range log[1:] {
			if log[i+1].At.Before(log[i].At.Add(-5 * time.Millisecond)) { // two clocks
				t.Errorf("out of order: %+v", log)
			}
		}
	})
}

// TestRecordIsOnce: a settlement whose reply was lost is sent again. Nothing is counted,
// published or logged a second time.
func TestRecordIsOnce(t *testing.T) {
	t.Parallel()
	onBothRedises(t, func(t *testing.T, server *redistest.Redis) {
		client := server.Client()
		r := &record{client: client, queue: redistest.Queue(t)}
		g := &gate{queue: r.queue, redis: client, limits: &effective.Calendars{Queue: r.queue, Redis: client}, onWake: func() {}}
		var questions []settleQuestion
		for _, outcome := range []string{"done", "forgotten", "failed", "free", "unsure", "refused"} {
			id := r.add(t, Job{Key: outcome})
			client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "state", "active", "hg_owner", "o")
			v := verdict{outcome: map[string]lifecycle.Outcome{"done": lifecycle.Done, "failed": lifecycle.Archived}[outcome], answer: lifecycle.AnswerOK, called: time.Now()}
			if v.outcome == "" {
				v.outcome = lifecycle.Retried
			}
			q := settleQuestion{id: id, owner: "o", tenant: "a%20b", kind: "call", outcome: settlement(outcome), text: "archived why", record: v.record(&Running{Attempt: 1, kept: true}, "", "")}
			if outcome == "forgotten" { // once it is done
				v.outcome, q.outcome = lifecycle.Done, "done"
				q.record = v.record(&Running{Attempt: 1}, "", "")
			}
			q.to = map[string]string{"done": "kept 60", "forgotten": "gone", "failed": "archived", "free": "retry 1000000 1"}[outcome]
			q.to = cmp.Or(q.to, "lane")
			questions = append(questions, q)
		}
		for try := range 3 {
			if answers, err := g.sendSettle(questions); err != nil || slices.ContainsFunc(answers, func(s settled) bool { return s.mine != (try == 0) }) {
				t.Fatal(answers, err)
			}
		}
		if got, want := r.counted(t), map[string]string{"answer:ok": "6", "outcome:archived": "1", "outcome:retried": "3"}; !maps.Equal(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
		if events, err := inspect.Events(t.Context(), client, r.queue, "", 100); err != nil || len(events) != 6 {
			t.Errorf("%d events, %v", len(events), err)
		}
		for _, q := range questions {
			if log := r.log(t, q.id); strings.HasSuffix(q.id, "forgotten") && len(log) > 0 || !strings.HasSuffix(q.id, "forgotten") && len(log) != 3 {
				t.Errorf("%s: %+v", q.outcome, log)
			}
		}
	})
}

// TestTimedNoLogWhileItWaits: a job that waits for its first call has no log, and neither has a
// job that is deleted after its first call.
func TestTimedNoLogWhileItWaits(t *testing.T) {
	t.Parallel()
	onBothRedises(t, func(t *testing.T, server *redistest.Redis) {
		measured(t, func(t *testing.T, run *pacer.Run) {
			client := server.Client()
			var during map[string]string
			var r *record
			r = startRecord(t, server, limits.Queue{Limits: []limits.Limit{perTenant(5)}}, func(ctx context.Context, job Running) error {
				during = r.client.HGetAll(ctx, asynqwire.Key(job.Queue, "t:"+job.ID)).Val()
				return nil
			})
			later := r.add(t, Job{In: time.Hour})
			began := time.Now()
			r.addAll(t, Job{}, Job{})
			r.seen.wait(t, string(lifecycle.Done), 2)
			wrong := 0.0
			if _, there := during["hg_log"]; there || !strings.HasSuffix(during["hg_released"], " tenant") {
				wrong = 1
				t.Logf("while it was called: %v", during)
			}
			// A job that misses its slot has one.
			run.Number("jobs with a log during their first call, or without the limit that held them", began, time.Now(), wrong, 0)
			for field := range client.HGetAll(t.Context(), asynqwire.Key(r.queue, "t:"+later)).Val() {
				if field == "hg_log" || field == "hg_released" {
					t.Errorf("it waits and has %s", field)
				}
			}
		})
	})
}

// TestTimedReleasedNamesTheLimit: the release event names the limit, the tenant's own or the
// shared one, that admitted the call last. One that has recovered before the job is released,
// because the machine is busy, has no name.
func TestTimedReleasedNamesTheLimit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		own, shared   int64
		want          string
		tenants, jobs int
	}{
		{"own", 5, 1000, "tenant", 1, 2},
		{"shared", 1000, 5, "account", 3, 3},
		{"none", 1000, 1000, "", 1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			onBothRedises(t, func(t *testing.T, server *redistest.Redis) {
				measured(t, func(t *testing.T, run *pacer.Run) {
					r := startRecord(t, server, limits.Queue{Limits: []limits.Limit{sharedBy(test.shared), perTenant(test.own)}}, func(context.Context, Running) error { return nil })
					jobs := make([]Job, test.jobs)
					for i := range jobs {
						jobs[i] = Job{Tenant: fmt.Sprint("t", i%test.tenants), Key: fmt.Sprint(i), In: 100 * time.Millisecond} // with a key it is kept
					}
					began := time.Now()
					ids := r.addAll(t, jobs...)
					last := ids[len(ids)-1]
					r.seen.wait(t, string(lifecycle.Done), len(jobs))
					var set []string
					for _, e := range r.log(t, last) {
						if e.What == lifecycle.EventReleased {
							set = append(set, e.Limit)
						}
					}
					wrong := 0.0
					if !slices.Equal(set, []string{test.want}) {
						wrong = 1
						t.Logf("released by %q, want %q: %+v", set, test.want, r.log(t, last))
					}
					run.Number("releases that do not name their limit", began, time.Now(), wrong, 0)
				})
			})
		})
	}
}

// TestLogOfAnOperatorsVerbs: a job's log has the verbs of operators.
func TestLogOfAnOperatorsVerbs(t *testing.T) {
	t.Parallel()
	onBothRedises(t, func(t *testing.T, server *redistest.Redis) {
		client := server.Client()
		r := startRecord(t, server, limits.Queue{}, func(_ context.Context, job Running) error {
			if job.Attempt == 1 && job.Headers["fail"] != "" {
				return permanent{}
			}
			return nil
		})
		failed := r.add(t, Job{Key: "failed", Headers: map[string]string{"fail": "yes"}})
		later := r.add(t, Job{Key: "later", In: time.Hour})
		r.seen.wait(t, string(lifecycle.Archived), 1)
		for end := time.Now().Add(time.Minute); ; { // until asynq has archived it
			tally, err := operate.Apply(t.Context(), client, r.queue, operate.RetryArchived, operate.Filter{ID: failed}, ann, nil)
			if tally.Jobs == 1 {
				break
			}
			if time.Now().After(end) {
				t.Fatal(tally, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := operate.Apply(t.Context(), client, r.queue, operate.RunNow, operate.Filter{ID: later}, ann, nil); err != nil {
			t.Fatal(err)
		}
		r.seen.wait(t, string(lifecycle.Archived), 2)
		r.seen.wait(t, string(lifecycle.Done), 1)
		r.stop()
		run := []string{lifecycle.EventReleased, lifecycle.EventCalled, lifecycle.EventAnswered, lifecycle.EventEnded}
		want := append(append(append([]string{lifecycle.EventEnqueued}, run...), lifecycle.EventOperator), run...)
		if log := r.log(t, failed); !slices.Equal(whats(log), want) || log[5].Detail != "retry" || log[4].Detail != "archived" {
			t.Errorf("%+v, want %v", log, want)
		}
		if log := r.log(t, later); !slices.Equal(whats(log), []string{lifecycle.EventEnqueued, lifecycle.EventOperator, lifecycle.EventCalled, lifecycle.EventAnswered, lifecycle.EventEnded}) || log[1].Detail != "run" {
			t.Errorf("%+v", log)
		}
	})
}

// TestLogIsBounded: a long log keeps its beginning and its end.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	add := store.NewScript(`return log_add(ARGV[2], log_line(tonumber(ARGV[3]), 'answered', ARGV[3], '', '', 'retryable', ARGV[4]))`, store.Lua("record"))
	onBothRedises(t, func(t *testing.T, server *redistest.Redis) {
		client := server.Client()
		text := ""
		for i := 1; i <= 300; i++ {
			detail := strings.Repeat("dropped ", i%40) + strings.Repeat("é", i%150)
			reply, err := add.Run(t.Context(), client, store.ScriptKeys("q"), "q", text, i, detail)
			if err != nil {
				t.Fatal(err)
			}
			text = fmt.Sprint(reply)
			log := store.ReadLog(text)
			if len(text) > 2048 || !utf8.ValidString(text) || strings.Count(text, "\n") != len(log) {
				t.Fatalf("after %d: %d bytes, %d events: %q", i, len(text), len(log), text)
			}
			if log[0].Attempt != 1 || log[len(log)-1].Attempt != i {
				t.Fatalf("after %d: from %d to %d: %q", i, log[0].Attempt, log[len(log)-1].Attempt, text)
			}
			at, gaps := 0, 0
			for _, e := range log {
				if e.What == lifecycle.EventDropped {
					gaps++
					at = -1
					continue
				}
				if at >= 0 && e.Attempt != at+1 || len(e.Detail) > 200 {
					t.Fatalf("after %d: %d comes after %d: %q", i, e.Attempt, at, text)
				}
				at = e.Attempt
			}
			if gaps > 1 || gaps == 0 && len(log) != i {
				t.Fatalf("after %d: %d gaps: %q", i, gaps, text)
			}
		}
		if log := store.ReadLog(text); len(log) < 8 {
			t.Errorf("only %d events are left", len(log))
		}
		// An invalid log is ignored.
		for _, hostile := range []string{strings.Repeat("x", 5000), strings.Repeat("\n", 5000), "\tdropped\n" + strings.Repeat("y", 5000), "\xff\n\t\t"} {
			reply, err := add.Run(t.Context(), client, store.ScriptKeys("q"), "q", hostile, 7, "said")
			if err != nil {
				t.Fatal(err)
			}
			if log := store.ReadLog(fmt.Sprint(reply)); len(log) == 0 || log[len(log)-1].Detail != "said" {
				t.Errorf("behind %.20q: %+v", hostile, log)
			}
		}
	})
}

func FuzzReadLog(f *testing.F) {
	f.Add("1767225600000000\tenqueued\n1767225600100000\treleased\t\ttenant\n1767225600200000\tanswered\t1\t\t\tok\n")
	f.Add("9999999999999999999999\tx\n-1\tx\n\n\t\t\t\t\t\t\t\t\t\n1\t\xff")
	f.Fuzz(func(t *testing.T, text string) {
		for _, e := range store.ReadLog(text) {
			if e.What == "" || e.Attempt < 0 || e.At.Year() > 9999 || e.Until.Year() > 9999 || !utf8.ValidString(e.Detail+e.What+e.Limit) {
				t.Errorf("%q: %+v", text, e)
			}
			if _, err := json.Marshal(e); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

// TestEvents: pages follow one another without a gap, and the stream is bounded.
func TestEvents(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	onBothRedises(t, func(t *testing.T, server *redistest.Redis) {
		client := server.Client()
		ctx, queue := t.Context(), redistest.Queue(t)
		if events, err := inspect.Events(ctx, client, queue, "", 10); err != nil || len(events) != 0 {
			t.Fatalf("%v, %v", events, err)
		}
		fill := store.NewScript(`for i = tonumber(ARGV[2]), tonumber(ARGV[3]) do event('j' .. i, 'a', 'call', 'done', 'ok', table.concat({'done', 'ok', i, 0, i, 0, 0, ''}, ' ')) end`, store.Lua("record"))
		const calls, each = 2700, 9 // two entries for each call, of eight events and of one
		for from := 1; from <= calls*each; from += each {
			if _, err := fill.Run(ctx, client, store.ScriptKeys(queue), queue, from, from+each-1); err != nil && !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
		}
		if n := client.XLen(ctx, store.Key(queue, "events")).Val(); n < 5000 || n > 5200 {
			t.Errorf("%d entries are kept", n)
		}
		if n := client.HGet(ctx, store.Key(queue, "totals"), "answer:ok").Val(); n != fmt.Sprint(calls*each) {
			t.Errorf("%s are counted", n)
		}
		newest, err := inspect.Events(ctx, client, queue, "", 3)
		if err != nil || len(newest) != 3 || newest[0].Attempt != calls*each-2 || newest[2].Attempt != calls*each {
			t.Fatalf("the newest: %+v, %v", newest, err)
		}
		all, err := inspect.Events(ctx, client, queue, "0-0", inspect.MaxEvents)
		if err != nil {
			t.Fatal(err)
		}
		for at := all[0].Attempt; ; {
			for _, e := range all {
				if e.Attempt != at || e.Took != time.Duration(at)*time.Microsecond {
					t.Fatalf("%+v, want attempt %d", e, at)
				}
				at++
			}
			last := all[len(all)-1]
			if all, err = inspect.Events(ctx, client, queue, last.ID, 700); err != nil {
				t.Fatal(err)
			}
			if len(all) == 0 {
				if at != calls*each+1 {
					t.Errorf("the last is %d", at-1)
				}
				break
			}
		}
		for _, after := range []string{"9999999999999-999999999999999999", "1-1", "0-0"} {
			if _, err := inspect.Events(ctx, client, queue, after, 1); err != nil {
				t.Errorf("after %s: %v", after, err)
			}
		}
	})
}

func TestEventsRefusesWhatIsWrong(t *testing.T) {
	client := redistest.Any(t).Client()
	for _, test := range []struct {
		after, field string
		n            int
	}{
		{"", "n", 0}, {"", "n", -1}, {"", "n", 1001},
		{"-", "after", 1}, {"+", "after", 1}, {"$", "after", 1}, {"(1-1", "after", 1}, {"1", "after", 1}, {"1-*", "after", 1}, {"1-1 ", "after", 1},
		{"1-1\n", "after", 1}, {strings.Repeat("9", 20) + "-1", "after", 1}, {"1-" + strings.Repeat("9", 19), "after", 1}, {"-1-1", "after", 1}, {"١-1", "after", 1},
	} {
		_, err := inspect.Events(t.Context(), client, "q", test.after, test.n)
		if invalid, ok := errors.AsType[*validation.Error](err); !ok || invalid.Field != test.field {
			t.Errorf("Events(%q, %d): %v, want an error of %s", test.after, test.n, err, test.field)
		}
	}
}
