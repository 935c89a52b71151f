package worker

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/internal/settings"
)

// Main is the main function of a worker program. It reads the [Settings] from the environment
// and from flags, and runs until SIGINT or SIGTERM. Calls in flight may finish first. Mistakes
// in the settings exit with 2, other errors with 1. Main sets Go's runtime for even timing,
// unless GOGC, GOMAXPROCS or GOMEMLIMIT are set.
//
// The program also has the commands config, which prints the effective settings without
// secrets, and healthcheck, for containers.
func Main(register func(context.Context, *Program) error) {
	program.Main(command(filepath.Base(os.Args[0]), register))
}

func command(name string, register func(context.Context, *Program) error) *cobra.Command {
	root := &cobra.Command{
		Use:   name,
		Short: "Serve queues until stopped by SIGINT or SIGTERM",
		Long: name + ` makes the call of each job as soon as all limits allow it, until it is stopped by
SIGINT or SIGTERM. Settings come from the environment (HEADGATE_…) and from flags, which
take precedence.`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := program.Read[Settings](cmd)
			if err != nil {
				return err
			}
			settings.Steady()
			return Run(cmd.Context(), s, register)
		},
	}
	program.Strict(root)
	settings.AddFlags(root, new(Settings))
	root.AddCommand(program.ConfigCommand(program.Read[Settings]), program.HealthcheckCommand("the worker", program.Read[Settings]))
	return root
}
