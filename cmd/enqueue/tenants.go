package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
)

func tenantsCommand(o *options) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "tenants",
		Short: "Show the tenants of the queues: backlog, weight, pauses, overrides",
		Long: `tenants lists the tenants of the queues: how many of their jobs wait, how many calls succeeded,
their weights, pauses and overrides.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return tenants(cmd, o, name)
		},
	}
	cmd.Flags().StringVar(&name, "queue", "", "one queue (default: all)")
	return cmd
}

// The tenants as JSON.
type (
	tenantInfoJSON struct {
		Queue     string      `json:"queue"`
		Tenant    string      `json:"tenant"`
		Waiting   int64       `json:"waiting"`
		Done      int64       `json:"done"`
		Weight    float64     `json:"weight"`
		Paused    []pauseJSON `json:"paused"`
		Overrides []limitJSON `json:"overrides"`
	}
	limitJSON struct {
		Queue       string     `json:"queue"`
		Tenant      string     `json:"tenant,omitempty"`
		Limit       string     `json:"limit"`
		Per         []string   `json:"per"`
		Unit        string     `json:"unit,omitempty"`
		Algorithm   string     `json:"algorithm,omitempty"`
		Rate        string     `json:"rate,omitempty"`
		Burst       int64      `json:"burst,omitempty"`
		Capacity    int64      `json:"capacity,omitempty"`
		Concurrency int64      `json:"concurrency,omitempty"`
		From        string     `json:"from"`
		Until       *time.Time `json:"until,omitempty"`
		Actor       string     `json:"actor,omitempty"`
		Reason      string     `json:"reason,omitempty"`
		NotInForce  string     `json:"not_in_force,omitempty"`
	}
)

func limitAsJSON(name, tenant string, f limits.Effective) limitJSON {
	per := f.Per
	if per == nil {
		per = []string{}
	}
	return limitJSON{
		name, tenant, f.Name, per, f.Unit, string(f.Algorithm), f.Rate, f.Burst, f.Capacity, f.Concurrency,
		f.From, moment(f.Until), f.Actor, f.Reason, f.NotInEffect,
	}
}

func tenants(cmd *cobra.Command, o *options, name string) error {
	ctx := cmd.Context()
	list := []tenantInfoJSON{}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "QUEUE\tTENANT\tWAITING\tDONE\tWEIGHT\tPAUSED\tOVERRIDES")
	err := o.eachQueue(ctx, name, func(client redis.UniversalClient, name string) error {
		return eachTenant(ctx, inspect.New(client), name, func(t inspect.TenantRow) error {
			info := tenantInfoJSON{name, t.Tenant, t.Waiting, t.Done, t.Weight, []pauseJSON{}, []limitJSON{}}
			var paused, changed []string
			for _, p := range t.Pauses {
				info.Paused = append(info.Paused, pauseAsJSON(name, p))
				text := p.Text(time.Now())
				if p.Tenant == "" {
					text = "with its queue " + text
				}
				paused = append(paused, text)
			}
			overrides, err := overridesOf(ctx, client, name, t)
			if err != nil {
				return err
			}
			for _, f := range overrides {
				info.Overrides = append(info.Overrides, limitAsJSON(name, t.Tenant, f))
				changed = append(changed, f.Name+" "+f.String())
			}
			list = append(list, info)
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\n", name, printable(t.Tenant), t.Waiting, t.Done, strconv.FormatFloat(t.Weight, 'g', -1, 64),
				printable(cmp.Or(strings.Join(paused, "; "), "-")), cmp.Or(strings.Join(changed, "; "), "-"))
			return nil
		})
	})
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(list)
	}
	return w.Flush()
}

// overridesOf lists the limits that operators changed for a tenant.
func overridesOf(ctx context.Context, client redis.UniversalClient, name string, t inspect.TenantRow) ([]limits.Effective, error) {
	if !t.Overridden {
		return nil, nil
	}
	all, err := inspect.LimitsInForce(ctx, client, name, t.Tenant)
	return slices.DeleteFunc(all, func(f limits.Effective) bool { return f.From != "override" }), err
}
