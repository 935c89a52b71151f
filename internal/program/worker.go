package program

import (
	"cmp"
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/settings"
	"github.com/headgate/headgate/internal/telemetry"
)

// ConfigCommand prints the effective settings of a worker program. C is the struct of its
// settings, and read reads them.
func ConfigCommand[C any](read func(*cobra.Command) (C, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective settings, without secrets",
		Args:  NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := read(cmd)
			if err != nil {
				return err
			}
			exports, err := telemetry.Read()
			if err != nil {
				return &UsageError{err}
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, setting := range settings.Of(&c) {
				fmt.Fprintf(w, "%s%s\t%s\t%s\n", settings.Prefix, setting.Env, cmp.Or(setting.Shown(), "-"), setting.Help)
			}
			fmt.Fprintf(w, "OTEL_…\t%s\t%s\n", exports.Traces(), "where spans go, set by OpenTelemetry's own variables. none: calls are not traced")
			fmt.Fprintf(w, "OTEL_…\t%s\t%s\n", exports.Metrics(), "where metrics go, set by these variables, too. none: they are only at /metrics")
			return w.Flush()
		},
	}
	settings.AddFlags(cmd, new(C))
	return cmd
}

// HealthcheckCommand checks that a program on this machine is ready: "the worker", for example.
func HealthcheckCommand[C interface{ Healthcheck(context.Context) error }](what string, read func(*cobra.Command) (C, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check that " + what + " on this machine is ready; exits 1 if not",
		Args:  NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := read(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
			defer cancel()
			return c.Healthcheck(ctx)
		},
	}
	settings.AddFlags(cmd, new(C))
	return cmd
}
