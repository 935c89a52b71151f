package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/dashboard/metrics"
	"github.com/headgate/headgate/internal/endpoints"
	"github.com/headgate/headgate/internal/server"
	"github.com/headgate/headgate/internal/settings"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/limitsfile"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/tracing"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Serve queues until stopped by SIGINT or SIGTERM",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := readConfig(cmd)
			if err != nil {
				return err
			}
			settings.Steady()
			return run(cmd.Context(), c)
		},
	}
	settings.AddFlags(cmd, new(config))
	return cmd
}

// run is the list of a worker's parts.
func run(ctx context.Context, c config) error {
	logger := c.logger()
	options, err := c.redis()
	if err != nil {
		return err
	}
	set, err := c.limits()
	if err != nil {
		return err
	}
	if c.Queues, err = c.served(set); err != nil {
		return err
	}
	traces, err := readTracing()
	if err != nil {
		return err
	}
	client := redis.NewUniversalClient(options)
	defer client.Close()
	ses, stopSES, err := c.sesLimits(ctx, func(ctx context.Context, set limits.Set) error { return operate.Publish(ctx, client, set) }, logger)
	if err != nil {
		return err
	}
	defer stopSES()

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	observer := metrics.New(registry)
	tenants, err := metrics.ParseTenants(c.MetricsTenants)
	if err != nil {
		return err // it was checked with the other settings
	}
	inspector := inspect.New(client)
	observer.Queues(metrics.Queues{Inspector: inspector, Names: c.Queues, Tenants: tenants, Logger: logger})
	told := newDetails(observer)
	told.quotas("email", ses.quotas)
	worker, err := queue.New(queue.Config{
		Redis: options, Queues: c.Queues, Concurrency: c.Concurrency, ShutdownTimeout: c.ShutdownTimeout,
		Logger: logger, Observer: observer, Details: told.read,
	})
	if err != nil {
		return err
	}
	serves := c.HTTP.Server(client, logger, observer.Handler(), worker.Ready)
	serves.API.Inspector = inspector
	web, err := server.Open(serves)
	if err != nil {
		return err
	}
	defer web.Close()
	spans, stopTracing, err := traces.start(ctx, logger, os.Stdout)
	if err != nil {
		return err
	}
	defer stopTracing()
	if spans != nil {
		worker.Use(tracing.Handle(tracing.Config{Provider: spans}))
		logger.Info("calls are traced", "traces", traces.String())
	}
	store, err := c.credentials(logger)
	if err != nil {
		return err
	}
	gone := endpoints.New(client, logger)
	kinds, stop, err := handlers(worker, c, store, gone, told)
	if err != nil {
		return err
	}
	defer stop()

	if c.LimitsFile != "" {
		if err := ses.put(ctx, set); err != nil {
			return fmt.Errorf("put the limits of %s in force: %w", c.LimitsFile, err)
		}
	}

	parts := []part{web.Run, ses.run, gone.Run}
	if store != nil {
		parts = append(parts, store.Run)
	}
	if c.LimitsFile != "" {
		file := limitsfile.NewWatcher(c.LimitsFile, logger, ses.put)
		told.limitsFile(c.LimitsFile, file)
		parts = append(parts, file.Run)
	}
	logger.Info("worker runs", "queues", c.Queues, "kinds", kinds, "http", web.URL(), "admin", web.AdminAddr(), "redis", settings.RedactURL(c.RedisURL))
	if err := runParts(ctx, worker.Run, parts...); err != nil {
		return err
	}
	logger.Info("worker stopped")
	return nil
}

// limits reads the limits file; without one there are none.
func (c config) limits() (limits.Set, error) {
	if c.LimitsFile == "" {
		return limits.Set{}, nil
	}
	return limitsfile.Read(c.LimitsFile)
}

// served is the queues to serve: by default those of the limits file.
func (c config) served(set limits.Set) ([]string, error) {
	if len(c.Queues) > 0 {
		return c.Queues, nil
	}
	if len(set.Queues) == 0 {
		return nil, usageError{errors.New("no queue to serve: set HEADGATE_LIMITS_FILE to a limits file, or HEADGATE_QUEUES")}
	}
	return slices.Sorted(maps.Keys(set.Queues)), nil
}
