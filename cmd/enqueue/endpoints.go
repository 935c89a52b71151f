package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/endpoints"
	"github.com/headgate/headgate/internal/program"
)

func endpointsCommand(o *options) *cobra.Command {
	var tenant string
	var who operator
	list := &cobra.Command{
		Use:   "list",
		Short: "List endpoints that get no calls",
		Args:  program.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return listEndpoints(cmd, o, tenant) },
	}
	list.Flags().StringVar(&tenant, "tenant", "", "of this tenant (default: all)")
	enable := &cobra.Command{
		Use:   "enable ID...",
		Short: "Send to endpoints again",
		Long: `enable lets all workers call endpoints again, and the jobs that wait for them go at once.
The job that was answered 410 is in the archive, and "enqueue retry" sends it again.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, ids []string) error { return enableEndpoints(cmd, o, who, ids) },
	}
	who.reasonFlags(enable)
	return group(&cobra.Command{
		Use:   "endpoints",
		Short: "List webhook receivers that are gone, and enable them again",
		Long: `endpoints lists the URLs that answered a webhook with 410. Jobs of that tenant to that URL
wait for a day, after which one job tries it, or until the endpoint is enabled. URLs often
hold secrets and are not stored: an ID stands for the URL and its tenant, and the last error
of each waiting job has it.`,
	}, list, enable)
}

func listEndpoints(cmd *cobra.Command, o *options, tenant string) error {
	client, err := o.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Close()
	all, err := endpoints.List(cmd.Context(), client)
	if err != nil {
		return err
	}
	list, now := []endpoints.Endpoint{}, time.Now()
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tTENANT\tHOST\tSINCE\tTRIED AGAIN")
	for _, e := range all {
		if tenant != "" && e.Tenant != tenant {
			continue
		}
		list = append(list, e)
		tried := when(e.Until, now)
		if e.Enabled {
			tried = "enabled; enable it again to wake all of its jobs"
		} else if !e.Until.After(now) {
			tried = "by its next job"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", e.ID, printable(e.Tenant), printable(e.Host), e.Since.Local().Format("2006-01-02 15:04"), tried)
	}
	if o.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(list)
	}
	return w.Flush()
}

func enableEndpoints(cmd *cobra.Command, o *options, who operator, ids []string) error {
	if len(ids) == 0 {
		return &program.UsageError{Err: errors.New("name an endpoint by its ID; enqueue endpoints list shows them")}
	}
	if err := who.checkReason(); err != nil {
		return err
	}
	client, err := o.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = oneByOne(ids, func(id string) error {
		woken, ok, err := endpoints.Enable(cmd.Context(), client, id, who.by())
		if err != nil {
			return wrong(err)
		} else if !ok {
			return unknownError{fmt.Errorf("there is no endpoint %.60q; enqueue endpoints list shows them", id)}
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "endpoint %s is called again; %s that waited for it go now\n", printable(id), counted(woken, "job"))
		return err
	})
	return err
}
