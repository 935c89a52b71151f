package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue/inspect"
)

func explainCommand(o *options) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "explain ID",
		Short: "Explain why a job waits and when it will go, or how it ended",
		Long: `explain says where a job is: which limit holds it and when that limit admits the next job, how
many jobs are ahead of it, which pause or send window stops it, and when its call is expected. Of
a job that has ended it says when and why.

The expected time is steady (within 5 % if no other jobs come in) or rough. There is none while
calls in flight hold all permits, or until an operator resumes the jobs.`,
		Example: "  enqueue explain acme:order-7\n  enqueue explain acme:order-7 --queue email --json",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withJob(cmd.Context(), name, args[0], func(client redis.UniversalClient, name string) error {
				ctx, out := cmd.Context(), cmd.OutOrStdout()
				if o.json {
					return printAnswer(ctx, out, client, nil, "queues", name, "jobs", args[0])
				}
				e, err := inspect.New(client).Explain(ctx, name, args[0])
				if err != nil {
					return oneLine(err)
				}
				_, err = fmt.Fprintln(out, printable(e.String()))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&name, "queue", "", "the job's queue (default: the one that has it)")
	return cmd
}

func estimateCommand(o *options) *cobra.Command {
	var name string
	var batch inspect.Batch
	var attributes []string
	var payload string
	cmd := &cobra.Command{
		Use:   "estimate --queue QUEUE --tenant TENANT --jobs N",
		Short: "Estimate when a batch would be done if it were enqueued now",
		Long: `estimate says when the first and the last call of a batch would be made if it were enqueued now,
behind the jobs that wait. Nothing is enqueued.

Each receiver of webhooks has waiting jobs of its own. Name it with --payload; otherwise the
batch is taken to go where most jobs of the tenant wait.`,
		Example: `  enqueue estimate --queue email --tenant acme --jobs 50000
  enqueue estimate --queue webhook --tenant acme --jobs 500 --payload '{"url":"https://hooks.example.com/orders"}'`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if batch.Attributes, err = pairs("--attribute", attributes); err != nil {
				return &program.UsageError{Err: err}
			}
			if cmd.Flags().Changed("cost") && batch.Cost == 0 {
				return &program.UsageError{Err: errors.New("cost: 0: a call costs at least 1")}
			}
			if cmd.Flags().Changed("payload") {
				if batch.Payload, err = readPayload(cmd.Context(), payload, cmd.InOrStdin()); err != nil {
					return &program.UsageError{Err: fmt.Errorf("--payload: %w", err)}
				}
			}
			return o.withQueue(cmd.Context(), name, func(client redis.UniversalClient) error {
				ctx, out := cmd.Context(), cmd.OutOrStdout()
				if o.json {
					body := map[string]any{"tenant": batch.Tenant, "jobs": batch.Jobs, "kind": batch.Kind, "cost": batch.Cost, "attributes": batch.Attributes}
					if batch.Payload != nil {
						body["payload"] = batch.Payload
					}
					return printChange(ctx, out, client, "", http.MethodPost, nil, body, "queues", name, "estimate")
				}
				e, err := inspect.New(client).Estimate(ctx, name, batch)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(out, printable(e.String()))
				return err
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "queue", "", "the queue (required)")
	flags.StringVar(&batch.Tenant, "tenant", "", "tenant of the jobs (required)")
	flags.Int64Var(&batch.Jobs, "jobs", 0, "number of jobs (required)")
	flags.StringVar(&batch.Kind, "kind", "", "kind of the jobs, if the queue serves several")
	flags.Int64Var(&batch.Cost, "cost", 0, "permits that each call takes (default 1)")
	flags.StringArrayVar(&attributes, "attribute", nil, "attribute that limits can use in per, as NAME=VALUE; repeatable")
	flags.StringVar(&payload, "payload", "", "payload of one of the jobs: JSON, @FILE, or - for standard input")
	return cmd
}

// withJob connects, and calls f with the queue of a job.
func (o *options) withJob(ctx context.Context, name, id string, f func(client redis.UniversalClient, name string) error) error {
	client, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if name, err = queueOf(ctx, client, name, id); err != nil {
		return err
	}
	return f(client, name)
}
