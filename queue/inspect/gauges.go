package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// gaugedLanes is how many lanes stand for all lanes of a queue in a [LimitGauge].
const gaugedLanes = 32

// Gauges is the numbers of a queue for metrics at one moment.
type Gauges struct {
	Queue string

	Waiting   int64 // jobs in lanes
	Scheduled int64 // jobs to be sent later
	Retry     int64 // failed jobs that will be retried
	Pending   int64 // released, not yet taken by a worker
	Active    int64 // held by a worker for their slot, or being sent
	Archived  int64 // including those that asynq's tools do not list
	Completed int64 // kept for their retention
	Enqueued  int64 // jobs ever accepted
	Direct    int64 // slots ever given to calls without a job
	Tenants   int64 // tenants with waiting jobs
	Faults    int64 // faults of scripts; see [Faults]

	Stored, StoredBytes int64 // jobs in all states and their size; see [Overview]

	Limits []LimitGauge
	Pauses []Pause // in force for the whole queue or a kind, and holds of the accounts of kinds

	Asynq AsynqGauges
}

// LimitGauge is a limit and how much of it is used.
type LimitGauge struct {
	Name  string
	Scope string // "queue" for a limit of the whole queue, else its per: "tenant", "tenant,domain"
	Unit  string // what it counts; "jobs" if the limit has no unit

	PerSecond float64 // permits per second; 0 for a concurrency limit
	Capacity  float64 // permits in a full bucket; for a concurrency limit, calls at once; 0: not known

	// Used is the used part of the bucket, 0 to 1. For limits with a per it is the mean
	// over the buckets of lanes drawn at random from those that hold jobs. Buckets is how
	// many buckets were read; if it is 0, Used is not known.
	Used    float64
	Buckets int64

	// Adapted is the part of the rate that the provider leaves, above 0 to 1; 1 for
	// limits that are not adaptive, and for those with a per.
	Adapted float64
}

// AsynqGauges is what asynq's own metrics report about a queue.
type AsynqGauges struct {
	Archived          int64         // archived jobs that asynq's tools list
	Processed, Failed int64         // runs of tasks, ever
	Paused            bool          // by asynq's tools
	Latency           time.Duration // since the oldest pending task is pending
	Bytes             int64         // memory used in Redis, estimated from a few tasks; 0 if Redis does not say
}

// Gauges reads the numbers of a queue, again at each call. It takes Redis about a
// millisecond, regardless of how many jobs wait in how many lanes. For a queue that does
// not exist they are zero. The error is an [AwayError] if some partitions of the queue do not
// answer.
func (in *Inspector) Gauges(ctx context.Context, queue string) (Gauges, error) {
	l, names, err := in.answering(ctx, queue)
	if err == nil && len(names) < len(l.Names()) {
		err = awayOf(l, names) // sums of some would look as if jobs had gone
	}
	var all []Gauges
	if err == nil {
		all, err = ofEach(names, func(name string) (Gauges, error) { return in.gaugesIn(ctx, name) })
	}
	if err != nil {
		return Gauges{}, fmt.Errorf("gauges of queue %q: %w", queue, err)
	}
	return mergeGauges(queue, all), nil
}

func (in *Inspector) gaugesIn(ctx context.Context, queue string) (Gauges, error) {
	var rules limits.Queue
	var reply any
	for try := 1; ; try++ {
		stored, err := effective.ReadQueue(ctx, in.redis, queue)
		if err != nil {
			return Gauges{}, err
		}
		if rules, err = stored.Decode(); err != nil {
			return Gauges{}, err
		}
		now, err := store.Time(ctx, in.redis, store.Key(queue, "limits"))
		if err != nil {
			return Gauges{}, err
		}
		calendars, err := stored.Calendars(now)
		if err != nil {
			return Gauges{}, err
		}
		args := []any{queue, calendars, gaugedLanes, store.WholeQueue}
		for _, kind := range rules.Kinds {
			args = append(args, store.KindScope(rediskey.Escape(kind)), store.AccountScope(rediskey.Escape(kind)))
		}
		err = store.Patient(ctx, func() (err error) {
			reply, err = store.GaugesScript.Run(ctx, in.redis, store.ScriptKeys(queue), args...)
			return err
		})
		if err == nil {
			break
		}
		// The limits were changed meanwhile.
		if !effective.Stale(err) || try == 3 {
			return Gauges{}, err
		}
	}
	return gaugesOf(rules, reply)
}

func gaugesOf(rules limits.Queue, reply any) (Gauges, error) {
	read := store.Read(reply)
	now, n, seen := read.Int(), read.List(), read.List()
	g := Gauges{Waiting: n.Int(), Tenants: n.Int(), Enqueued: n.Int()}
	moved := n.Int()
	g.Scheduled, g.Retry, g.Pending, g.Active = n.Int(), n.Int(), n.Int(), n.Int()
	g.Asynq.Archived, g.Completed, g.Asynq.Processed, g.Asynq.Failed, g.Asynq.Paused = n.Int(), n.Int(), n.Int(), n.Int(), n.Flag()
	g.Archived = g.Asynq.Archived + moved
	if since := n.Int(); since > 0 {
		g.Asynq.Latency = max(time.Duration(now-since)*time.Microsecond, 0)
	}
	g.Asynq.Bytes, g.Faults, g.Stored, g.StoredBytes, g.Direct = n.Int(), n.Int(), n.Int(), n.Int(), n.Int()
	for _, limit := range rules.Limits {
		g.Limits = append(g.Limits, limitGauge(limit, seen.List()))
	}
	for pauses := read.List(); pauses.More(); {
		one := pauses.List()
		g.Pauses = append(g.Pauses, ParsePause(one.Text(), one.Text()))
	}
	return g, cmp.Or(read.End(), n.End(), seen.End())
}

// limitGauge joins a limit with what gauges.lua returns about it.
func limitGauge(limit limits.Limit, read *store.Reply) LimitGauge {
	g := LimitGauge{Name: limit.Name, Scope: "queue", Unit: "jobs"}
	if limit.Algorithm != throttle.Concurrency {
		g.PerSecond = perSecond(effective.Spec(limit), limit)
	}
	if limit.Unit != "" {
		g.Unit = limit.Unit
	}
	if len(limit.Per) > 0 {
		g.Scope = strings.Join(limit.Per, ",")
	}
	g.Buckets, g.Used, g.Capacity, g.Adapted = read.Int(), read.Float(), read.Float(), read.Float()
	return g
}

// TenantGauges is the numbers of a tenant in a queue for metrics.
type TenantGauges struct {
	Tenant  string
	Waiting int64 // jobs in its lanes
	Done    int64 // calls that succeeded, ever

	Stored, StoredBytes int64 // jobs in all states, and their size
}

// TenantGauges returns the numbers of these tenants, in their order. Tenants with a partition that does not answer are
// left out.
func (in *Inspector) TenantGauges(ctx context.Context, queue string, tenants []string) ([]TenantGauges, error) {
	if len(tenants) == 0 {
		return nil, nil
	}
	l, answering, err := in.answering(ctx, queue)
	if err != nil {
		return nil, fmt.Errorf("tenants of queue %q: %w", queue, err)
	}
	tenants = slices.DeleteFunc(slices.Clone(tenants), func(tenant string) bool {
		return slices.ContainsFunc(l.Homes(tenant), func(home string) bool { return !slices.Contains(answering, home) })
	})
	fields, places := map[string][]string{}, map[string][]int{} // by partition
	for i, tenant := range tenants {
		for _, home := range l.Homes(tenant) {
			fields[home], places[home] = append(fields[home], rediskey.Escape(tenant)), append(places[home], i)
		}
	}
	pipe, counted := in.redis.Pipeline(), map[string]*redis.SliceCmd{}
	for home, names := range fields {
		counted[home] = pipe.HMGet(ctx, store.TenantsKey(home), names...)
	}
	if err := store.Execute(ctx, pipe); err != nil {
		return nil, fmt.Errorf("tenants of queue %q: %w", queue, err)
	}
	all := make([]TenantGauges, len(tenants))
	for home, reply := range counted {
		for n, text := range store.Texts(reply.Val()) {
			i, n := places[home][n], store.ReadCounts(text)
			g := &all[i] // a tenant that moves may have two partitions
			g.Tenant, g.Waiting, g.Done, g.Stored, g.StoredBytes = tenants[i], g.Waiting+n.Waiting, g.Done+n.Done, g.Stored+n.Jobs, g.StoredBytes+n.Bytes
		}
	}
	return all, nil
}
