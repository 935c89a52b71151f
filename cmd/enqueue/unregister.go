package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue/operate"
)

func unregisterCommand(o *options) *cobra.Command {
	var who operator
	cmd := &cobra.Command{
		Use:   "unregister",
		Short: "Remove an empty queue, with its limits, pauses and counts",
		Long: `unregister removes a queue that nobody needs any more: its limits, overrides, pauses and counts, and
its name from all lists. It is refused while the queue has a job in any state, archived and kept
ones among them, or a worker serves it. What operators did stays in the audit.`,
		Example: `  enqueue unregister --queue old-mail --reason "replaced by email"`,
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := who.check(); err != nil {
				return err
			}
			ctx := cmd.Context()
			client, err := o.connect(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			if err := who.confirm(cmd, fmt.Sprintf("remove queue %s, with its limits?", who.queue)); err != nil {
				return err
			}
			if o.json {
				return printChange(ctx, cmd.OutOrStdout(), client, who.actor, http.MethodDelete, nil, map[string]any{"reason": who.reason}, "queues", who.queue)
			}
			if err := operate.Unregister(ctx, client, who.queue, who.by()); err != nil {
				return wrong(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "queue %s is removed\n", who.queue)
			return err
		},
	}
	who.flags(cmd)
	who.askFlag(cmd)
	return cmd
}
