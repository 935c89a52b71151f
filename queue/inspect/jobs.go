package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/validation"
)

// JobQuery selects jobs of a queue.
type JobQuery struct {
	State  lifecycle.State // required
	Tenant string          // "": any
	Kind   string          // "": any
	Reason string          // of archived jobs, as in [operate.Filter]; "": any
	Group  *FailureKey     // of archived jobs, as in [operate.Filter]; nil: any
	Cursor string          // [JobPage.Next] of the previous page; "": the first page
	Limit  int             // number of jobs, at most 200; 0 means 50
}

const (
	defaultJobs = 50
	maxJobs     = 200

	// The maximum number of jobs that a page, and a script, looks at.
	maxLooked  = 500
	lookedOnce = 250
	lanesOnce  = 50
)

// check sets defaults and returns the error for the first invalid field.
func (q *JobQuery) check() error {
	states := []lifecycle.State{lifecycle.StateWaiting, lifecycle.StateScheduled, lifecycle.StateRetry, lifecycle.StatePending, lifecycle.StateActive, lifecycle.StateArchived}
	if !slices.Contains(states, q.State) {
		return validation.Field("state", fmt.Sprintf("%s is not one of %s", check.Quote(string(q.State)), lifecycle.Join(states)))
	}
	if reason := check.Text(q.Tenant, check.MaxTenant); q.Tenant != "" && reason != "" {
		return validation.Field("tenant", reason)
	}
	if q.Kind != "" && !check.KindPattern.MatchString(q.Kind) {
		return validation.Field("kind", check.Quote(q.Kind)+" is not 1 to 64 letters, digits, '.', '_', '-' or ':'")
	}
	if reason := check.Text(q.Reason, store.MaxContained); q.Reason != "" && reason != "" {
		return validation.Field("reason", reason)
	}
	if q.Reason != "" && q.State != lifecycle.StateArchived {
		return validation.Field("reason", "only archived jobs have a reason")
	}
	if q.Group != nil {
		if q.State != lifecycle.StateArchived {
			return validation.Field("group", "only archived jobs are in groups")
		}
		if err := q.Group.Check(q.Kind, q.Reason); err != nil {
			return err
		}
	}
	if q.Limit = cmp.Or(q.Limit, defaultJobs); q.Limit < 0 || q.Limit > maxJobs {
		return validation.Field("limit", fmt.Sprintf("%d must be 1 to %d", q.Limit, maxJobs))
	}
	return nil
}

// JobRow is a job in a list.
type JobRow struct {
	ID, Kind, Tenant string

	State    lifecycle.State
	Outcome  lifecycle.Outcome // of an archived job
	Priority string
	Attempt  int       // the next or current attempt, from 1
	At       time.Time // when it began to wait, is due, was released, has its slot, or was archived
	Reason   string    // why it last failed or was archived
}

// JobPage is a part of a queue's jobs.
type JobPage struct {
	Jobs []JobRow
	Next string // the cursor of the next page; "": this is the last
}

// ListJobs returns jobs of one state. Waiting jobs of a tenant come in the order in which
// they will go; those of all tenants come one tenant after the other, by name. Scheduled
// and retried jobs come in the order of their time. Archived, released and active jobs
// come newest first. A page looks at 500 jobs at most, so with filters it may have few
// jobs or none, and a Next nevertheless. Jobs move meanwhile: some released and active
// ones may appear twice. Errors: [validation.Error].
func (in *Inspector) ListJobs(ctx context.Context, queue string, q JobQuery) (JobPage, error) {
	if err := q.check(); err != nil {
		return JobPage{}, err
	}
	if err := store.CheckQueue(ctx, in.redis, queue); err != nil {
		return JobPage{}, err
	}
	at, err := readCursor(q)
	if err != nil {
		return JobPage{}, err
	}
	var page JobPage
	if q.State == lifecycle.StateWaiting {
		page, err = in.waiting(ctx, queue, q, at)
	} else {
		page, err = in.listed(ctx, queue, q, at)
	}
	if err != nil {
		return JobPage{}, fmt.Errorf("list the jobs of queue %q: %w", queue, err)
	}
	return page, nil
}

// jobCursor is where a page ended.
type jobCursor struct {
	lane  string // for waiting jobs
	at    string // µs, or how many jobs were looked at; "" at the beginning
	id    string
	ended bool // nothing comes after it
}

const maxCursor = 4096

// text returns the cursor for the caller: "LANE at id". LANE and at contain no spaces.
func (c jobCursor) text() string {
	if c.ended {
		return ""
	}
	return c.lane + " " + c.at + " " + c.id
}

// readCursor reads what text returns. A cursor comes from outside and cannot be trusted.
func readCursor(q JobQuery) (jobCursor, error) {
	if q.Cursor == "" {
		return jobCursor{}, nil
	}
	wrong := validation.Field("cursor", check.Quote(q.Cursor)+" is not a cursor of this list; use that of the previous page")
	parts := strings.SplitN(q.Cursor, " ", 3)
	if len(parts) != 3 || len(q.Cursor) > maxCursor {
		return jobCursor{}, wrong
	}
	c := jobCursor{lane: parts[0], at: parts[1], id: parts[2]}
	number, err := strconv.ParseUint(c.at, 10, 53)
	if c.at != "" && (err != nil || strconv.FormatUint(number, 10) != c.at) {
		return jobCursor{}, wrong
	}
	if (c.lane != "") != (q.State == lifecycle.StateWaiting) || c.at == "" && q.State != lifecycle.StateWaiting {
		return jobCursor{}, wrong
	}
	return c, nil
}

// listed returns jobs that are not in lanes.
func (in *Inspector) listed(ctx context.Context, queue string, q JobQuery, at jobCursor) (JobPage, error) {
	var page JobPage
	for looked := 0; ; {
		rows, next, n, err := in.jobs(ctx, queue, q, at, q.Limit-len(page.Jobs), min(lookedOnce, maxLooked-looked), nil, true)
		if err != nil {
			return JobPage{}, err
		}
		page.Jobs, page.Next, at = append(page.Jobs, rows...), next.text(), next
		if looked += n; next.ended || len(page.Jobs) >= q.Limit || looked >= maxLooked {
			return page, nil
		}
	}
}

// waiting returns jobs that are in lanes: those of one tenant together, if it has few
// lanes, and otherwise one lane after the other.
func (in *Inspector) waiting(ctx context.Context, queue string, q JobQuery, at jobCursor) (JobPage, error) {
	lanes, merged, err := in.lanesBehind(ctx, queue, q.Tenant, at.lane)
	if err != nil {
		return JobPage{}, err
	}
	if !merged && len(lanes) > 0 && lanes[0] != at.lane {
		at = jobCursor{}
	}
	var page JobPage
	for looked, calls := 0, 0; len(lanes) > 0; calls++ {
		some := lanes[:min(len(lanes), lanesOnce)]
		if calls == maxLooked/lanesOnce || looked >= maxLooked || len(page.Jobs) >= q.Limit {
			page.Next = jobCursor{lane: lanes[0], at: at.at, id: at.id}.text()
			return page, nil
		}
		rows, next, n, err := in.jobs(ctx, queue, q, at, q.Limit-len(page.Jobs), min(lookedOnce, maxLooked-looked), some, merged)
		if err != nil {
			return JobPage{}, err
		}
		page.Jobs, looked = append(page.Jobs, rows...), looked+n
		switch {
		case next.ended:
			lanes, at = lanes[len(some):], jobCursor{}
		case merged:
			at = next
		default:
			lanes, at = lanes[max(slices.Index(lanes, next.lane), 0):], next
		}
	}
	return page, nil
}

// lanesBehind returns the lanes of a tenant ("": of all, by tenant and name), and whether
// they are merged. If they are not, it returns only the lanes from `from` on.
func (in *Inspector) lanesBehind(ctx context.Context, queue, tenant, from string) (lanes []string, merged bool, err error) {
	stored, err := effective.ReadQueue(ctx, in.redis, queue)
	if err != nil {
		return nil, false, err
	}
	if tenant != "" && len(stored.Attributes) == 0 {
		return []string{rediskey.Escape(tenant)}, true, nil
	}
	known, err := in.tenantList(ctx, queue)
	if err != nil {
		return nil, false, err
	}
	if tenant != "" {
		escaped := rediskey.Escape(tenant)
		lanes := append([]string{escaped}, known.lanes[escaped]...)
		slices.Sort(lanes)
		if len(lanes) <= lanesOnce {
			return lanes, true, nil
		}
		at, _ := slices.BinarySearch(lanes, from)
		return lanes[at:], false, nil
	}
	return known.lanesFrom(from), false, nil
}

// jobs runs jobs.lua. next is where it ended.
func (in *Inspector) jobs(ctx context.Context, queue string, q JobQuery, at jobCursor, rows, most int, lanes []string, merged bool) (jobs []JobRow, next jobCursor, looked int, err error) {
	asynqState, together := string(q.State), ""
	if q.State == lifecycle.StateWaiting {
		asynqState = "aggregating"
	}
	if merged {
		together = "1"
	}
	kind, failures := FailuresWanted(q.Kind, q.Reason, q.Group)
	args := []any{queue, asynqState, at.at, at.id, rows, most, rediskey.Escape(q.Tenant), kind, failures, together}
	for _, lane := range lanes {
		args = append(args, lane)
	}
	var reply any
	err = store.Patient(ctx, func() (err error) {
		reply, err = store.JobsScript.Run(ctx, in.redis, store.ScriptKeys(queue), args...)
		return err
	})
	if err != nil {
		return nil, next, 0, err
	}
	read := store.Read(reply)
	next = jobCursor{ended: read.Flag(), at: read.Text(), id: read.Text()}
	if i := read.Int(); i >= 1 && int(i) <= len(lanes) {
		next.lane = lanes[i-1]
	}
	looked = int(read.Int())
	for read.More() {
		row, err := jobRow(q.State, read)
		if err != nil {
			return nil, next, 0, fmt.Errorf("job %s: %w", check.Quote(row.ID), err)
		}
		jobs = append(jobs, row)
	}
	return jobs, next, looked, read.End()
}

// jobRow reads what jobs.lua returns about one job.
func jobRow(state lifecycle.State, read *store.Reply) (JobRow, error) {
	id, micros, text, forgiven, outcome, reason := read.Text(), read.Int(), read.Text(), read.Text(), lifecycle.Outcome(read.Text()), read.Text()
	m, err := asynqwire.Decode([]byte(text))
	if err != nil {
		return JobRow{ID: id}, err
	}
	row := JobRow{
		ID: id, Kind: m.Kind, Tenant: m.Tenant(), State: state, Priority: m.Priority(), Reason: cmp.Or(m.Failure, reason),
	}
	forgave, _ := strconv.Atoi(forgiven)
	row.Attempt = max(m.Retried-forgave+1, 1)
	switch state {
	case lifecycle.StateArchived:
		row.Outcome = lifecycle.Archived
		if outcome.Failed() {
			row.Outcome = outcome
		}
	case lifecycle.StateWaiting:
		micros %= store.BandScores
	}
	if micros > 0 {
		row.At = time.UnixMicro(micros)
	}
	return row, nil
}

// QueuesOf returns the queues that have a job of this id, sorted by name: ids are unique only
// within a queue.
func QueuesOf(ctx context.Context, client redis.UniversalClient, id string) ([]string, error) {
	queues, err := Queues(ctx, client)
	if err != nil {
		return nil, err
	}
	pipe := client.Pipeline()
	replies := make([]*redis.IntCmd, len(queues))
	for i, queue := range queues {
		replies[i] = pipe.Exists(ctx, asynqwire.Key(queue, "t:"+id))
	}
	if err := store.Execute(ctx, pipe); err != nil {
		return nil, fmt.Errorf("look for job %s: %w", check.Quote(id), err)
	}
	var found []string
	for i, reply := range replies {
		if reply.Val() > 0 {
			found = append(found, queues[i])
		}
	}
	slices.Sort(found)
	return found, nil
}
