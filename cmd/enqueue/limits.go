package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

func limitsCommand(o *options) *cobra.Command {
	return group(&cobra.Command{
		Use:   "limits",
		Short: "Check, try and publish limits files, see the limits in effect, and override one for a tenant",
		Long: `limits checks, compares, tries, publishes and exports limits files. It shows which limits are in
effect and where they come from, and overrides a limit for one tenant, for a time or until the
override is cleared. All workers follow within a second. What a bucket has used stays used, so a
raised limit brings no burst.`,
	}, limitsShowCommand(o), limitsSetCommand(o), limitsClearCommand(o), limitsCheckCommand(o), limitsDiffCommand(o), limitsTryCommand(o), limitsApplyCommand(o), limitsExportCommand(o))
}

func limitsShowCommand(o *options) *cobra.Command {
	var name, tenant string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the limits in effect, of a tenant or in general",
		Long: `show lists the limits in effect for a tenant, and where each one comes from: "queue" (published
for all tenants), "tenant" (published for this tenant, its plan or group), or "override" (set by an
operator; UNTIL and WHY say until when, by whom and why). An override that does not fit the
limits that were published later is not in effect; WHY says so. Without --tenant it lists the
limits of tenants without values of their own.`,
		Example: "  enqueue limits show --queue email --tenant acme",
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return limitsShow(cmd, o, name, tenant)
		},
	}
	cmd.Flags().StringVar(&name, "queue", "", "one queue (default: all; --json needs one)")
	cmd.Flags().StringVar(&tenant, "tenant", "", "limits of this tenant (default: those of tenants without values of their own)")
	return cmd
}

func limitsShow(cmd *cobra.Command, o *options, name, tenant string) error {
	ctx := cmd.Context()
	if o.json {
		return o.withQueue(ctx, name, func(client redis.UniversalClient) error {
			if tenant != "" {
				return printAnswer(ctx, cmd.OutOrStdout(), client, nil, "queues", name, "tenants", tenant)
			}
			return printAnswer(ctx, cmd.OutOrStdout(), client, nil, "queues", name, "limits")
		})
	}
	rows, unread, err := readQueues(ctx, o, name, readPatience, func(ctx context.Context, client redis.UniversalClient, name string) (string, error) {
		return limitRows(ctx, client, name, tenant)
	})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "QUEUE\tLIMIT\tPER\tALGORITHM\tADMITS\tFROM\tUNTIL\tWHY")
	fmt.Fprint(w, strings.Join(rows, ""))
	return cmp.Or(w.Flush(), partly(unread))
}

// limitRows are the lines of a queue's limits.
func limitRows(ctx context.Context, client redis.UniversalClient, name, tenant string) (string, error) {
	all, err := inspect.LimitsInForce(ctx, client, name, tenant)
	if err != nil {
		return "", err
	}
	if tenant != "" {
		overrides, err := inspect.Overrides(ctx, client, name, tenant)
		if err != nil {
			return "", err
		}
		for _, o := range overrides {
			if !slices.ContainsFunc(all, func(f limits.Effective) bool { return f.Name == o.Name }) {
				all = append(all, o.Effective) // its limit is gone
			}
		}
	}
	var rows strings.Builder
	for _, f := range all {
		why, until := "-", "-"
		if f.From == "override" {
			why, until = f.Actor+": "+f.Reason, "cleared"
			if !f.Until.IsZero() {
				until = when(f.Until, time.Now())
			}
		}
		if f.NotInEffect != "" {
			why = f.NotInEffect
		}
		admits := f.String()
		if f.Unit != "" {
			admits += " of " + f.Unit
		}
		if f.For != limits.Both {
			admits += " for " + string(f.For)
		}
		fmt.Fprintf(&rows, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, f.Name, cmp.Or(strings.Join(f.Per, ", "), "-"),
			cmp.Or(string(f.Algorithm), "-"), admits, f.From, until, printable(why))
	}
	return rows.String(), nil
}

// which names the limit of a tenant that is changed.
type which struct {
	operator
	tenant, limit string
}

func (w *which) flags(cmd *cobra.Command) {
	w.operator.flags(cmd)
	cmd.Flags().StringVar(&w.tenant, "tenant", "", "the tenant (required)")
	cmd.Flags().StringVar(&w.limit, "limit", "", "the limit's name (required)")
}

func (w *which) check() error {
	switch {
	case w.tenant == "":
		return &program.UsageError{Err: errors.New("--tenant: name the tenant")}
	case w.limit == "":
		return &program.UsageError{Err: errors.New("--limit: name the limit; enqueue limits show lists them")}
	}
	return w.operator.check()
}

func limitsSetCommand(o *options) *cobra.Command {
	var w which
	var rate throttle.Rate
	var burst, capacity, concurrency int64
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Override a limit for one tenant",
		Long: `set overrides the rate, burst, capacity or concurrency of a limit for one tenant. Values that are
not given stay as published, also if another limits file is published. The override lasts for
--for, or until "enqueue limits clear"; setting it again replaces it. Only limits that are per
tenant can be overridden. The command shows the effect on the tenant's backlog, and asks.`,
		Example: `  enqueue limits set --queue email --tenant acme --limit tenant --rate 50/s --for 2h --reason "launch day"`,
		Args:    program.NoArgs,
	}
	w.flags(cmd)
	flags := cmd.Flags()
	flags.TextVar(&rate, "rate", throttle.Rate{}, "a `rate` such as 50/s, 600/min or 10000/day")
	flags.Int64Var(&burst, "burst", 0, "permits that may go at once")
	flags.Int64Var(&capacity, "capacity", 0, "of a leaky bucket")
	flags.Int64Var(&concurrency, "concurrency", 0, "calls in flight at once")
	flags.DurationVar(&length, "for", 0, "how long, such as 2h (default: until cleared)")
	flags.Lookup("rate").DefValue = ""
	flags.BoolVar(&w.dry, "dry-run", false, "only show what would become of the tenant's backlog")
	w.askFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var change operate.Override
		if flags.Changed("rate") {
			change.Rate = &rate
		}
		for name, value := range map[string]struct {
			from *int64
			into **int64
		}{"burst": {&burst, &change.Burst}, "capacity": {&capacity, &change.Capacity}, "concurrency": {&concurrency, &change.Concurrency}} {
			if flags.Changed(name) {
				*value.into = value.from
			}
		}
		if change.Change == (limits.Change{}) {
			return &program.UsageError{Err: errors.New("nothing changes: give --rate, --burst, --capacity or --concurrency")}
		}
		if flags.Changed("for") {
			if length <= 0 {
				return &program.UsageError{Err: fmt.Errorf("--for: %v is not a time ahead", length)}
			}
			change.Until = time.Now().Add(length)
		}
		return limitsSet(cmd, o, w, change)
	}
	return cmd
}

func limitsSet(cmd *cobra.Command, o *options, w which, change operate.Override) error {
	ctx := cmd.Context()
	if err := w.check(); err != nil {
		return err
	}
	change.Actor, change.Reason = w.actor, w.reason
	client, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	refused := func(err error) error {
		if _, ok := errors.AsType[*limits.ChangeError](err); ok || validation.Is(err) {
			return &program.UsageError{Err: oneLine(err)}
		}
		return err
	}
	effect, err := inspect.New(client).Preview(ctx, w.queue, w.tenant, w.limit, change.Change)
	if err != nil {
		return refused(err)
	}
	shown := cmd.ErrOrStderr()
	if w.dry {
		shown = cmd.OutOrStdout()
	}
	if o.json && w.dry {
		return putLimit(cmd, client, w, change)
	}
	if !o.json {
		fmt.Fprintf(shown, "now:   %s\nafter: %s\n", effect.Before, effect.After)
	}
	if w.dry {
		return nil
	}
	if err := w.confirm(cmd, fmt.Sprintf("change limit %s of tenant %s in queue %s?", w.limit, printable(w.tenant), w.queue)); err != nil {
		return err
	}
	if o.json {
		return putLimit(cmd, client, w, change)
	}
	change.Log = w.by().Log
	if err := operate.SetOverride(ctx, client, w.queue, w.tenant, w.limit, change); err != nil {
		return refused(err)
	}
	return tellLimit(cmd, client, w, "is now")
}

// putLimit changes a limit, or previews that, and prints its effect as JSON.
func putLimit(cmd *cobra.Command, client redis.UniversalClient, w which, change operate.Override) error {
	body := map[string]any{"burst": change.Burst, "capacity": change.Capacity, "concurrency": change.Concurrency, "dry_run": w.dry, "reason": w.reason}
	if change.Rate != nil {
		body["rate"] = change.Rate.String()
	}
	if !change.Until.IsZero() {
		body["until"] = change.Until.Format(time.RFC3339Nano)
	}
	return printChange(cmd.Context(), cmd.OutOrStdout(), client, w.actor, http.MethodPut, nil, body, "queues", w.queue, "tenants", w.tenant, "limits", w.limit)
}

func limitsClearCommand(o *options) *cobra.Command {
	var w which
	cmd := &cobra.Command{
		Use:     "clear",
		Short:   "Remove the override of a limit",
		Long:    `clear removes an override that "enqueue limits set" made: the published limit is in effect again.`,
		Example: `  enqueue limits clear --queue email --tenant acme --limit tenant --reason "launch is over"`,
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return limitsClear(cmd, o, w)
		},
	}
	w.flags(cmd)
	return cmd
}

func limitsClear(cmd *cobra.Command, o *options, w which) error {
	ctx := cmd.Context()
	if err := w.check(); err != nil {
		return err
	}
	client, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if o.json {
		return printChange(ctx, cmd.OutOrStdout(), client, w.actor, http.MethodDelete, url.Values{"reason": {w.reason}}, nil, "queues", w.queue, "tenants", w.tenant, "limits", w.limit)
	}
	was, err := operate.ClearOverride(ctx, client, w.queue, w.tenant, w.limit, w.by())
	if err != nil {
		return wrong(err)
	}
	words := "is again"
	if !was {
		words = "was not changed: it is"
	}
	return tellLimit(cmd, client, w, words)
}

// tellLimit prints the limit as it is in force now.
func tellLimit(cmd *cobra.Command, client redis.UniversalClient, w which, words string) error {
	all, err := inspect.LimitsInForce(cmd.Context(), client, w.queue, w.tenant)
	if err != nil {
		return wrong(err)
	}
	for _, f := range all {
		if f.Name != w.limit {
			continue
		}
		end := ""
		if f.From == "override" {
			end = ", " + untilCleared(f.Until)
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "limit %s of tenant %s in queue %s %s %s%s\n", f.Name, printable(w.tenant), w.queue, words, f, end)
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "queue %s has no limit %s any more: the override of tenant %s is cleared\n", w.queue, w.limit, printable(w.tenant))
	return err
}

// untilCleared is when an override ends.
func untilCleared(t time.Time) string {
	if t.IsZero() {
		return "until it is cleared"
	}
	return "until " + when(t, time.Now())
}
