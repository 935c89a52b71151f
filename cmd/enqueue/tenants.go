package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
)

func tenantsCommand(o *options) *cobra.Command {
	var name, only string
	cmd := &cobra.Command{
		Use:   "tenants",
		Short: "Show the tenants of the queues: backlog, weight, pauses, overrides",
		Long: `tenants lists the tenants of the queues: how many of their jobs wait, how many calls succeeded,
their weights, pauses and overrides.`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return tenants(cmd, o, name, inspect.TenantFilter(only))
		},
	}
	cmd.Flags().StringVar(&name, "queue", "", "one queue (default: all; --json needs one)")
	cmd.Flags().StringVar(&only, "only", "", "only tenants that are waiting, paused, overridden, or have limits of their own (own)")
	return cmd
}

func tenants(cmd *cobra.Command, o *options, name string, only inspect.TenantFilter) error {
	ctx := cmd.Context()
	if o.json {
		return o.withQueue(ctx, name, func(client redis.UniversalClient) error {
			return tenantsJSON(ctx, cmd.OutOrStdout(), client, name, only)
		})
	}
	rows, unread, err := readQueues(ctx, o, name, readPatience, func(ctx context.Context, client redis.UniversalClient, name string) (string, error) {
		return tenantRows(ctx, client, name, only)
	})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "QUEUE\tTENANT\tWAITING\tDONE\tKEEPS\tWEIGHT\tPAUSED\tOVERRIDES")
	fmt.Fprint(w, strings.Join(rows, ""))
	return cmp.Or(w.Flush(), partly(unread))
}

// tenantRows are the lines of a queue's tenants.
func tenantRows(ctx context.Context, client redis.UniversalClient, name string, only inspect.TenantFilter) (string, error) {
	var rows strings.Builder
	for t, err := range inspect.New(client).Tenants(ctx, name, inspect.TenantQuery{Only: only, Sort: inspect.ByTenant, Ascending: true}) {
		if err != nil {
			return "", err
		}
		var paused, changed []string
		for _, p := range t.Pauses {
			text := p.Text(time.Now())
			if p.Tenant == "" {
				text = "with its queue " + text
			}
			paused = append(paused, text)
		}
		overrides, err := overridesOf(ctx, client, name, t)
		if err != nil {
			return "", err
		}
		for _, f := range overrides {
			changed = append(changed, f.Name+" "+f.String())
		}
		fmt.Fprintf(&rows, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", name, printable(t.Tenant), t.Waiting, t.Done, keeps(t.Stored, t.StoredBytes), strconv.FormatFloat(t.Weight, 'g', -1, 64),
			printable(cmp.Or(strings.Join(paused, "; "), "-")), cmp.Or(strings.Join(changed, "; "), "-"))
	}
	return rows.String(), nil
}

// tenantsJSON prints all pages of a queue's tenants as one.
func tenantsJSON(ctx context.Context, out io.Writer, client redis.UniversalClient, name string, only inspect.TenantFilter) error {
	var all struct {
		Now     json.RawMessage   `json:"now"`
		Total   int64             `json:"total"`
		Tenants []json.RawMessage `json:"tenants"`
	}
	all.Tenants = []json.RawMessage{}
	for more := true; more; {
		query := url.Values{
			"sort": {string(inspect.ByTenant)}, "only": {string(only)}, "limit": {strconv.Itoa(inspect.MaxTenants)}, "offset": {strconv.Itoa(len(all.Tenants))},
		}
		text, err := answer(ctx, client, "", http.MethodGet, query, nil, "queues", name, "tenants")
		if err != nil {
			return err
		}
		before := all.Tenants
		all.Tenants = nil // else the page is decoded into those before
		if err := json.Unmarshal(text, &all); err != nil {
			return err
		}
		more = len(all.Tenants) == inspect.MaxTenants
		all.Tenants = append(before, all.Tenants...)
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(all)
}

// overridesOf lists the limits that operators changed for a tenant.
func overridesOf(ctx context.Context, client redis.UniversalClient, name string, t inspect.TenantRow) ([]limits.Effective, error) {
	if !t.Overridden {
		return nil, nil
	}
	all, err := inspect.LimitsInForce(ctx, client, name, t.Tenant)
	return slices.DeleteFunc(all, func(f limits.Effective) bool { return f.From != "override" }), err
}
