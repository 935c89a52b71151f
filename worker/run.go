package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/dashboard/metrics"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/server"
	"github.com/headgate/headgate/internal/settings"
	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/limitsfile"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/tracing"
	"github.com/headgate/headgate/throttle/limitmetrics"
)

// Program is a worker program that does not run yet. Its fields are for register, which adds
// handlers and whatever else the program has.
type Program struct {
	// Worker calls the handlers that register adds with [queue.Handle].
	Worker *queue.Worker

	// Client enqueues jobs, for example from handlers.
	Client *queue.Client

	// Redis is closed when the program has ended.
	Redis redis.UniversalClient

	// Metrics registers metrics of your own, which /metrics serves too.
	Metrics prometheus.Registerer

	// Details shows providers on the dashboard.
	Details *Details

	Logger *slog.Logger

	limits   fileLimits
	periodic []queue.Periodic
	parts    []part
	closers  []func()
}

// Go adds a part that runs beside the worker until the worker has finished its last call.
// run returns nil once ctx is done; any other end stops the program, and is an error.
func (p *Program) Go(run func(ctx context.Context) error) { p.parts = append(p.parts, run) }

// Defer adds a function that is called when the program has ended, the last one first.
func (p *Program) Defer(close func()) { p.closers = append(p.closers, close) }

// Periodic sets a periodic job once the limits are in effect, which say what its queue is. If it
// cannot be set, the program ends.
func (p *Program) Periodic(job queue.Periodic) { p.periodic = append(p.periodic, job) }

// AdjustLimits makes the program put adjust(limits) in effect instead of the limits of the
// limits file. If adjust later returns other limits, again puts them in effect.
func (p *Program) AdjustLimits(adjust func(limits.Set) (limits.Set, error)) (again func(context.Context) error) {
	p.limits.adjust = adjust
	return p.limits.again
}

func (p *Program) close() {
	for i := len(p.closers) - 1; i >= 0; i-- {
		p.closers[i]()
	}
}

// Run runs a worker program until ctx is done and its calls have finished. It calls register
// once, before the worker starts. Run returns nil after a regular end.
func Run(ctx context.Context, s Settings, register func(context.Context, *Program) error) error {
	if err := s.Validate(); err != nil {
		return &program.UsageError{Err: err}
	}
	set, err := s.limits()
	if err != nil {
		return err
	}
	if s.Queues, err = s.served(set); err != nil {
		return err
	}
	exports, err := telemetry.Read()
	if err != nil {
		return &program.UsageError{Err: err}
	}
	options, err := queue.ParseRedisURL(s.RedisURL)
	if err != nil {
		return err // Validate has checked it
	}
	tenants, err := metrics.ParseTenants(s.MetricsTenants)
	if err != nil {
		return err // Validate has checked it
	}

	keys, err := s.EncryptionKeys()
	if err != nil {
		return &program.UsageError{Err: err}
	}

	logger, client, registry := settings.Logger(os.Stderr, s.LogFormat), redisclient.New(options), metrics.NewRegistry()
	observer, inspector := metrics.New(registry), inspect.New(client).Decrypt(keys)
	jobs := queue.NewClient(client).FullAt(s.FullAt()).Encrypt(keys).Observe(limitmetrics.New(registry).Observe)
	observer.Queues(metrics.Queues{Inspector: inspector, Names: s.Queues, Tenants: tenants, Logger: logger})
	p := &Program{Client: jobs, Redis: client, Metrics: registry, Details: NewDetails(observer), Logger: logger}
	var web *server.Server
	changed := func(e operate.AuditEntry) {
		logger.Info("audit entry", "audit", e)
		web.Audit(e)
	}
	p.limits.publish = func(ctx context.Context, set limits.Set, lost bool) error {
		publish := operate.PublishBy
		if lost {
			publish = operate.Republish
		}
		return publish(ctx, client, set, operate.Operator{Reason: "limits file " + s.LimitsFile, Log: changed})
	}
	p.Defer(func() { client.Close() })
	defer p.close()
	p.Worker, err = queue.New(queue.Config{
		Redis: options, Queues: s.Queues, Concurrency: s.Concurrency, ShutdownTimeout: s.ShutdownTimeout,
		Logger: logger, Observer: observer, Details: p.Details.Read, PayloadKeys: keys,
	})
	if err != nil {
		return err
	}
	if err := queue.CheckRedis(ctx, client); err != nil {
		return err // before limits are published to it
	}
	serves := s.HTTP.Server(client, logger, registry, p.Worker.Ready)
	serves.Away = p.Worker.Away
	serves.API.Inspector, serves.API.PayloadKeys = inspector, keys
	if web, err = server.Open(serves); err != nil {
		return err
	}
	defer web.Close()
	p.Go(web.Run)
	spans, stopExports, err := exports.Start(ctx, telemetry.Program{Name: "headgate-worker", Metrics: registry, Logger: logger, Console: os.Stdout})
	if err != nil {
		return err
	}
	p.Defer(stopExports)
	if spans != nil {
		p.Worker.Use(tracing.Handle(tracing.Config{Provider: spans}))
		logger.Info("calls are traced", "traces", exports.Traces())
	}
	if err := register(ctx, p); err != nil {
		return err
	}

	if s.LimitsFile != "" {
		// A worker also starts if Redis is full, because it drains it, and without a node of a Cluster. The
		// watcher tries again.
		err := p.limits.put(ctx, set)
		if errors.Is(err, operate.ErrPartly) {
			logger.Warn("a node of the redis cluster does not answer: its limits stay in effect until those of the limits file can be published", "error", err)
		} else if redis.IsOOMError(err) && published(ctx, client, set) {
			logger.Warn("redis is full: its limits stay in effect until those of the limits file can be published", "error", err)
		} else if err != nil {
			return fmt.Errorf("put the limits of %s in effect: %w", s.LimitsFile, err)
		}
		file := limitsfile.NewWatcher(s.LimitsFile, logger, p.limits.put)
		others := &drift{redis: client, wanted: p.limits.inEffect, restore: p.limits.restore, logger: logger}
		p.Details.limitsFile(s.LimitsFile, file, others)
		p.Go(file.Run)
		p.Go(others.Run)
	}
	for _, job := range p.periodic {
		set := func(ctx context.Context) error { return p.Client.SetPeriodic(ctx, job) }
		if err := set(ctx); redis.IsOOMError(err) {
			logger.Warn("redis is full: a periodic job is set when it has memory again", "periodic", job.ID)
			p.Go(func(ctx context.Context) error { return setLater(ctx, logger, job.ID, set) })
		} else if err != nil {
			return fmt.Errorf("periodic job %q: %w", job.ID, err)
		}
	}
	logger.Info("worker runs", "queues", s.Queues, "kinds", p.Worker.Kinds(), "http", web.URL(), "admin", web.AdminAddr(), "redis", settings.RedactURL(s.RedisURL))
	if err := runParts(ctx, p.Worker.Run, p.parts...); err != nil {
		return err
	}
	logger.Info("worker stopped")
	return nil
}

// setLater sets a periodic job that a full Redis rejected, as soon as that is possible, and returns when ctx is done: a
// part that returns earlier stops the program.
func setLater(ctx context.Context, logger *slog.Logger, id string, set func(context.Context) error) error {
	for said := ""; wait.For(ctx, driftEvery) == nil; {
		err := set(ctx)
		if err == nil {
			<-ctx.Done()
		} else if text := err.Error(); !redis.IsOOMError(err) && ctx.Err() == nil && text != said {
			said = text
			logger.Warn("a periodic job cannot be set; retrying", "periodic", id, "error", err)
		}
	}
	return nil
}
