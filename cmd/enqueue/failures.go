package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

func failuresCommand(o *options) *cobra.Command {
	var name, tenant string
	cmd := &cobra.Command{
		Use:   "failures",
		Short: "Show why jobs failed, grouped by reason",
		Long: `failures groups the archived jobs of each queue by their reason, the largest group first. It
looks at the newest 10,000 of a queue. EXAMPLE is the newest job of the group.

"enqueue jobs list --state archived" lists single jobs, and "enqueue retry" puts them back.`,
		Example: "  enqueue failures\n  enqueue failures --queue email --json",
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return failures(cmd, o, name, tenant)
		},
	}
	cmd.Flags().StringVar(&name, "queue", "", "one queue (default: all; --json needs one)")
	cmd.Flags().StringVar(&tenant, "tenant", "", "only jobs of this tenant")
	return cmd
}

func failures(cmd *cobra.Command, o *options, name, tenant string) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	if o.json {
		return o.withQueue(ctx, name, func(client redis.UniversalClient) error {
			return printAnswer(ctx, out, client, url.Values{"tenant": {tenant}}, "queues", name, "failures")
		})
	}
	type failed struct {
		queue  string
		groups []inspect.FailureGroup
		again  bool // jobs wait for another attempt
	}
	all, unread, err := readQueues(ctx, o, name, readPatience, func(ctx context.Context, client redis.UniversalClient, name string) (failed, error) {
		in := inspect.New(client)
		groups, err := in.Failures(ctx, name, tenant)
		if err != nil {
			return failed{}, err
		}
		page, err := in.ListJobs(ctx, name, inspect.JobQuery{State: lifecycle.StateRetry, Tenant: tenant, Limit: 1})
		return failed{name, groups, len(page.Jobs) > 0}, err
	})
	if err != nil {
		return err
	}
	w, groups, now := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), 0, time.Now()
	var again []string
	fmt.Fprintln(w, "QUEUE\tKIND\tOUTCOME\tJOBS\tTENANTS\tNEWEST\tREASON\tEXAMPLE")
	for _, f := range all {
		for _, g := range f.groups {
			groups++
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s ago\t%s\t%s\n", f.queue, printable(g.Kind), g.Outcome, g.Jobs, g.Tenants, ago(g.Newest, now), printable(g.Reason), printable(g.ID))
		}
		if f.again {
			again = append(again, "enqueue jobs list --queue "+f.queue+" --state retry")
		}
	}
	if groups == 0 {
		_, err = fmt.Fprintln(out, "no job has failed for good")
	} else {
		err = w.Flush()
	}
	if err == nil && len(again) > 0 {
		_, err = fmt.Fprintf(out, "jobs wait for another attempt: %s\n", strings.Join(again, "; "))
	}
	return cmp.Or(err, partly(unread))
}

// ago is how long ago a moment was, in one unit.
func ago(t, now time.Time) string {
	switch d := max(now.Sub(t), 0); {
	case d < 2*time.Minute:
		return d.Truncate(time.Second).String()
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}
