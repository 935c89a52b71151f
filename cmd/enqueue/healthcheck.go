package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/settings"
)

func healthcheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: `Check that "enqueue serve" on this machine is ready; exits 1 if not`,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := readServeConfig(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
			defer cancel()
			return c.Healthcheck(ctx)
		},
	}
	settings.AddFlags(cmd, new(serveConfig))
	return cmd
}
