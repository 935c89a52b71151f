// Command worker runs Headgate's jobs.
package main

import (
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/program"
)

func main() { program.Main(root()) }

func root() *cobra.Command {
	root := &cobra.Command{
		Use:   "worker",
		Short: "Run background jobs whose outbound calls are shaped to every limit",
		Long: `worker runs Headgate's jobs: it makes each call as soon as all limits allow it.

Settings come from the environment (HEADGATE_…) and from flags, which take precedence.
"worker config" prints the effective settings. Try "worker dev" first: it needs no setup.`,
	}
	program.Strict(root)
	root.AddCommand(runCommand(), devCommand(), pacerCommand(), miniredisCommand(), program.ConfigCommand(program.Read[config]), program.HealthcheckCommand("the worker", program.Read[config]))
	return root
}
