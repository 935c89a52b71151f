// Command worker runs Headgate's jobs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker: "+err.Error())
		os.Exit(exitCode(err))
	}
}

// usageError is a mistake in how the command was called.
type usageError struct{ error }

func exitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	if _, ok := errors.AsType[tooBusyError](err); ok {
		return 3
	}
	return 1
}

func root() *cobra.Command {
	root := &cobra.Command{
		Use:   "worker",
		Short: "Run background jobs whose outbound calls are shaped to every limit",
		Long: `worker runs Headgate's jobs: it makes each call as soon as all limits allow it.

Settings come from the environment (HEADGATE_…) and from flags, which take precedence.
"worker config" prints the effective settings. Try "worker dev" first: it needs no setup.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(runCommand(), devCommand(), pacerCommand(), configCommand(), healthcheckCommand())
	return root
}

// noArgs refuses arguments as a usage error.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args[0])}
	}
	return nil
}
