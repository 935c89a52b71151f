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
	"github.com/headgate/headgate/internal/partition"
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
// ones may appear twice. Partitions that do not answer are left out, which [Inspector.Overview]
// reports. Errors: [validation.Error]; [AwayError] if the page before ended in such a partition.
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
	released, homes := q.State == lifecycle.StatePending || q.State == lifecycle.StateActive, make([]string, 1)
	if q.Tenant != "" {
		homes[0], err = in.home(ctx, queue, q.Tenant)
	} else {
		var l partition.Layout
		l, homes, err = in.answering(ctx, queue)
		if err == nil && released && slices.Contains(l.Names(), at.id) && !slices.Contains(homes, at.id) {
			err = awayOf(l, homes)
		}
	}
	var page JobPage
	switch {
	case err != nil:
	case q.State == lifecycle.StateWaiting:
		page, err = in.waiting(ctx, homes, q, at)
	case released:
		page, err = in.released(ctx, homes, q, at)
	default:
		page, err = in.listed(ctx, homes, q, at)
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
	id    string // of a job, or for pending and active jobs the partition
	ended bool   // nothing comes after it
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

// listed returns jobs of sets that are in the order of their times. The partitions are merged. Each page
// ends where all that it looked at of one partition ended.
func (in *Inspector) listed(ctx context.Context, homes []string, q JobQuery, at jobCursor) (JobPage, error) {
	var page JobPage
	each := max(lookedOnce/len(homes), 20)
	for looked := 0; ; {
		type part struct {
			rows   []JobRow
			next   jobCursor
			looked int
		}
		parts, err := ofEach(homes, func(home string) (p part, err error) {
			p.rows, p.next, p.looked, err = in.jobs(ctx, home, q, at, q.Limit-len(page.Jobs), min(each, maxLooked-looked), nil, true)
			return p, err
		})
		if err != nil {
			return JobPage{}, err
		}
		end := jobCursor{ended: true}
		var rows []JobRow
		for _, p := range parts {
			looked += p.looked
			rows = append(rows, p.rows...)
			if !p.next.ended && (end.ended || q.compare(p.next, end) < 0) {
				end = p.next
			}
		}
		place := func(row JobRow) jobCursor {
			return jobCursor{at: strconv.FormatInt(row.At.UnixMicro(), 10), id: row.ID}
		}
		slices.SortStableFunc(rows, func(a, b JobRow) int { return q.compare(place(a), place(b)) })
		if !end.ended {
			rows = slices.DeleteFunc(rows, func(row JobRow) bool { return q.compare(place(row), end) > 0 })
		}
		if room := q.Limit - len(page.Jobs); len(rows) > room {
			rows = rows[:room]
			end = place(rows[room-1])
		}
		page.Jobs, page.Next, at = append(page.Jobs, rows...), end.text(), end
		if end.ended || len(page.Jobs) >= q.Limit || looked >= maxLooked {
			return page, nil
		}
	}
}

// compare orders places in a set as jobs.lua does.
func (q JobQuery) compare(a, b jobCursor) int {
	x, _ := strconv.ParseInt(a.at, 10, 64)
	y, _ := strconv.ParseInt(b.at, 10, 64)
	order := cmp.Or(cmp.Compare(x, y), strings.Compare(a.id, b.id))
	if q.State == lifecycle.StateArchived {
		return -order
	}
	return order
}

// released returns jobs of lists, of one partition after the other.
func (in *Inspector) released(ctx context.Context, homes []string, q JobQuery, at jobCursor) (JobPage, error) {
	i := max(slices.Index(homes, at.id), 0)
	var page JobPage
	for looked := 0; ; {
		rows, next, n, err := in.jobs(ctx, homes[i], q, jobCursor{at: at.at}, q.Limit-len(page.Jobs), min(lookedOnce, maxLooked-looked), nil, true)
		if err != nil {
			return JobPage{}, err
		}
		if next.id = homes[i]; next.ended && i+1 < len(homes) {
			i++
			next = jobCursor{at: "0", id: homes[i]}
		}
		page.Jobs, page.Next, at = append(page.Jobs, rows...), next.text(), next
		if looked += n; next.ended || len(page.Jobs) >= q.Limit || looked >= maxLooked {
			return page, nil
		}
	}
}

// laneIn is a lane and its partition.
type laneIn struct{ home, name string }

// waiting returns jobs that are in lanes: those of one tenant together, if it has few
// lanes, and otherwise one lane after the other.
func (in *Inspector) waiting(ctx context.Context, homes []string, q JobQuery, at jobCursor) (JobPage, error) {
	lanes, merged, err := in.lanesBehind(ctx, homes, q.Tenant, at.lane)
	if err != nil {
		return JobPage{}, err
	}
	if !merged && len(lanes) > 0 && lanes[0].name != at.lane {
		at = jobCursor{}
	}
	var page JobPage
	for looked, seen := 0, 0; len(lanes) > 0; {
		home, some := lanes[0].home, []string(nil)
		for _, l := range lanes[:min(len(lanes), lanesOnce)] {
			if l.home != home {
				break
			}
			some = append(some, l.name)
		}
		if seen >= maxLooked || looked >= maxLooked || len(page.Jobs) >= q.Limit {
			page.Next = jobCursor{lane: lanes[0].name, at: at.at, id: at.id}.text()
			return page, nil
		}
		seen += len(some)
		rows, next, n, err := in.jobs(ctx, home, q, at, q.Limit-len(page.Jobs), min(lookedOnce, maxLooked-looked), some, merged)
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
			lanes, at = lanes[max(slices.Index(some, next.lane), 0):], next
		}
	}
	return page, nil
}

// lanesBehind returns the lanes of a tenant ("": of all, by tenant and name), and whether
// they are merged. If they are not, it returns only the lanes from `from` on.
func (in *Inspector) lanesBehind(ctx context.Context, homes []string, tenant, from string) (lanes []laneIn, merged bool, err error) {
	if tenant == "" {
		known, err := ofEach(homes, func(home string) ([]laneIn, error) {
			list, err := in.tenantList(ctx, home)
			if err != nil {
				return nil, err
			}
			return lanesOf(home, list.lanesFrom(from)), nil
		})
		lanes = slices.Concat(known...)
		if len(homes) > 1 {
			slices.SortFunc(lanes, func(a, b laneIn) int { return compareLanes(a.name, b.name) })
		}
		return lanes, false, err
	}
	home, escaped := homes[0], rediskey.Escape(tenant)
	stored, err := effective.ReadQueue(ctx, in.redis, home)
	if err != nil {
		return nil, false, err
	}
	if len(stored.Attributes) == 0 {
		return []laneIn{{home, escaped}}, true, nil
	}
	known, err := in.tenantList(ctx, home)
	if err != nil {
		return nil, false, err
	}
	names := append([]string{escaped}, known.lanes[escaped]...)
	slices.Sort(names)
	if len(names) <= lanesOnce {
		return lanesOf(home, names), true, nil
	}
	at, _ := slices.BinarySearch(names, from)
	return lanesOf(home, names[at:]), false, nil
}

func lanesOf(home string, names []string) []laneIn {
	lanes := make([]laneIn, len(names))
	for i, name := range names {
		lanes[i] = laneIn{home, name}
	}
	return lanes
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
	queues, err := store.AllPartitions(ctx, client)
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
			found = append(found, partition.QueueOf(queues[i]))
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
