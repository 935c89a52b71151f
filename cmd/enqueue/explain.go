package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
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
				e, err := inspect.New(client).Explain(cmd.Context(), name, args[0])
				if err != nil {
					return oneLine(err)
				}
				return tell(cmd.OutOrStdout(), o.json, explanationJSON(e), e.String())
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
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if batch.Attributes, err = pairs("--attribute", attributes); err != nil {
				return usageError{err}
			}
			if cmd.Flags().Changed("cost") && batch.Cost == 0 {
				return usageError{errors.New("cost: 0: a call costs at least 1")}
			}
			if cmd.Flags().Changed("payload") {
				if batch.Payload, err = readPayload(cmd.Context(), payload, cmd.InOrStdin()); err != nil {
					return usageError{fmt.Errorf("--payload: %w", err)}
				}
			}
			return o.withQueue(cmd.Context(), name, func(client redis.UniversalClient) error {
				e, err := inspect.New(client).Estimate(cmd.Context(), name, batch)
				if isInvalid(err) {
					return usageError{oneLine(err)}
				}
				if err != nil {
					return oneLine(err)
				}
				return tell(cmd.OutOrStdout(), o.json, batchJSON(name, e), e.String())
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

// withQueue is eachQueue for the one queue that has to be named.
func (o *options) withQueue(ctx context.Context, name string, f func(redis.UniversalClient) error) error {
	if name == "" {
		return usageError{errors.New("--queue: say which queue")}
	}
	return o.eachQueue(ctx, name, func(client redis.UniversalClient, _ string) error { return f(client) })
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

// tell prints a value as JSON or in words.
func tell(out io.Writer, asJSON bool, value any, words string) error {
	if asJSON {
		return json.NewEncoder(out).Encode(value)
	}
	_, err := fmt.Fprintln(out, printable(words))
	return err
}

// moment is a time for JSON: null for the zero one.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

type holdJSON struct {
	Limit string     `json:"limit"`
	Scope string     `json:"scope"`
	Rule  string     `json:"rule"`
	Next  *time.Time `json:"next_slot"`
}

func holdOf(h *inspect.Hold) *holdJSON {
	if h == nil {
		return nil
	}
	return &holdJSON{h.Limit, h.Scope, h.Rule, moment(h.Next)}
}

type explainedJSON struct {
	ID             string        `json:"id"`
	Queue          string        `json:"queue"`
	State          string        `json:"state"`
	Outcome        string        `json:"outcome,omitempty"`
	Tenant         string        `json:"tenant,omitempty"`
	Kind           string        `json:"kind,omitempty"`
	Periodic       string        `json:"periodic,omitempty"` // id of the periodic job that enqueued it
	Attempt        int           `json:"attempt,omitempty"`
	MaxAttempts    int           `json:"max_attempts,omitempty"`
	Error          string        `json:"error,omitempty"`
	Progress       *progressJSON `json:"progress,omitempty"`
	Since          *time.Time    `json:"since"`
	Until          *time.Time    `json:"until"`
	Lane           string        `json:"lane,omitempty"`
	Position       *int64        `json:"position,omitempty"`
	TenantPosition *int64        `json:"tenant_position,omitempty"`
	Waiting        int64         `json:"waiting"`
	HeldBy         *holdJSON     `json:"held_by"`
	Full           *holdJSON     `json:"full"`
	stopJSON
	WindowOpens *time.Time `json:"window_opens"`
	At          *time.Time `json:"expected_at"`
	Confidence  string     `json:"confidence"`
	DrainsAt    *time.Time `json:"drains_at"`
	Sentence    string     `json:"sentence"`
}

type progressJSON struct {
	Percent int        `json:"percent"`
	Text    string     `json:"text"`
	At      *time.Time `json:"at"`
}

func explanationJSON(e inspect.Explanation) explainedJSON {
	out := explainedJSON{
		ID: e.ID, Queue: e.Queue, State: string(e.State), Outcome: string(e.Outcome), Tenant: e.Tenant, Kind: e.Kind, Periodic: e.Periodic, Attempt: e.Attempt, MaxAttempts: e.MaxAttempts,
		Error: e.Error, Since: moment(e.Since), Until: moment(e.Until), Lane: e.Lane, Waiting: e.Waiting, HeldBy: holdOf(e.HeldBy),
		Full: holdOf(e.Full), WindowOpens: moment(e.WindowOpens), At: moment(e.At), Confidence: string(e.Confidence), DrainsAt: moment(e.DrainsAt),
		Sentence: e.String(),
	}
	if e.State == lifecycle.StateWaiting {
		out.Position, out.TenantPosition = &e.Position, &e.TenantPosition
	}
	if e.Progress != nil {
		out.Progress = &progressJSON{e.Progress.Percent, e.Progress.Text, moment(e.Progress.At)}
	}
	out.stopJSON = stopOf(e.Queue, e.Pause, e.Unserved)
	return out
}

// stopJSON is what keeps jobs from going that no limit holds.
type stopJSON struct {
	Pause    *pauseJSON `json:"pause"`
	Unserved string     `json:"unserved,omitempty"` // why no worker takes them
}

func stopOf(name string, pause *inspect.Pause, unserved *inspect.Unserved) (stop stopJSON) {
	if pause != nil {
		stop.Pause = new(pauseAsJSON(name, *pause))
	}
	if unserved != nil {
		stop.Unserved = unserved.String()
	}
	return stop
}

type estimatedJSON struct {
	First      *time.Time `json:"first_call"`
	Last       *time.Time `json:"last_call"`
	Waiting    int64      `json:"waiting_before"`
	HeldBy     *holdJSON  `json:"held_by"`
	Confidence string     `json:"confidence"`
	stopJSON
	Sentence string `json:"sentence"`
}

func batchJSON(name string, e inspect.BatchEstimate) estimatedJSON {
	return estimatedJSON{
		moment(e.First), moment(e.Last), e.Waiting, holdOf(e.HeldBy), string(e.Confidence), stopOf(name, e.Pause, e.Unserved), e.String(),
	}
}
