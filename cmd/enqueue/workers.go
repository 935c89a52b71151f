package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue/workers"
)

func workersCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "workers",
		Short: "Show the workers that are alive, and what they serve",
		Long: `workers lists the workers that are alive: the jobs that each one holds of the maximum, how many
of them are being sent, and its last heartbeat. A worker that died is listed for up to 15 s.`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, out := cmd.Context(), cmd.OutOrStdout()
			client, err := o.connect(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			if o.json {
				return printAnswer(ctx, out, client, nil, "workers")
			}
			list, err := workers.List(ctx, client)
			if err != nil {
				return err
			}
			if len(list) == 0 {
				_, err := fmt.Fprintln(out, "no worker is alive")
				return err
			}
			w, now := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), time.Now()
			fmt.Fprintln(w, "HOST\tPROCESS\tVERSION\tQUEUES\tKINDS\tHELD\tSENDING\tSTARTED\tSEEN")
			for _, i := range list {
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%d/%d\t%d\t%s ago\t%s ago\n", printable(i.Host), i.PID, printable(cmp.Or(i.Version, "-")),
					strings.Join(i.Queues, ","), strings.Join(i.Kinds, ","), i.Held, i.Concurrency, i.Sending, ago(i.Started, now), ago(i.Seen, now))
			}
			if err := w.Flush(); err != nil {
				return err
			}
			starved := workers.Starved(list)
			for _, queue := range slices.Sorted(maps.Keys(starved)) {
				fmt.Fprintf(out, "workers are the limit for %s: in %s of the last seconds jobs could go and no worker had room for them; start another worker, or raise HEADGATE_CONCURRENCY\n", queue, percent(starved[queue]))
			}
			return nil
		},
	}
}
