package inspect

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/fluid"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
)

// Explanation describes where a job is, what it waits for, and when it will go. All
// times are on the clock of Redis, and zero if they do not apply.
type Explanation struct {
	Queue, ID   string
	Now         time.Time
	State       lifecycle.State
	Outcome     lifecycle.Outcome // how it ended; "" while it has not
	Tenant      string
	Kind        string
	Periodic    string // the ID of the periodic job that enqueued it; "": none did
	Attempt     int    // the next or current attempt, from 1
	MaxAttempts int
	Error       string              // why it failed the last time, or was archived
	Progress    *lifecycle.Progress // of the call in flight; nil: none was reported

	Since time.Time // when it came into this state, if that is known
	Until time.Time // when the state ends: the time it is scheduled for or retried at, or its slot

	// For a waiting job:
	Lane           string
	Position       int64     // in its lane: 0 is next
	TenantPosition int64     // among all waiting jobs of its tenant
	Waiting        int64     // waiting jobs of its tenant
	HeldBy         *Hold     // the limit that holds it longest; nil: none
	Full           *Hold     // a concurrency limit without a free permit; nil: none
	Pause          *Pause    // the pause that ends last; nil: none
	Unserved       *Unserved // why no worker takes it, also if it is scheduled or released; nil: a worker does
	WindowOpens    time.Time // its send window is closed until then

	At         time.Time  // when its call is expected; zero: not known
	Confidence Confidence // the confidence of At
	DrainsAt   time.Time  // when the last waiting job of its tenant will have gone
}

// String returns it as one sentence.
func (e Explanation) String() string {
	who := fmt.Sprintf("%s's %s", e.Tenant, e.Kind)
	because := ""
	if e.Error != "" {
		because = ": " + e.Error
	}
	if e.Outcome != "" {
		ended, since := "archived as "+string(e.Outcome), ""
		switch e.Outcome {
		case lifecycle.Done:
			ended = "completed"
		case lifecycle.Archived:
			ended = "archived"
		}
		if !e.Since.IsZero() {
			since = " at " + clockText(e.Since, e.Now)
		}
		return fmt.Sprintf("%s is %s%s%s.", who, ended, since, because)
	}
	switch e.State {
	case lifecycle.StateScheduled:
		return fmt.Sprintf("%s is scheduled for %s, its call is expected %s%s.", who, clockText(e.Until, e.Now), e.expected(), e.but())
	case lifecycle.StatePending, lifecycle.StateActive:
		if e.Until.After(e.Now) {
			return fmt.Sprintf("%s is held by a worker, its slot is in %s%s.", who, spanText(e.Until.Sub(e.Now)), e.but())
		}
		progress := ""
		if e.Progress != nil {
			progress = ", " + e.Progress.String()
		}
		return fmt.Sprintf("%s is being sent, attempt %d of %d%s%s.", who, e.Attempt, e.MaxAttempts, progress, e.but())
	case lifecycle.StateRetry:
		return fmt.Sprintf("%s will be tried again %s, attempt %d of %d%s%s.", who, atText(e.Until, e.Now), e.Attempt, e.MaxAttempts, because, e.but())
	}
	rest := fmt.Sprintf("%s before it, goes %s, %s waiting, %s.", thousands(e.Position), e.expected(),
		thousands(e.Waiting), doneText(e.DrainsAt, e.Now))
	switch stopped := stopText(e.Unserved, e.Pause, e.Now); {
	case stopped != "":
		return fmt.Sprintf("%s waits: %s; %s", who, stopped, rest)
	case !e.WindowOpens.IsZero():
		return fmt.Sprintf("%s waits: its send window is closed until %s, %s", who, clockText(e.WindowOpens, e.Now), rest)
	case e.Full != nil:
		return fmt.Sprintf("%s waits for a permit of %v, all are in use, %s", who, e.Full, rest)
	}
	return fmt.Sprintf("%s is %s%s", who, heldText(e.HeldBy, e.Now), rest)
}

// expected returns when its call is expected, and how far that can be trusted.
func (e Explanation) expected() string {
	text := atText(e.At, e.Now)
	if e.Confidence != NoForecast {
		text += fmt.Sprintf(" (%s)", e.Confidence)
	}
	return text
}

// but returns what stops a job that is not in its lane, as the end of a sentence.
func (e Explanation) but() string {
	if stopped := stopText(e.Unserved, e.Pause, e.Now); stopped != "" {
		return "; " + stopped
	}
	return ""
}

// Explain says why a job waits and when it will go, or how it ended. It returns
// [lifecycle.ErrNoJob] for an unknown id. Beside what [Inspector] shares it takes at most four
// round trips, whatever the number of tenants and the depth of their backlogs. With more than
// 5,000 lanes it looks at a random sample of 1,000, and is at most roughly sure.
func (in *Inspector) Explain(ctx context.Context, queue, id string) (Explanation, error) {
	_, e, _, err := in.explain(ctx, queue, id)
	if err != nil {
		return Explanation{}, fmt.Errorf("explain job %s of queue %q: %w", check.Quote(id), queue, err)
	}
	return e, nil
}

// explained is what explain reads of a task besides the Explanation.
type explained struct {
	message          asynqwire.Message
	cost, costs, log string
	result           []byte // nil: none
}

// explain explains a job, and returns its partition.
func (in *Inspector) explain(ctx context.Context, queue, id string) (home string, e Explanation, task explained, err error) {
	l, err := in.layout(ctx, queue)
	if err != nil {
		return "", e, task, err
	}
	home = l.Names()[0]
	if !l.Whole() {
		if home, _, err = in.find(ctx, queue, id); err != nil {
			return "", e, task, err
		}
	}
	e, task, err = in.explainIn(ctx, home, id)
	return home, e, task, err
}

func (in *Inspector) explainIn(ctx context.Context, queue, id string) (Explanation, explained, error) {
	fail := func(err error) (Explanation, explained, error) { return Explanation{}, explained{}, err }
	e := Explanation{Queue: partition.QueueOf(queue), ID: id, Confidence: NoForecast}
	pipe := in.redis.Pipeline()
	clock := store.AddTime(ctx, pipe, in.redis, store.Key(queue, "waiting"))
	fields := pipe.HMGet(ctx, asynqwire.Key(queue, "t:"+id), "state", "msg", "group", "hg_slot", "hg_done", "hg_error", "hg_base", "hg_cost", "hg_costs", "hg_log", "result", "hg_outcome", "hg_owner", "hg_progress")
	scheduled := pipe.ZScore(ctx, asynqwire.Key(queue, "scheduled"), id)
	retry := pipe.ZScore(ctx, asynqwire.Key(queue, "retry"), id)
	if err := store.Execute(ctx, pipe); err != nil {
		return fail(err)
	}
	e.Now = clock.Val()
	text := func(i int) string { s, _ := fields.Val()[i].(string); return s }
	if text(0) == "" {
		return fail(lifecycle.ErrNoJob)
	}
	m, err := asynqwire.Decode([]byte(text(1)))
	if err != nil {
		return fail(err)
	}
	task := explained{message: m, cost: text(7), costs: text(8), log: text(9)}
	if fields.Val()[10] != nil {
		task.result = []byte(text(10))
	}
	e.Kind, e.Tenant, e.Lane, e.Periodic = m.Kind, m.Tenant(), text(2), m.Headers[asynqwire.HeaderPeriodic]
	forgiven, _ := strconv.Atoi(text(6))
	e.Attempt, e.MaxAttempts = m.Retried-forgiven+1, m.MaxAttempts(store.DefaultMaxAttempts)
	e.Error = m.Failure
	if text(5) != "" {
		e.Error = text(5)
	}
	e.State = lifecycle.StateOf(text(0))
	if e.Outcome = store.OutcomeOf(e.State, text(4), text(11)); e.Outcome != "" {
		e.Attempt = max(e.Attempt, 1)
		switch {
		case e.Outcome == lifecycle.Done:
			e.Since, e.Error = m.Completed, ""
		case e.State == lifecycle.StateArchived:
			e.Since = m.Failed
		}
		if e.State == lifecycle.StateRetry {
			e.Error = m.Failure // why its follow-ups wait
		}
		return e, task, nil
	}
	due := func(score *redis.FloatCmd) time.Time { return time.Unix(int64(score.Val()), 0) }
	switch e.State {
	case lifecycle.StateScheduled:
		e.Until = due(scheduled)
		e.At = e.Until // a task of asynq's own client: its lane is known when it is released
	case lifecycle.StateRetry:
		e.Until, e.Since = due(retry), m.Failed
		e.At = e.Until
		// Parked jobs return to their lane through the retry set; they did not fail.
		if !e.Until.After(e.Now) && e.Lane != "" {
			e.State, e.Until = lifecycle.StateWaiting, time.Time{}
		}
	case lifecycle.StatePending, lifecycle.StateActive:
		e.Progress = store.ProgressOf(text(12), text(13))
		earliest, _, _ := strings.Cut(text(3), " ")
		e.At, e.Confidence = e.Now, Steady
		if micros, err := strconv.ParseInt(earliest, 10, 64); err == nil && time.UnixMicro(micros).After(e.Now) {
			e.Until = time.UnixMicro(micros)
			e.At = e.Until
		}
	}
	if e.Unserved, err = in.Unserved(ctx, e.Queue, e.Kind); err != nil {
		return fail(err)
	}
	if e.Unserved != nil {
		e.At, e.Confidence = time.Time{}, NoForecast
	}
	if e.Lane != "" && e.State != lifecycle.StatePending && e.State != lifecycle.StateActive {
		before := e
		err := in.ask(ctx, queue, func(f *forecast) error {
			e = before
			return e.forecast(ctx, in.redis, f)
		})
		if err != nil {
			return fail(err)
		}
	}
	return e, task, nil
}

// forecast sets what a job waits for in its lane, and when it goes.
func (e *Explanation) forecast(ctx context.Context, client redis.UniversalClient, f *forecast) error {
	id := e.ID
	if e.State != lifecycle.StateWaiting {
		id = ""
	}
	if err := f.look(ctx, client, e.Lane, id); err != nil {
		return err
	}
	e.Now = f.asked
	l := f.lanes[f.indexOf(e.Lane)]
	went := f.went(&l)
	l.jobs = f.seen.place.length + went
	turn := float64(l.jobs) + 1 // one that is not in its lane comes behind all that are
	if e.State == lifecycle.StateWaiting && f.seen.place.rank >= 0 {
		e.Position, turn = f.seen.place.rank, f.turn()+float64(went)
		e.Since = time.UnixMicro(f.seen.place.score % store.BandScores)
	}
	one := &fluid.Member{Jobs: turn}
	m, members, err := f.model(subject{e.Lane, max(float64(l.jobs), turn), f.seen.cost, []*fluid.Member{one}})
	if err != nil {
		return err
	}
	last := members[f.indexOf(e.Lane)]
	if f.lanesOf(l.Tenant) > 1 {
		last = nil // all of them have to finish
	}
	m.Run(last)
	e.At, e.Unserved, e.Pause = f.notBefore(one.At), f.unserved(&l), f.pause(&l)
	if e.Until.After(e.At) && !e.At.IsZero() {
		e.At = e.Until
	}
	outlook := f.outlooks(members, l.Tenant)[l.Tenant]
	e.Waiting, e.DrainsAt = f.seen.backlog, outlook.DrainsAt
	e.Confidence = f.confidence(&l, one.At, f.lanesOf(l.Tenant))
	if e.State != lifecycle.StateWaiting {
		if e.Confidence == Steady {
			e.Confidence = Rough // jobs that come until then are not foreseen
		}
		return nil
	}
	if e.Unserved == nil && e.Pause == nil {
		e.HeldBy = f.hold(&l, one.Limit)
	}
	if e.TenantPosition, err = f.tenantPosition(ctx, client, &l); err != nil {
		return err
	}
	for _, seen := range f.seen.limits {
		if e.HeldBy != nil && seen.name == e.HeldBy.Limit {
			e.HeldBy.Next = seen.next // for the cost of this job
		}
		if seen.algorithm == "cc" && seen.next.After(f.asked) && e.Full == nil {
			if i := slices.IndexFunc(f.rules.Limits, func(limit limits.Limit) bool { return limit.Name == seen.name }); i >= 0 {
				e.Full = &Hold{Limit: seen.name, Scope: scopeText(f.rules.Limits[i], &l), Rule: f.ruleText(i, &l)}
				e.At, e.Confidence = time.Time{}, NoForecast
			}
		}
	}
	hours, _, err := f.openings(&l)
	if err == nil && len(hours) > 0 && hours[0] > 0 {
		e.WindowOpens = f.at(hours[0])
	}
	return err
}

// went returns how many jobs of the lane have gone since everything was read. The
// forecast starts from what was read, so it includes them.
func (f *forecast) went(l *lane) int64 {
	length, came := f.seen.place.length, f.seen.place.came
	return max(0, l.jobs-(length-came))
}

// turn returns the place of the job in the order in which its lane's jobs go, from 1. One
// of ten jobs has a lower priority, if jobs of several priorities wait.
func (f *forecast) turn() float64 {
	at := f.seen.place
	turn := float64(at.rank)
	switch band := at.score / store.BandScores; {
	case band == 0 && at.length > at.bandEnd:
		turn += math.Floor(turn / 9)
	case band > 0:
		turn = min(turn, 10*float64(at.lowerOlder)+9)
	}
	return turn + 1
}

// pause returns the pause of a lane that ends last; nil if there is none.
func (f *forecast) pause(l *lane) *Pause {
	var held *Pause
	var last int64
	for _, scope := range f.scopesOf(l) {
		until := store.PausedUntil(f.pauses[scope])
		if until <= f.asked.UnixMicro() || until <= last {
			continue
		}
		p := ParsePause(scope, f.pauses[scope])
		last, held = until, &p
	}
	return held
}

// tenantPosition returns how many jobs of a tenant are ahead of the job: those before it
// in its own lane, and those of the tenant's other lanes with a lower score.
func (f *forecast) tenantPosition(ctx context.Context, client redis.UniversalClient, of *lane) (int64, error) {
	const maxOthers = 200
	before := max(f.seen.place.rank, 0)
	pipe := client.Pipeline()
	var counts []*redis.IntCmd
	for i := range f.lanes {
		if l := &f.lanes[i]; l.Tenant == of.Tenant && l.Name != of.Name && l.jobs > 0 && len(counts) < maxOthers {
			counts = append(counts, pipe.ZCount(ctx, asynqwire.Key(f.queue, "g:"+l.Name), "-inf", "("+strconv.FormatInt(f.seen.place.score, 10)))
		}
	}
	if len(counts) == 0 {
		return before, nil
	}
	if err := store.Execute(ctx, pipe); err != nil {
		return 0, err
	}
	for _, count := range counts {
		before += count.Val()
	}
	return before, nil
}
