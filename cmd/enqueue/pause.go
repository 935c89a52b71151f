package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/operate"
)

func pauseCommand(o *options) *cobra.Command {
	var who operator
	var scope inspect.Scope
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Pause the jobs of a tenant, of a kind, or of a whole queue",
		Long: `pause stops the jobs of one tenant, of one kind, or with --queue alone of the whole queue.
New jobs are still accepted, released jobs go back to their lanes, and calls in flight
finish. All workers follow at once.

A pause lasts for --for, or until "enqueue resume". Of two pauses of the same jobs, the one
that ends later counts, including pauses asked for by a provider.`,
		Example: `  enqueue pause --queue email --tenant acme --for 2h --reason "bounces, ticket 4711"
  enqueue pause --queue payments --reason "the provider is down" --yes`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var until time.Time
			if cmd.Flags().Changed("for") {
				if length <= 0 {
					return &program.UsageError{Err: fmt.Errorf("--for: %v is not a time ahead", length)}
				}
				until = time.Now().Add(length)
			}
			return pause(cmd, o, who, scope, until)
		},
	}
	who.flags(cmd)
	who.askFlag(cmd)
	scopeFlags(cmd, &scope)
	cmd.Flags().DurationVar(&length, "for", 0, "duration, such as 90s or 2h (default: until resumed)")
	cmd.Flags().BoolVar(&who.dry, "dry-run", false, "show what would be paused, and change nothing")
	return cmd
}

func scopeFlags(cmd *cobra.Command, scope *inspect.Scope) {
	cmd.Flags().StringVar(&scope.Tenant, "tenant", "", "jobs of this tenant")
	cmd.Flags().StringVar(&scope.Kind, "kind", "", "jobs of this kind")
}

// scopeWords names what a scope holds.
func scopeWords(name string, scope inspect.Scope) string {
	switch {
	case scope.Endpoint != "" || scope.Tenant != "" && scope.Kind != "":
		return fmt.Sprintf("%s in queue %s", printable(scope.String()), name)
	case scope.Tenant != "":
		return fmt.Sprintf("tenant %s in queue %s", printable(scope.Tenant), name)
	case scope.Kind != "":
		return fmt.Sprintf("kind %s in queue %s", scope.Kind, name)
	}
	return "queue " + name
}

func pause(cmd *cobra.Command, o *options, who operator, scope inspect.Scope, until time.Time) error {
	ctx := cmd.Context()
	if scope.Tenant != "" && scope.Kind != "" {
		return &program.UsageError{Err: errors.New("--kind: pause a tenant or a kind, not both together")}
	}
	if err := who.check(); err != nil {
		return err
	}
	client, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	// What would be cancelled is what a pause holds.
	tally, words, partly, err := who.count(cmd, client, operate.Cancel, operate.Filter{Tenant: scope.Tenant, Kind: scope.Kind})
	if err != nil {
		return wrong(err)
	}
	holds := words + " that have not gone"
	if who.dry {
		if o.json {
			err = json.NewEncoder(cmd.OutOrStdout()).Encode(tallyJSON{"pause", who.queue, true, tally.Jobs, tally.ByState, tally.TooLate, 0})
		} else {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: would hold %s\n", scopeWords(who.queue, scope), holds)
		}
		return cmp.Or(err, partly)
	}
	if err := who.confirm(cmd, fmt.Sprintf("pause %s, with %s?", scopeWords(who.queue, scope), holds)); err != nil {
		return err
	}
	if o.json {
		body := map[string]any{"tenant": scope.Tenant, "kind": scope.Kind, "reason": who.reason}
		if !until.IsZero() {
			body["until"] = until.Format(time.RFC3339Nano)
		}
		return printChange(ctx, cmd.OutOrStdout(), client, who.actor, http.MethodPost, nil, body, "queues", who.queue, "pause")
	}
	p, err := operate.PauseJobs(ctx, client, who.queue, scope, until, who.by())
	if err != nil {
		return wrong(err)
	}
	if scope.Tenant != "" && tally.Jobs == 0 {
		if t, err := inspect.New(client).Tenant(ctx, who.queue, scope.Tenant); err == nil && t.Waiting == 0 && t.Done == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: queue %s has seen no job of tenant %s; is that its name?\n", who.queue, printable(scope.Tenant))
		}
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is %s; it holds %s\n", scopeWords(who.queue, scope), printable(p.Text(time.Now())), holds)
	return err
}

func resumeCommand(o *options) *cobra.Command {
	var who operator
	var scope inspect.Scope
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "End a pause",
		Long: `resume ends the pause of a tenant, of a kind, or with --queue alone that of the whole queue,
whether an operator or a provider caused it. The jobs then go as fast as limits allow, without
a burst. Other pauses of the same jobs stay: "enqueue tenants" shows them.

It also ends holds after failed calls: with --kind that of an account, with --tenant and
--kind that of the tenant's own account, and with --endpoint, with or without --tenant, that
of a receiver of webhooks. "enqueue status" shows them.`,
		Example: `  enqueue resume --queue email --tenant acme --reason "the list was cleaned"
  enqueue resume --queue webhook --tenant acme --endpoint hooks.example.com:443 --reason "mended"`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return resume(cmd, o, who, scope)
		},
	}
	who.flags(cmd)
	who.askFlag(cmd)
	scopeFlags(cmd, &scope)
	cmd.Flags().StringVar(&scope.Endpoint, "endpoint", "", "webhooks to this host:port")
	return cmd
}

func resume(cmd *cobra.Command, o *options, who operator, scope inspect.Scope) error {
	ctx := cmd.Context()
	if err := who.check(); err != nil {
		return err
	}
	client, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := selected(ctx, client, who.queue); err != nil {
		return err
	}
	pauses, err := inspect.Pauses(ctx, client, who.queue)
	if err != nil { // a partition that does not answer does not keep the others paused
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %v\n", err)
		if err := who.confirm(cmd, fmt.Sprintf("resume %s, which may be paused?", scopeWords(who.queue, scope))); err != nil {
			return err
		}
	}
	for _, p := range pauses {
		if p.Scope == scope {
			question := fmt.Sprintf("resume %s, %s?", scopeWords(who.queue, scope), printable(p.Text(time.Now())))
			if err := who.confirm(cmd, question); err != nil {
				return err
			}
		}
	}
	if o.json {
		body := map[string]any{"tenant": scope.Tenant, "kind": scope.Kind, "endpoint": scope.Endpoint, "reason": who.reason}
		return printChange(ctx, cmd.OutOrStdout(), client, who.actor, http.MethodPost, nil, body, "queues", who.queue, "resume")
	}
	was, err := operate.ResumeJobs(ctx, client, who.queue, scope, who.by())
	if err != nil {
		return wrong(err)
	}
	words := "is resumed"
	if !was {
		words = "was not paused"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", scopeWords(who.queue, scope), words)
	return err
}
