package metrics

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/fanout"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/validation"
)

// Queues configures [Metrics.Queues].
type Queues struct {
	Inspector *inspect.Inspector // can be shared
	Names     []string
	Tenants   Tenants
	Logger    *slog.Logger
}

// Queues exports metrics of queues that are read from Redis. They are identical on every worker
// that serves the queues: aggregate them with max, not sum. Redis is read at most once a second,
// regardless of the number of scrapes.
func (m *Metrics) Queues(q Queues) {
	for _, name := range q.Names {
		m.begin(name)
	}
	m.registry.MustRegister(&queues{Queues: q, numbers: &shared[numbers]{read: q.numbers}, forecasts: &shared[map[string]forecast]{read: q.forecasts}})
}

const (
	// The timeout for reading the numbers. A scrape waits a little longer, for those of nodes that
	// answer; after that, it reports that Redis does not answer.
	numbersBound = 2 * time.Second
	numbersWait  = numbersBound + numbersBound/4

	// The forecast and the tenants of a queue with many tenants take longer. A scrape waits a second
	// for them, and then exports the previous ones.
	forecastsBound = 30 * time.Second
	forecastsWait  = time.Second
)

// numbers are the metrics that can be read quickly.
type numbers struct {
	workers  int64                     // live workers; negative: unknown
	queues   map[string]inspect.Gauges // of the queues that could be read
	away     map[string]int            // partitions that do not answer, by queue
	unserved map[string]int64          // jobs of queues that no worker serves
}

func (q *Queues) numbers(ctx context.Context) (numbers, error) {
	ctx, cancel := context.WithTimeout(ctx, numbersBound)
	defer cancel()
	n := numbers{workers: -1, queues: map[string]inspect.Gauges{}, away: map[string]int{}}
	// Side by side, because the node of one may hang, and then its client waits longer than ctx.
	others := make(chan func() error, 2)
	go func() {
		workers, err := q.Inspector.CountWorkers(ctx)
		others <- func() error {
			if err == nil {
				n.workers = workers
			}
			return err
		}
	}()
	go func() {
		jobs, err := q.Inspector.UnservedJobs(ctx)
		others <- func() error { n.unserved = jobs; return err }
	}()
	all, errs := fanout.Ask(ctx, numbersBound, q.Names, q.Inspector.Gauges)
	for range cap(others) {
		select {
		case note := <-others:
			errs = append(errs, note())
		case <-ctx.Done():
			errs = append(errs, ctx.Err())
		}
	}
	for i, name := range q.Names {
		if errs[i] == nil {
			n.queues[name] = all[i]
		} else if away, ok := errors.AsType[*inspect.AwayError](errs[i]); ok {
			n.away[name] = away.Away
		}
	}
	return n, errors.Join(errs...)
}

// forecast is when a queue drains, and the metrics of its tenants.
type forecast struct {
	drain    time.Duration // until nothing waits; below 0: not known
	allowed  float64
	unserved int64 // jobs that wait and that no worker takes
	tenants  []inspect.TenantGauges
}

func (q *Queues) forecasts(ctx context.Context) (map[string]forecast, error) {
	ctx, cancel := context.WithTimeout(ctx, forecastsBound)
	defer cancel()
	read, errs := fanout.Ask(ctx, forecastsBound/3, q.Names, q.forecast)
	all := map[string]forecast{}
	for i, name := range q.Names {
		if errs[i] == nil {
			all[name] = read[i]
		} else if validation.Is(errs[i]) {
			errs[i] = nil // nothing was ever enqueued, and no limits were published
		}
	}
	return all, errors.Join(errs...)
}

func (q *Queues) forecast(ctx context.Context, name string) (forecast, error) {
	overview, err := q.Inspector.Overview(ctx, name)
	if err != nil {
		return forecast{}, err
	}
	f := forecast{drain: -1, allowed: overview.Allowed, unserved: overview.UnservedJobs}
	if overview.Waiting == 0 {
		f.drain = 0
	} else if !overview.DrainsAt.IsZero() {
		f.drain = max(overview.DrainsAt.Sub(overview.Now), 0)
	}
	f.tenants, err = q.shown(ctx, name)
	return f, err
}

// shown reads the tenants that have series.
func (q *Queues) shown(ctx context.Context, name string) ([]inspect.TenantGauges, error) {
	var tenants []inspect.TenantGauges
	if q.Tenants.Top > 0 {
		for t, err := range q.Inspector.Tenants(ctx, name, inspect.TenantQuery{Limit: min(q.Tenants.Top, inspect.MaxTenants)}) {
			if err != nil {
				return nil, err
			}
			tenants = append(tenants, inspect.TenantGauges{Tenant: t.Tenant, Waiting: t.Waiting, Done: t.Done, Stored: t.Stored, StoredBytes: t.StoredBytes})
			if len(tenants) == q.Tenants.Top {
				break
			}
		}
	}
	named, err := q.Inspector.TenantGauges(ctx, name, q.Tenants.Named)
	return append(tenants, named...), err
}

// queues is the collector. If Redis does not answer, it reports that and exports no old values.
type queues struct {
	Queues

	numbers   *shared[numbers]
	forecasts *shared[map[string]forecast]

	mu      sync.Mutex
	failing bool
}

// complain logs that reading fails, once until it succeeds again.
func (c *queues) complain(err error) {
	c.mu.Lock()
	known := c.failing
	c.failing = err != nil
	c.mu.Unlock()
	if err != nil && !known {
		c.Logger.Warn("the queues cannot be read for metrics; retrying", "error", err)
	}
}

func queueDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"queue"}, labels...), nil)
}

var (
	queueUp        = queueDesc("headgate_queue_up", "1 when the queue's numbers could be read from Redis for this scrape; 0 when not, and then they are left out.")
	partitionsAway = queueDesc("headgate_partitions_away", "Partitions of the queue whose Redis does not answer, while that of others does. The jobs of their tenants wait.")
	backlogJobs    = queueDesc("headgate_backlog_jobs", "Jobs that wait in lanes.")
	queueJobs      = queueDesc("headgate_jobs", "Jobs beside those that wait in lanes, by state.", "state")
	jobsEnqueued   = queueDesc("headgate_jobs_enqueued_total", "Jobs accepted by the queue from all clients.")
	directCalls    = queueDesc("headgate_direct_calls_total", "Slots that the queue's limits gave to calls without a job, of all programs; few of them were not used.")
	storedJobs     = queueDesc("headgate_stored_jobs", "Jobs in all states, completed jobs that are kept among them; what max_queue bounds.")
	storedBytes    = queueDesc("headgate_stored_bytes", "Size of the jobs in all states: messages, follow-ups, results, and 512 bytes for each; what max_queue_bytes bounds.")
	drainSeconds   = queueDesc("headgate_drain_seconds", "Time until nothing waits any more, as things are; left out when it is not known.")
	allowedRate    = queueDesc("headgate_allowed_jobs_per_second", "Jobs a second that limits let go of what waits; 0: nothing waits, or it is not known.")
	tenantsWait    = queueDesc("headgate_tenants_waiting", "Tenants with jobs in lanes.")
	unservedJobs   = queueDesc("headgate_unserved_jobs", "Jobs that could go and that no worker takes: none has a handler for their kind, or none serves their queue. Every worker shows this of queues that nobody serves, too.")
	scriptFaults   = queueDesc("headgate_script_faults", "Things in Redis that the queue's scripts could not understand in the last hour, such as a key of another type.")
	pausedUntil    = queueDesc("headgate_paused_until_timestamp_seconds", "When a pause of the queue, of a kind, or of a kind's account that is held back ends, Unix time; 0: it is not paused; +Inf: when somebody resumes it.", "scope")

	limitRate     = queueDesc("headgate_limit_permits_per_second", "Permits a second that a limit admits, as its file says.", "limit", "scope", "unit")
	limitCapacity = queueDesc("headgate_limit_capacity_permits", "Permits that a full bucket of the limit holds; of a concurrency, calls at once.", "limit", "scope", "unit")
	limitUsed     = queueDesc("headgate_limit_used_ratio", "Part of the limit's bucket that is taken, 0 to 1; of a limit per tenant or attribute the mean over lanes drawn by chance, and left out while none waits.", "limit", "scope", "unit")
	limitAdapted  = queueDesc("headgate_limit_adapted_ratio", "Part of the limit's rate that is left after the provider asked for fewer calls, 1: all of it.", "limit", "scope", "unit")

	workersAlive = prometheus.NewDesc("headgate_workers", "Workers of this Redis that live, whatever queues they serve; one that died counts for up to 15 s.", nil, nil)

	tenantBacklog     = queueDesc("headgate_tenant_backlog_jobs", "Jobs of a tenant that wait in lanes, of the tenants that are shown.", "tenant")
	tenantDone        = queueDesc("headgate_tenant_calls_succeeded_total", "Calls of a tenant that succeeded, of the tenants that are shown.", "tenant")
	tenantStored      = queueDesc("headgate_tenant_stored_jobs", "Jobs of a tenant in all states, of the tenants that are shown; what max_backlog bounds.", "tenant")
	tenantBytes       = queueDesc("headgate_tenant_stored_bytes", "Size of the jobs of a tenant in all states, of the tenants that are shown; what max_backlog_bytes bounds.", "tenant")
	tenantsSuppressed = queueDesc("headgate_tenants_suppressed", "Tenants with jobs in lanes that have no series of their own.")

	// With the names of asynq's own collector (package x/metrics).
	asynqTasks     = queueDesc("asynq_tasks_enqueued_total", "Tasks by state, as asynq's collector shows them.", "state")
	asynqSize      = queueDesc("asynq_queue_size", "Tasks in the queue, those that wait in lanes among them.")
	asynqLatency   = queueDesc("asynq_queue_latency_seconds", "Time since the oldest pending task is pending.")
	asynqMemory    = queueDesc("asynq_queue_memory_usage_approx_bytes", "Memory of Redis that the queue takes, by the size of a few tasks; 0 where Redis does not say.")
	asynqProcessed = queueDesc("asynq_tasks_processed_total", "Runs of tasks that succeeded or failed, those by other programs of asynq among them.")
	asynqFailed    = queueDesc("asynq_tasks_failed_total", "Runs of tasks that failed, those by other programs of asynq among them.")
	asynqPaused    = queueDesc("asynq_queue_paused_total", "1 when asynq's tools paused the queue, else 0.")

	queueDescs = []*prometheus.Desc{
		workersAlive, queueUp, partitionsAway, backlogJobs, queueJobs, jobsEnqueued, directCalls, storedJobs, storedBytes, drainSeconds, allowedRate, tenantsWait, unservedJobs, scriptFaults, pausedUntil,
		limitRate, limitCapacity, limitUsed, limitAdapted, tenantBacklog, tenantDone, tenantStored, tenantBytes, tenantsSuppressed,
		asynqTasks, asynqSize, asynqLatency, asynqMemory, asynqProcessed, asynqFailed, asynqPaused,
	}
)

// Describe implements prometheus.Collector.
func (c *queues) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range queueDescs {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *queues) Collect(out chan<- prometheus.Metric) {
	n, err := c.numbers.get(numbersWait, 0)
	var forecasts map[string]forecast
	if len(n.queues) > 0 {
		var late error
		forecasts, late = c.forecasts.get(forecastsWait, forecastsBound)
		err = errors.Join(err, late)
	}
	c.complain(err)
	if n.queues != nil && n.workers >= 0 {
		out <- prometheus.MustNewConstMetric(workersAlive, prometheus.GaugeValue, float64(n.workers))
	}
	for _, name := range c.Names {
		s := series{out, name}
		gauges, ok := n.queues[name]
		s.gauge(queueUp, truth(ok))
		s.gauge(partitionsAway, float64(n.away[name]))
		if ok {
			s.queue(gauges)
			s.limits(gauges)
			s.asynq(gauges)
			f, known := forecasts[name]
			s.forecast(gauges, f, known)
			if jobs := max(f.unserved, n.unserved[name]); known || jobs > 0 {
				s.gauge(unservedJobs, float64(jobs))
			}
		}
	}
	for name, jobs := range n.unserved {
		if !slices.Contains(c.Names, name) {
			series{out, name}.gauge(unservedJobs, float64(jobs))
		}
	}
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
