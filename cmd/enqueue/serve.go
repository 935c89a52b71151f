package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/dashboard/metrics"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/internal/server"
	"github.com/headgate/headgate/internal/settings"
	"github.com/headgate/headgate/internal/telemetry"
)

// serveConfig is what a server without a worker is told.
type serveConfig struct {
	settings.HTTP

	LogFormat string `env:"LOG_FORMAT" envDefault:"text" flag:"log-format" help:"text or json"`
}

func serveCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the HTTP API and the dashboard",
		Long: `serve serves the HTTP API and the dashboard without running jobs. "worker run" serves both too.

Without a keys file only this machine has access. To listen for other machines, create a key
with "enqueue keys new", add the printed entry to a keys file, and pass the file with --keys.
The file is reloaded when it changes.`,
		Example: `  enqueue serve
  enqueue serve --http :8443 --keys keys.yaml --tls-cert cert.pem --tls-key key.pem --admin 127.0.0.1:9090`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := program.Read[serveConfig](cmd)
			if err != nil {
				return err
			}
			settings.Steady()
			return serve(cmd, o, c)
		},
	}
	settings.AddFlags(cmd, new(serveConfig))
	return cmd
}

// Validate reports the invalid settings.
func (c serveConfig) Validate() error {
	var problems settings.Problems
	c.Check(problems.Wrong)
	settings.CheckLogFormat(c.LogFormat, problems.Wrong)
	return errors.Join(problems...)
}

func serve(cmd *cobra.Command, o *options, c serveConfig) error {
	logger := settings.Logger(cmd.ErrOrStderr(), c.LogFormat)
	keys, err := c.EncryptionKeys()
	if err != nil {
		return &program.UsageError{Err: err}
	}
	exports, err := telemetry.ReadMetrics()
	if err != nil {
		return &program.UsageError{Err: err}
	}
	client, err := o.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Close()
	registry := metrics.NewRegistry()
	serves := c.Server(client, logger, registry, ready(client))
	serves.API.PayloadKeys = keys
	web, err := server.Open(serves)
	if err != nil {
		return err
	}
	defer web.Close()
	_, stopExports, err := exports.Start(cmd.Context(), telemetry.Program{Name: "headgate-serve", Metrics: registry, Logger: logger, Console: cmd.OutOrStdout()})
	if err != nil {
		return err
	}
	defer stopExports()
	logger.Info("serving", "http", web.URL(), "admin", web.AdminAddr(), "read_only", c.ReadOnly)
	if err := web.Run(cmd.Context()); err != nil {
		return err
	}
	logger.Info("stopped")
	return nil
}

// ready tells whether Redis answers.
func ready(client redis.UniversalClient) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := client.Ping(ctx).Err(); err != nil {
			return errors.New("no Redis answers")
		}
		return nil
	}
}
