package program

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/version"
)

// Main runs a program's command until it ends or is stopped by SIGINT or SIGTERM, and exits.
// A second signal ends the process at once.
func Main(root *cobra.Command) {
	redis.SetLogger(silent{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, root.Name()+": "+err.Error())
	}
	os.Exit(ExitCode(err))
}

// silent is the log of the Redis client, whose errors the programs tell themselves.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Strict makes a program's command print errors by [Main] alone, and makes wrong flags
// usage errors. It adds --version.
func Strict(root *cobra.Command) {
	root.Version = cmp.Or(version.Program(), "unknown")
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &UsageError{err} })
}
