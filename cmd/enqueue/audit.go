package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue/operate"
)

func auditCommand(o *options) *cobra.Command {
	var name string
	var n int
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who changed what, when and why",
		Long: `audit lists the changes made by operators, newest first: jobs cancelled, retried, run and
deleted, pauses, and limits before and after. Jobs are identified by their filter or their
id; payloads are never recorded. Of each queue the last 2,000 changes of each API key, of the
command line and of programs are kept. With --json it has the requests that the HTTP API refused
as well.`,
		Example: "  enqueue audit --queue email -n 50",
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return audit(cmd, o, name, n)
		},
	}
	cmd.Flags().StringVar(&name, "queue", "", "one queue (default: all)")
	cmd.Flags().IntVarP(&n, "number", "n", 20, "how many changes, 1 to 10000")
	return cmd
}

func audit(cmd *cobra.Command, o *options, name string, n int) error {
	ctx := cmd.Context()
	if n < 1 || n > operate.MaxAudit {
		return &program.UsageError{Err: fmt.Errorf("--number: %d must be 1 to %d", n, operate.MaxAudit)}
	}
	if o.json {
		return auditJSON(cmd, o, name, n)
	}
	all, unread, err := readQueues(ctx, o, name, readPatience, func(ctx context.Context, client redis.UniversalClient, name string) ([]operate.AuditEntry, error) {
		return operate.Audit(ctx, client, name, n)
	})
	if name == "" && ctx.Err() == nil { // changes of API keys, which may be elsewhere than all queues
		ofKeys, keysErr := keysAudit(ctx, o, n)
		if keysErr == nil {
			all, err = append(all, ofKeys), nil
		} else if err == nil {
			unread = append(unread, keysErr)
		}
	}
	if err != nil {
		return err
	}
	entries := slices.Concat(all...)
	slices.SortStableFunc(entries, func(a, b operate.AuditEntry) int { return b.At.Compare(a.At) })
	entries = entries[:min(len(entries), n)]
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AT\tACTOR\tACTION\tQUEUE\tWHAT\tJOBS\tWHY")
	for _, e := range entries {
		count := "-"
		if e.Count > 0 {
			count = fmt.Sprint(e.Count)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.At.Local().Format("2006-01-02 15:04:05"), printable(e.Actor), printable(e.Action), printable(e.Queue),
			printable(what(e)), count, printable(cmp.Or(e.Reason, "-")))
	}
	return cmp.Or(w.Flush(), partly(unread))
}

// keysAudit returns the changes of API keys.
func keysAudit(ctx context.Context, o *options, n int) ([]operate.AuditEntry, error) {
	client, err := o.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return operate.Audit(ctx, client, "", n)
}

func auditJSON(cmd *cobra.Command, o *options, name string, n int) error {
	client, err := o.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := selected(cmd.Context(), client, name); err != nil {
		return err
	}
	query := url.Values{"limit": {strconv.Itoa(n)}, "queue": {name}}
	return printAnswer(cmd.Context(), cmd.OutOrStdout(), client, query, "audit")
}

// what a change was about.
func what(e operate.AuditEntry) string {
	var parts []string
	for _, part := range []struct{ name, value string }{
		{"tenant", e.Tenant}, {"kind", e.Kind}, {"endpoint", e.Endpoint}, {"state", string(e.State)}, {"id", e.ID},
	} {
		if part.value != "" {
			parts = append(parts, part.name+" "+part.value)
		}
	}
	if e.Contains != "" {
		parts = append(parts, fmt.Sprintf("reason contains %.60q", e.Contains))
	}
	if e.Group != nil {
		parts = append(parts, fmt.Sprintf("%s %s: %.60q", e.Group.Outcome, e.Group.Kind, e.Group.Reason))
	}
	if !e.Until.IsZero() {
		parts = append(parts, "until "+e.Until.Local().Format("2006-01-02 15:04:05"))
	}
	names := map[string]string{}
	maps.Copy(names, e.Before)
	maps.Copy(names, e.After)
	for i, name := range slices.Sorted(maps.Keys(names)) {
		if i == 3 {
			parts = append(parts, fmt.Sprintf("and %d more (--json)", len(names)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s: %s → %s", name, cmp.Or(e.Before[name], "none"), cmp.Or(e.After[name], "none")))
	}
	return cmp.Or(strings.Join(parts, "; "), "all")
}
