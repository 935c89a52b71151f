package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/endpoints"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/internal/settings"
	"github.com/headgate/headgate/worker"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Serve queues until stopped by SIGINT or SIGTERM",
		Args:  program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := program.Read[config](cmd)
			if err != nil {
				return err
			}
			settings.Steady()
			return worker.Run(cmd.Context(), c.Settings, c.register)
		},
	}
	settings.AddFlags(cmd, new(config))
	return cmd
}

// register adds the handlers of all kinds that this worker can send, and what they need.
func (c config) register(ctx context.Context, p *worker.Program) error {
	if c.SESAccountLimits {
		if err := c.useSESLimits(ctx, p); err != nil {
			return err
		}
	}
	store, err := c.credentials(p.Logger)
	if err != nil {
		return err
	}
	if store != nil {
		p.Go(store.Run)
	}
	gone := endpoints.New(p.Redis, p.Logger)
	p.Go(gone.Run)
	stop, err := handlers(p.Worker, c, store, gone, p.Details)
	if err != nil {
		return err
	}
	p.Defer(stop)
	return nil
}
