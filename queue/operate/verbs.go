package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/validation"
)

// Verb is an action of an operator on jobs.
type Verb string

// The verbs. Each job moves in one step from where it was to where it goes. So none is
// lost if a verb is interrupted, and running the verb again does the rest.
const (
	// Cancel archives waiting, scheduled, retried and released jobs, as "cancelled by
	// ACTOR: REASON". It is too late for jobs that a worker holds. A worker puts away a
	// job with follow-ups, such as a callback, and enqueues these.
	Cancel Verb = "cancel"

	// RunNow hands waiting, scheduled and retried jobs to the workers at once, whatever
	// the limits say. Their permits are charged to their limits, so that other jobs wait
	// for these. Jobs under a pause stay where they are.
	RunNow Verb = "run"

	// Wake lets jobs that wait for their next attempt go now, as their limits and pauses
	// allow.
	Wake Verb = "wake"

	// RetryArchived puts archived jobs back into their lanes, after the waiting jobs.
	// Their attempts start again. Calls that succeeded are not made again: only their
	// follow-ups are enqueued again.
	RetryArchived Verb = "retry"

	// DeleteArchived deletes archived jobs permanently. No other verb deletes jobs.
	DeleteArchived Verb = "delete"
)

// Tally is how many jobs a verb changed, or would change.
type Tally struct {
	Jobs    int64                     // changed jobs
	ByState map[lifecycle.State]int64 // changed jobs by their state before
	TooLate int64                     // jobs that match, but are held by a worker or have ended
	Paused  int64                     // jobs that match, but are paused: RunNow does not change them
}

func (t *Tally) add(state lifecycle.State, n tallied) {
	if n.matched > 0 {
		if t.ByState == nil {
			t.ByState = map[lifecycle.State]int64{}
		}
		t.ByState[state] += n.matched
	}
	t.Jobs += n.matched
	t.TooLate += n.late
	t.Paused += n.held
}

// place is where jobs of a state are.
type place struct {
	name  string
	state lifecycle.State
}

// places returns where a verb looks, in the order in which jobs pass through them, so
// that it finds jobs that move meanwhile.
func (v Verb) places() []place {
	switch v {
	case Cancel:
		return []place{
			{"scheduled", lifecycle.StateScheduled}, {"retry", lifecycle.StateRetry}, {"lanes", lifecycle.StateWaiting},
			{"pending", lifecycle.StatePending}, {"active", lifecycle.StateActive},
		}
	case RunNow: // released jobs first, so that it does not count those that it released itself
		return []place{
			{"pending", lifecycle.StatePending}, {"active", lifecycle.StateActive},
			{"scheduled", lifecycle.StateScheduled}, {"retry", lifecycle.StateRetry}, {"lanes", lifecycle.StateWaiting},
		}
	case Wake:
		return []place{{"retry", lifecycle.StateRetry}}
	case RetryArchived, DeleteArchived:
		return []place{{"archived", lifecycle.StateArchived}, {"archive", lifecycle.StateArchived}}
	}
	return nil
}

// States returns the states in which a verb changes jobs.
func (v Verb) States() []lifecycle.State {
	switch v {
	case Cancel:
		return []lifecycle.State{lifecycle.StateScheduled, lifecycle.StateRetry, lifecycle.StateWaiting, lifecycle.StatePending}
	case RunNow:
		return []lifecycle.State{lifecycle.StateScheduled, lifecycle.StateRetry, lifecycle.StateWaiting}
	case Wake:
		return []lifecycle.State{lifecycle.StateRetry}
	case RetryArchived, DeleteArchived:
		return []lifecycle.State{lifecycle.StateArchived}
	}
	return nil
}

// Count returns what a verb would do now, without changing anything. A [PartialError] comes with what the partitions
// have that answer.
func Count(ctx context.Context, client redis.UniversalClient, queue string, verb Verb, filter Filter) (Tally, error) {
	return runVerb(ctx, client, queue, verb, filter, nil, nil)
}

// Apply applies a verb to all matching jobs of a queue, in many short steps. After each
// step it calls progress, which may be nil, with the tally so far. An error comes with
// the tally up to it; running the verb again does the rest.
//
// Jobs move meanwhile: to catch every job of a tenant whose calls are in flight, call
// [PauseJobs] first.
func Apply(ctx context.Context, client redis.UniversalClient, queue string, verb Verb, filter Filter, by Operator, progress func(Tally)) (Tally, error) {
	if err := by.Check(); err != nil {
		return Tally{}, err
	}
	return runVerb(ctx, client, queue, verb, filter, &by, progress)
}

const (
	// A slice is what one script looks at: about 2 ms of work. Changing a job takes
	// longer than looking at it.
	lookSlice   = 200
	changeSlice = 50
)

// verbRun is a running verb.
type verbRun struct {
	client   redis.UniversalClient
	queue    string // the partition
	verb     Verb
	filter   Filter
	by       *Operator // nil: only count
	began    int64     // µs, by the clock of Redis
	audit    AuditEntry
	entry    string // of audit, without its end
	windows  *effective.Calendars
	progress func(Tally)
	tally    Tally
	before   int64 // changed jobs of other partitions
	longest  int64 // the most jobs that one step looked at
}

func runVerb(ctx context.Context, client redis.UniversalClient, queue string, verb Verb, filter Filter, by *Operator, progress func(Tally)) (Tally, error) {
	if err := filter.Check(verb); err != nil {
		return Tally{}, err
	}
	if err := store.CheckQueue(ctx, client, queue); err != nil {
		return Tally{}, err
	}
	homes, err := filter.homes(ctx, client, queue)
	if err != nil {
		return Tally{}, fmt.Errorf("%s in queue %q: %w", verb, queue, err)
	}
	r := &verbRun{client: client, verb: verb, filter: filter, by: by, progress: progress}
	if by != nil {
		r.audit = AuditEntry{
			Actor: by.Actor, Action: string(verb), Queue: queue, Tenant: filter.Tenant, Kind: filter.Kind,
			State: filter.State, ID: filter.ID, Contains: filter.Reason, Group: filter.Group, Reason: by.Reason,
		}
	}
	stopped := 0
	for _, home := range homes {
		if reason := r.all(ctx, home); reason != nil { // one that does not answer does not keep others from it
			stopped++
			err = cmp.Or(err, reason)
		}
	}
	if r.audit.Count = r.tally.Jobs; by != nil && (r.tally.Jobs > 0 || r.audit.Unsure) {
		by.log(r.audit)
	}
	if err != nil {
		if validation.Is(err) {
			return r.tally, err
		}
		if len(homes) > 1 {
			text := fmt.Sprintf("the jobs of queue %q were not counted in %d of its %d partitions", queue, stopped, len(homes))
			if by != nil {
				text = fmt.Sprintf("%s in queue %q stopped in %d of its %d partitions, after %d jobs in all; run it again for the rest",
					verb, queue, stopped, len(homes), r.tally.Jobs)
			}
			return r.tally, &PartialError{stopped, len(homes), err, text}
		}
		if by == nil {
			return r.tally, fmt.Errorf("count the jobs of queue %q: %w", queue, err)
		}
		return r.tally, fmt.Errorf("%s in queue %q stopped after %d jobs: %w", verb, queue, r.tally.Jobs, err)
	}
	return r.tally, nil
}

// all changes the jobs of a partition.
func (r *verbRun) all(ctx context.Context, home string) error {
	now, err := store.Time(ctx, r.client, store.Key(home, "waiting"))
	if err != nil {
		return err
	}
	if r.by != nil && r.entry == "" { // the first one dates the entry of all
		r.audit.At = now
		r.entry = share(r.by.Actor) + " " + r.audit.open()
	}
	r.queue, r.began, r.before, r.windows = home, now.UnixMicro(), r.tally.Jobs, &effective.Calendars{Queue: home, Redis: r.client}
	if r.filter.ID != "" {
		return r.one(ctx)
	}
	for _, p := range r.verb.places() {
		var err error
		switch {
		case r.filter.State != "" && r.filter.State != p.state:
			continue
		case p.name == "lanes":
			err = r.lanes(ctx)
		default:
			err = r.walk(ctx, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// one applies the verb to a job by its id.
func (r *verbRun) one(ctx context.Context) error {
	n, err := r.slice(ctx, "id", "", r.filter.ID)
	if err != nil {
		return err
	}
	if n.state == "" {
		return validation.NotFound("id", "there is no job "+check.Quote(r.filter.ID)+" in queue "+check.Quote(partition.QueueOf(r.queue)))
	}
	if n.matched+n.late+n.held == 0 {
		state := lifecycle.StateOf(n.state)
		if slices.Contains(r.verb.States(), state) {
			return otherState("job " + check.Quote(r.filter.ID) + " belongs to another tenant or kind, or ended for another reason")
		}
		return otherState(fmt.Sprintf("job %s is %s: %s is for jobs that are %s", check.Quote(r.filter.ID), state, r.verb, lifecycle.Join(r.verb.States())))
	}
	r.note(ctx, lifecycle.StateOf(n.state), n)
	return nil
}

// ErrState is the cause of a [validation.Error] for a job that a verb cannot change as it is
// now, though the filter names it.
var ErrState = errors.New("wrong state")

func otherState(reason string) error {
	return &validation.Error{Field: "id", Reason: reason, Cause: ErrState}
}

// walk goes through a place, slice by slice.
func (r *verbRun) walk(ctx context.Context, p place) error {
	cursor := ""
	for {
		n, err := r.slice(ctx, p.name, cursor)
		if err != nil {
			return err
		}
		r.note(ctx, p.state, n)
		if n.done {
			return nil
		}
		cursor = n.cursor
	}
}

// lanes applies the verb to all lanes that can match, several short ones in one step.
func (r *verbRun) lanes(ctx context.Context) error {
	for at, first := uint64(0), true; first || at != 0; first = false {
		names, next, err := r.client.SScan(ctx, asynqwire.Key(r.queue, "groups"), at, "", lookSlice).Result()
		if err != nil {
			return err
		}
		at = next
		var lanes []any
		for _, name := range names {
			if r.filter.lane(name) {
				lanes = append(lanes, name)
			}
		}
		cursor := ""
		for len(lanes) > 0 {
			n, err := r.slice(ctx, "lanes", cursor, lanes[:min(len(lanes), lookSlice)]...)
			if err != nil {
				return err
			}
			r.note(ctx, lifecycle.StateWaiting, n)
			lanes, cursor = lanes[n.lanes:], n.cursor
		}
	}
	return nil
}

func (r *verbRun) note(ctx context.Context, state lifecycle.State, n tallied) {
	r.tally.add(state, n)
	if r.by != nil && n.matched > 0 {
		store.Announce(ctx, r.client, r.queue) // the jobs may have held permits
	}
	if r.progress != nil {
		r.progress(r.tally)
	}
}

// tallied is the reply to one slice.
type tallied struct {
	done                bool
	cursor, state       string
	lanes, looked       int64
	matched, late, held int64
}

func (r *verbRun) slice(ctx context.Context, where, cursor string, more ...any) (tallied, error) {
	dry, most, reason := "1", lookSlice, ""
	if r.by != nil {
		dry, most, reason = "", changeSlice, "cancelled by "+r.by.Actor+": "+r.by.Reason
	}
	kind, failures := inspect.FailuresWanted(r.filter.Kind, r.filter.Reason, r.filter.Group)
	var n tallied
	err := r.windows.Run(ctx, func(calendars string) error {
		return store.Patient(ctx, func() (err error) {
			n, err = r.ask(ctx, append([]any{
				r.queue, string(r.verb), dry, where, cursor, most, rediskey.Escape(r.filter.Tenant), kind, r.began,
				reason, r.entry, r.tally.Jobs - r.before, calendars, failures,
			}, more...))
			return err
		})
	})
	r.audit.Unsure = r.audit.Unsure || r.by != nil && noAnswer(err)
	r.longest = max(r.longest, n.looked)
	return n, err
}

func (r *verbRun) ask(ctx context.Context, args []any) (tallied, error) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	reply, err := store.VerbsScript.Run(ctx, r.client, store.ScriptKeys(r.queue), args...)
	if err != nil {
		return tallied{}, err
	}
	read := store.Read(reply)
	n := tallied{
		done: read.Flag(), cursor: read.Text(), lanes: read.Int(), looked: read.Int(), matched: read.Int(),
		late: read.Int(), held: read.Int(), state: read.Text(),
	}
	return n, read.End()
}
