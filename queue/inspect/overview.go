package inspect

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/fluid"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// Overview is the state of a queue.
type Overview struct {
	Queue string
	Now   time.Time // on the clock of Redis, to which all times refer

	Waiting   int64 // jobs in lanes
	Scheduled int64 // jobs to be sent later
	Retry     int64 // failed jobs that will be retried
	Pending   int64 // released, not yet taken by a worker
	Active    int64 // held by a worker for their slot, or being sent
	Archived  int64 // including those that asynq's tools do not list
	Enqueued  int64 // jobs ever accepted
	Tenants   int64 // tenants with waiting jobs

	// Stored is how many jobs there are in all states, also completed jobs that are kept, and
	// StoredBytes their size: what max_queue and max_queue_bytes count. Jobs that asynq's own
	// client enqueued are not in it.
	Stored, StoredBytes int64

	Allowed    float64    // waiting jobs per second that the limits admit; 0: no job waits, or not known
	DrainsAt   time.Time  // when the last waiting job will have gone; zero: no job waits, or not known
	Confidence Confidence // the confidence of DrainsAt
	Top        *Outlook   // the slowest of the waiting tenants that were read; nil: no job waits

	Answers map[lifecycle.Answer]int64 // calls ever made by all workers, by their answer
	Calls   int64                      // the sum of Answers

	// Unserved is why no worker takes jobs of the queue: no worker serves it, workers
	// have no handlers for kinds of waiting jobs, or partitions do not answer. UnservedJobs is how
	// many jobs wait because of that. Partitions that do not answer are not counted in any number.
	Unserved     []Unserved
	UnservedJobs int64

	Moving *Moving // nil: no tenant moves to another partition

	// Pauses are those in force: of the whole queue and of kinds, then of tenants by
	// name, 100 at most.
	Pauses []Pause

	Faults []Fault // damaged data that scripts found; see [Faults]
}

// maxPauses is the maximum number of pauses in an overview.
const maxPauses = 100

// Overview reads a queue's state. It returns a [validation.Error] if the queue does not
// exist.
func (in *Inspector) Overview(ctx context.Context, queue string) (Overview, error) {
	if err := store.CheckQueue(ctx, in.redis, queue); err != nil {
		return Overview{}, err
	}
	l, names, err := in.answering(ctx, queue)
	var all []Overview
	if err == nil {
		all, err = ofEach(names, func(name string) (o Overview, err error) {
			err = in.ask(ctx, name, func(f *forecast) (err error) {
				o, err = f.overview(ctx, in.redis)
				return err
			})
			return o, err
		})
	}
	if err != nil {
		return Overview{}, fmt.Errorf("overview of queue %q: %w", queue, err)
	}
	o := mergeOverviews(all)
	if away := awayOf(l, names); away.Away > 0 {
		o.Unserved = append(o.Unserved, Unserved{Queue: queue, Away: away.Away, Of: away.Of})
	}
	if l.From != nil {
		o.Moving = &Moving{queue, l.From.N, l.N}
	}
	return o, nil
}

func (f *forecast) overview(ctx context.Context, client redis.UniversalClient) (Overview, error) {
	run, err := f.all()
	if err != nil {
		return Overview{}, err
	}
	tenant, last, sure := f.lastTenant(run.members)
	queue := f.queue
	pipe := client.Pipeline()
	now := f.check(ctx, pipe, client)
	waits := pipe.HMGet(ctx, store.TenantsKey(queue), tenant)
	whole := pipe.HGet(ctx, store.TenantsKey(queue), store.WholeQueue)
	totals := pipe.HGetAll(ctx, store.Key(queue, "totals"))
	scheduled := pipe.ZCard(ctx, asynqwire.Key(queue, "scheduled"))
	retry := pipe.ZCard(ctx, asynqwire.Key(queue, "retry"))
	pending := pipe.LLen(ctx, asynqwire.Key(queue, "pending"))
	active := pipe.LLen(ctx, asynqwire.Key(queue, "active"))
	archived := pipe.ZCard(ctx, asynqwire.Key(queue, "archived"))
	moved := pipe.ZCard(ctx, store.Key(queue, "archive"))
	if err := store.Execute(ctx, pipe); err != nil {
		return Overview{}, err
	}
	if err := now(); err != nil {
		return Overview{}, err
	}
	faults, err := faultsIn(ctx, client, queue)
	if err != nil {
		return Overview{}, err
	}
	counted := store.ReadCounts(whole.Val())
	o := Overview{
		Queue: partition.QueueOf(queue), Now: f.asked, Scheduled: scheduled.Val(), Retry: retry.Val(), Pending: pending.Val(), Active: active.Val(),
		Archived: archived.Val() + moved.Val(), Tenants: counted.Tenants, Waiting: counted.Waiting, Stored: counted.Jobs, StoredBytes: counted.Bytes, Confidence: Steady, Pauses: pausesInForce(f.pauses, f.asked), Faults: faults,
	}
	o.Enqueued, _ = strconv.ParseInt(totals.Val()["enqueued"], 10, 64)
	o.Answers, o.Calls = store.ReadAnswers(totals.Val())
	o.Pauses = o.Pauses[:min(len(o.Pauses), maxPauses)]
	o.Unserved, o.UnservedJobs = f.unservedJobs(o.Waiting)
	if o.Waiting <= 0 {
		return o, nil
	}
	if o.Allowed, o.Confidence = run.allowed, sure; last.n == 0 {
		o.Confidence = NoForecast // all waiting jobs came since
		return o, nil
	}
	f.backlog = waitingOf([]string{tenant}, waits)
	if f.backlog[tenant] <= 0 { // its jobs went since
		f.backlog[tenant] = last.jobs
	}
	o.Top = new(f.outlooks(run.members, tenant)[tenant])
	if sure != NoForecast {
		o.DrainsAt = o.Top.DrainsAt
	}
	return o, nil
}

// lastTenant returns the tenant that finishes last, escaped, after the model ran, and the
// confidence in when all have finished. A tenant whose end is not known is the last.
func (f *forecast) lastTenant(members []*fluid.Member) (tenant string, last tenantLanes, sure Confidence) {
	sure = Steady
	for name, sum := range f.byTenant(members) {
		at := members[sum.last].At
		switch f.confidence(&f.lanes[sum.last], at, sum.n) {
		case NoForecast:
			sure = NoForecast
		case Rough:
			if sure == Steady {
				sure = Rough
			}
		}
		if last.n == 0 || cmp.Or(cmp.Compare(at, members[last.last].At), cmp.Compare(sum.jobs, last.jobs), strings.Compare(tenant, name)) > 0 {
			tenant, last = name, sum
		}
	}
	return tenant, last, sure
}

// check adds to a pipeline the reads of the version and the time. Call its result when
// the pipeline was sent: it returns errChanged if the forecast is out of date.
func (f *forecast) check(ctx context.Context, pipe redis.Pipeliner, client redis.Cmdable) func() error {
	of, now := readVersion(ctx, pipe, f.queue), store.AddTime(ctx, pipe, client, store.Key(f.queue, "waiting"))
	return func() error {
		if versionOf(of.Val()) != f.version && !f.final {
			return errChanged
		}
		if !f.fresh {
			f.asked = now.Val()
		}
		return nil
	}
}
