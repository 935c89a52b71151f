package dashboard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/queue"
)

// Queues says of which queues [Metrics] shows what stands in Redis.
type Queues struct {
	Inspector *queue.Inspector // shared with whoever else asks it
	Names     []string
	Tenants   Tenants
	Logger    *slog.Logger
}

// Queues shows what stands in Redis of some queues, which is the same at every
// worker that serves them: aggregate it by max, not by sum. A scrape reads Redis
// at most once a second, however many scrape, and gives up after two.
func (m *Metrics) Queues(q Queues) {
	m.Serve(q.Names...)
	m.registry.MustRegister(&queues{Queues: q})
}

const (
	readingAge   = time.Second     // for which a reading is shown again
	readingBound = 2 * time.Second // a scrape waits so long; Prometheus itself waits for ten
	tenantsPage  = 200
)

// reading is what was read of one queue.
type reading struct {
	gauges  queue.Gauges
	drain   time.Duration // until nothing waits; below 0: not known
	allowed float64
	tenants []queue.TenantGauges
}

// forecast adds when the queue drains: unlike its numbers it takes a while where
// there are many lanes, and the numbers are shown without it, too.
func (q *Queues) forecast(ctx context.Context, r *reading) error {
	if r.gauges.Waiting == 0 {
		return nil
	}
	r.drain = -1
	overview, err := q.Inspector.Overview(ctx, r.gauges.Queue)
	if err != nil {
		return err
	}
	r.allowed = overview.Allowed
	if overview.Waiting == 0 {
		r.drain = 0
	} else if !overview.DrainsAt.IsZero() {
		r.drain = max(overview.DrainsAt.Sub(overview.Now), 0)
	}
	return nil
}

// shown reads the tenants that have series.
func (q *Queues) shown(ctx context.Context, name string) ([]queue.TenantGauges, error) {
	var tenants []queue.TenantGauges
	seen := map[string]bool{}
	for offset := 0; offset < q.Tenants.Top; offset += tenantsPage {
		page, err := q.Inspector.ListTenants(ctx, name, queue.TenantQuery{Offset: offset, Limit: min(q.Tenants.Top-offset, tenantsPage)})
		if err != nil {
			return nil, err
		}
		for _, t := range page.Tenants {
			// Their order may change between two pages, and one stand on both.
			if !seen[t.Tenant] {
				seen[t.Tenant] = true
				tenants = append(tenants, queue.TenantGauges{Tenant: t.Tenant, Waiting: t.Waiting, Done: t.Done})
			}
		}
		if len(page.Tenants) < tenantsPage {
			break
		}
	}
	named, err := q.Inspector.TenantGauges(ctx, name, q.Tenants.Named)
	return append(tenants, named...), err
}

// queues is the collector. Redis may be away or silent: then it says so, and shows
// nothing that is old.
type queues struct {
	Queues

	mu      sync.Mutex
	last    *look
	current *look // under way; nil: none is
	failing bool
}

// look is one reading of all queues; what was not read is not in it.
type look struct {
	done     chan struct{} // closed when the rest is there
	at       time.Time
	workers  int64 // below 0: not known
	readings map[string]*reading
}

// latest is the look of just now, or nil if Redis did not answer in time.
func (c *queues) latest() *look {
	c.mu.Lock()
	if c.last != nil && time.Since(c.last.at) < readingAge {
		defer c.mu.Unlock()
		return c.last
	}
	if c.current == nil {
		c.current = &look{done: make(chan struct{}), readings: map[string]*reading{}}
		go c.take(c.current)
	}
	current := c.current
	c.mu.Unlock()
	timer := time.NewTimer(readingBound)
	defer timer.Stop()
	select {
	case <-current.done:
		return current
	case <-timer.C: // go-redis may wait longer for a server that is silent
		c.complain(fmt.Errorf("redis did not answer within %v", readingBound))
		return nil
	}
}

// take reads the queues, all of them within the bound.
func (c *queues) take(into *look) {
	ctx, cancel := context.WithTimeout(context.Background(), readingBound)
	defer cancel()
	workers, err := c.Inspector.CountWorkers(ctx)
	if into.workers = workers; err != nil {
		into.workers = -1
	}
	errs := []error{err}
	for _, name := range c.Names {
		gauges, err := c.Inspector.Gauges(ctx, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		into.readings[name] = &reading{gauges: gauges}
	}
	for _, name := range c.Names {
		if r := into.readings[name]; r != nil {
			r.tenants, err = c.shown(ctx, name)
			errs = append(errs, c.forecast(ctx, r), err)
		}
	}
	c.complain(errors.Join(errs...))
	c.mu.Lock()
	into.at = time.Now()
	c.last, c.current = into, nil
	c.mu.Unlock()
	close(into.done)
}

// complain logs that reading fails, once until it works again.
func (c *queues) complain(err error) {
	c.mu.Lock()
	known := c.failing
	c.failing = err != nil
	c.mu.Unlock()
	if err != nil && !known {
		c.Logger.Warn("the queues cannot be read for metrics; it goes on trying", "error", err)
	}
}

func queueDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"queue"}, labels...), nil)
}

var (
	queueUp      = queueDesc("headgate_queue_up", "1 when the queue's numbers could be read from Redis for this scrape; 0 when not, and then they are left out.")
	backlogJobs  = queueDesc("headgate_backlog_jobs", "Jobs that wait in lanes.")
	queueJobs    = queueDesc("headgate_jobs", "Jobs beside those that wait in lanes, by state.", "state")
	jobsEnqueued = queueDesc("headgate_jobs_enqueued_total", "Jobs accepted by the queue from all clients.")
	drainSeconds = queueDesc("headgate_drain_seconds", "Time until nothing waits any more, as things are; left out when it is not known.")
	allowedRate  = queueDesc("headgate_allowed_jobs_per_second", "Jobs a second that limits let go of what waits; 0: nothing waits, or it is not known.")
	tenantsWait  = queueDesc("headgate_tenants_waiting", "Tenants with jobs in lanes.")
	pausedUntil  = queueDesc("headgate_paused_until_timestamp_seconds", "When a pause of the queue or of a kind ends, Unix time; 0: it is not paused; +Inf: when somebody resumes it.", "scope")

	limitRate     = queueDesc("headgate_limit_permits_per_second", "Permits a second that a limit admits, as its file says.", "limit", "scope", "unit")
	limitCapacity = queueDesc("headgate_limit_capacity_permits", "Permits that a full bucket of the limit holds; of a concurrency, calls at once.", "limit", "scope", "unit")
	limitUsed     = queueDesc("headgate_limit_used_ratio", "Part of the limit's bucket that is taken, 0 to 1; of a limit per tenant or attribute the mean over lanes drawn by chance, and left out while none waits.", "limit", "scope", "unit")
	limitAdapted  = queueDesc("headgate_limit_adapted_ratio", "Part of the limit's rate that is left after the provider asked for fewer calls, 1: all of it.", "limit", "scope", "unit")

	workersAlive = prometheus.NewDesc("headgate_workers", "Workers of this Redis that live, whatever queues they serve; one that died counts for up to 15 s.", nil, nil)

	tenantBacklog     = queueDesc("headgate_tenant_backlog_jobs", "Jobs of a tenant that wait in lanes, of the tenants that are shown.", "tenant")
	tenantDone        = queueDesc("headgate_tenant_calls_succeeded_total", "Calls of a tenant that succeeded, of the tenants that are shown.", "tenant")
	tenantsSuppressed = queueDesc("headgate_tenants_suppressed", "Tenants with jobs in lanes that have no series of their own.")

	// Under the names that asynq's own collector gives them (package x/metrics).
	asynqTasks     = queueDesc("asynq_tasks_enqueued_total", "Tasks by state, as asynq's collector shows them.", "state")
	asynqSize      = queueDesc("asynq_queue_size", "Tasks in the queue, those that wait in lanes among them.")
	asynqLatency   = queueDesc("asynq_queue_latency_seconds", "Time since the oldest pending task is pending.")
	asynqMemory    = queueDesc("asynq_queue_memory_usage_approx_bytes", "Memory of Redis that the queue takes, by the size of a few tasks; 0 where Redis does not say.")
	asynqProcessed = queueDesc("asynq_tasks_processed_total", "Runs of tasks, by whoever, succeeded or failed.")
	asynqFailed    = queueDesc("asynq_tasks_failed_total", "Runs of tasks that failed, by whoever.")
	asynqPaused    = queueDesc("asynq_queue_paused_total", "1 when asynq's tools paused the queue, else 0.")

	queueDescs = []*prometheus.Desc{
		workersAlive, queueUp, backlogJobs, queueJobs, jobsEnqueued, drainSeconds, allowedRate, tenantsWait, pausedUntil,
		limitRate, limitCapacity, limitUsed, limitAdapted, tenantBacklog, tenantDone, tenantsSuppressed,
		asynqTasks, asynqSize, asynqLatency, asynqMemory, asynqProcessed, asynqFailed, asynqPaused,
	}
)

// Describe is part of prometheus.Collector.
func (c *queues) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range queueDescs {
		out <- desc
	}
}

// Collect is part of prometheus.Collector.
func (c *queues) Collect(out chan<- prometheus.Metric) {
	var readings map[string]*reading
	if latest := c.latest(); latest != nil {
		readings = latest.readings
		if latest.workers >= 0 {
			out <- prometheus.MustNewConstMetric(workersAlive, prometheus.GaugeValue, float64(latest.workers))
		}
	}
	for _, name := range c.Names {
		s := series{out, name}
		r, ok := readings[name]
		s.gauge(queueUp, truth(ok))
		if ok {
			s.queue(r)
			s.limits(r.gauges)
			s.tenants(r)
			s.asynq(r.gauges)
		}
	}
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
