package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

func jobsCommand(o *options) *cobra.Command {
	return group(&cobra.Command{
		Use:   "jobs",
		Short: "List jobs, and show everything known about one",
	}, jobsListCommand(o), jobsShowCommand(o))
}

func jobsListCommand(o *options) *cobra.Command {
	var name, state string
	query, limit := inspect.JobQuery{}, 0
	cmd := &cobra.Command{
		Use:   "list --queue QUEUE",
		Short: "List jobs in one state",
		Long: `list prints jobs of a queue in one state: waiting, scheduled, retry, pending, active or
archived. Waiting jobs come in the order in which they will go, scheduled and retried ones by
their time, and the others newest first.`,
		Example: `  enqueue jobs list --queue email --tenant acme
  enqueue jobs list --queue email --state archived --reason-contains "550" --limit 20`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return &program.UsageError{Err: fmt.Errorf("--limit: %d must be at least 1", limit)}
			}
			query.State = lifecycle.State(state)
			return o.withQueue(cmd.Context(), name, func(client redis.UniversalClient) error { return jobsList(cmd, o, client, name, query, limit) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "queue", "", "the queue (required)")
	flags.StringVar(&state, "state", string(lifecycle.StateWaiting), "waiting, scheduled, retry, pending, active or archived")
	flags.StringVar(&query.Tenant, "tenant", "", "only jobs of this tenant")
	flags.StringVar(&query.Kind, "kind", "", "only jobs of this kind")
	flags.StringVar(&query.Reason, "reason-contains", "", "only archived jobs with this text in their reason")
	flags.IntVar(&limit, "limit", 50, "max number of jobs; with --json at most 200")
	return cmd
}

func jobsList(cmd *cobra.Command, o *options, client redis.UniversalClient, name string, query inspect.JobQuery, limit int) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	if o.json {
		values := url.Values{
			"state": {string(query.State)}, "limit": {strconv.Itoa(limit)},
			"tenant": {query.Tenant}, "kind": {query.Kind}, "reason": {query.Reason},
		}
		return printAnswer(ctx, out, client, values, "queues", name, "jobs")
	}
	w, listed, now := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), 0, time.Now()
	fmt.Fprintln(w, "ID\tKIND\tTENANT\tATTEMPT\tTIME\tREASON")
	for inspector := inspect.New(client); listed < limit; {
		query.Limit = min(limit-listed, 200)
		page, err := inspector.ListJobs(ctx, name, query)
		if err != nil {
			return err
		}
		for _, j := range page.Jobs {
			listed++
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", printable(j.ID), j.Kind, printable(j.Tenant), j.Attempt, moments(j.At, now), cmp.Or(printable(j.Reason), "-"))
		}
		if query.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	if listed == 0 {
		_, err := fmt.Fprintf(out, "no job of queue %s is %s\n", name, query.State)
		return err
	}
	return w.Flush()
}

// moments is a time relative to now.
func moments(t, now time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case t.After(now):
		return when(t, now)
	}
	return ago(t, now) + " ago"
}

func jobsShowCommand(o *options) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Print everything known about a job, as JSON",
		Long: `show prints what the HTTP API answers for a job: its state, what it waits for, its history,
its payload with secrets hidden, and its result. "enqueue explain" says it in a sentence.`,
		Example: "  enqueue jobs show acme:order-7",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withJob(cmd.Context(), name, args[0], func(client redis.UniversalClient, name string) error {
				return printAnswer(cmd.Context(), cmd.OutOrStdout(), client, nil, "queues", name, "jobs", args[0])
			})
		},
	}
	cmd.Flags().StringVar(&name, "queue", "", "the job's queue (default: the one that has it)")
	return cmd
}

// oneJob requires the id of a job as the only argument.
func oneJob(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return &program.UsageError{Err: fmt.Errorf("%s takes one job id, got %d", cmd.CommandPath(), len(args))}
	}
	if args[0] == "" {
		return &program.UsageError{Err: errors.New("the job id is empty")}
	}
	return nil
}
