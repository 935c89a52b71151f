package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
)

func limitsTryCommand(o *options) *cobra.Command {
	var queue, tenant string
	var n int
	cmd := &cobra.Command{
		Use:   "try FILE",
		Short: "Show how the jobs of the last day would have waited under a limits file",
		Long: `try lets the calls of the last day go again, in a model, under the limits in effect and under
those of a file. It shows how long jobs waited and would have waited, how much of each limit was
used, and which limit held whom. It changes nothing, and takes seconds for a million calls.

MEASURED is how jobs really waited until their first call, NOW the model of the limits in effect:
where the two differ, something that the model leaves out held jobs, such as pauses, concurrency,
too few workers, or a provider that refused calls.

A queue keeps its calls while the limits file says "conformance: true" for it.`,
		Example: "  enqueue limits try limits.yaml --queue email",
		Args:    oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := loadLimits(cmd, args[0])
			if err != nil {
				return err
			}
			if queue, err = queueToTry(args[0], queue, set); err != nil {
				return err
			}
			return o.withQueue(cmd.Context(), queue, func(client redis.UniversalClient) error {
				if o.json {
					return trialAsJSON(cmd, client, args[0], queue, tenant, n)
				}
				return showTrial(cmd, client, queue, set, inspect.TrialQuery{Tenant: tenant, N: n})
			})
		},
	}
	cmd.Flags().StringVar(&queue, "queue", "", "the queue (default: that of the file, if it has one)")
	cmd.Flags().StringVar(&tenant, "tenant", "", "list only this tenant")
	cmd.Flags().IntVarP(&n, "number", "n", 20, "how many tenants to list, 1 to 1000")
	return cmd
}

// queueToTry returns the queue whose limits are tried.
func queueToTry(path, queue string, set limits.Set) (string, error) {
	names := slices.Sorted(maps.Keys(set.Queues))
	switch {
	case queue == "" && len(names) == 1:
		return names[0], nil
	case queue == "":
		return "", &program.UsageError{Err: fmt.Errorf("--queue: name one of the queues in %s: %s", path, strings.Join(names, ", "))}
	case !slices.Contains(names, queue):
		return "", &program.UsageError{Err: fmt.Errorf("--queue: %s has no queue %s%s", path, check.Quote(queue), check.Suggest(queue, names))}
	}
	return queue, nil
}

func trialAsJSON(cmd *cobra.Command, client redis.UniversalClient, path, queue, tenant string, n int) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return &program.UsageError{Err: err}
	}
	body := map[string]any{"file": string(text), "tenant": tenant, "n": n}
	return printChange(cmd.Context(), cmd.OutOrStdout(), client, "", http.MethodPost, nil, body, "queues", queue, "trial")
}

func showTrial(cmd *cobra.Command, client redis.UniversalClient, queue string, set limits.Set, query inspect.TrialQuery) error {
	out := cmd.OutOrStdout()
	t, err := inspect.Try(cmd.Context(), client, queue, set, query)
	if err != nil {
		return wrong(err)
	}
	if t.Calls == 0 {
		_, err := fmt.Fprintf(out, "queue %s: no call of the last day is known; calls are kept while the limits file says \"conformance: true\" for their queue\n", printable(queue))
		return err
	}
	clock := func(at time.Time) string { return at.Local().Format("2006-01-02 15:04:05") }
	fmt.Fprintf(out, "queue %s: %s from %s to %s, of which %d are the first of a job\n\n", printable(queue), counted(t.Calls, "call"), clock(t.From), clock(t.To), t.Jobs)
	table := func(rows func(w io.Writer)) error {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		rows(w)
		return w.Flush()
	}
	err = table(func(w io.Writer) {
		fmt.Fprintln(w, "JOBS WAITED\tMEASURED\tNOW\tTHEN\t")
		for _, row := range []struct {
			name string
			of   func(inspect.Waiting) time.Duration
		}{
			{"half of them", func(w inspect.Waiting) time.Duration { return w.P50 }},
			{"95 %", func(w inspect.Waiting) time.Duration { return w.P95 }},
			{"99 %", func(w inspect.Waiting) time.Duration { return w.P99 }},
			{"the longest", func(w inspect.Waiting) time.Duration { return w.Max }},
		} {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t\n", row.name, waitText(row.of(t.Measured)), waitText(row.of(t.InForce.Waiting)), waitText(row.of(t.Proposed.Waiting)))
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := table(func(w io.Writer) { trialLimits(w, t) }); err != nil {
		return err
	}
	fmt.Fprintln(out)
	err = table(func(w io.Writer) {
		fmt.Fprintln(w, "TENANT\tJOBS\t95 % MEASURED\tNOW\tHELD BY\tTHEN\tHELD BY\t")
		for _, of := range t.Tenants {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t\n", printable(of.Tenant), of.Jobs, waitText(of.Measured.P95),
				waitText(of.InForce.P95), printable(cmp.Or(of.HeldBy, "-")), waitText(of.Proposed.P95), printable(cmp.Or(of.WouldHoldBy, "-")))
		}
	})
	if err != nil {
		return err
	}
	if more := t.Total - len(t.Tenants); more > 0 {
		fmt.Fprintf(out, "and %s for whom less changes (-n)\n", counted(more, "tenant"))
	}
	if len(t.NotCounted) > 0 {
		fmt.Fprintf(out, "the model leaves out %s: it does not know how long calls take, nor the calls of other queues\n", printable(strings.Join(t.NotCounted, ", ")))
	}
	if len(t.FullRate) > 0 {
		fmt.Fprintf(out, "tried at the full rate: %s; the model knows neither ramps nor adaptive rates\n", printable(strings.Join(t.FullRate, ", ")))
	}
	return nil
}

// trialLimits prints the limits in effect beside the proposed ones.
func trialLimits(w io.Writer, t inspect.Trial) {
	fmt.Fprintln(w, "LIMIT\tNOW: USED\tHELD JOBS\tHELD MOST\tTHEN: USED\tHELD JOBS\tHELD MOST\t")
	names := limitNames(t.InForce.Limits)
	for _, name := range limitNames(t.Proposed.Limits) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		fmt.Fprint(w, printable(name))
		for _, all := range [][]inspect.TrialLimit{t.InForce.Limits, t.Proposed.Limits} {
			i := slices.IndexFunc(all, func(l inspect.TrialLimit) bool { return l.Name == name })
			if i < 0 || slices.Contains(t.NotCounted, name) {
				fmt.Fprint(w, "\t-\t-\t-")
				continue
			}
			used := "per tenant"
			if !math.IsNaN(all[i].Used) {
				used = percent(all[i].Used)
			}
			fmt.Fprintf(w, "\t%s\t%s\t%s", used, waitText(all[i].Held), counted(all[i].Tenants, "tenant"))
		}
		fmt.Fprintln(w, "\t")
	}
}

func limitNames(all []inspect.TrialLimit) (names []string) {
	for _, l := range all {
		names = append(names, l.Name)
	}
	return names
}

// percent says how large a part is. It does not round a part to 0 % or 100 %.
func percent(part float64) string {
	switch {
	case part > 0 && part < 0.01:
		return "< 1 %"
	case part > 0.99 && part < 1:
		return "> 99 %"
	}
	return fmt.Sprintf("%.0f %%", 100*part)
}

// waitText returns a time that was waited, to three digits or so.
func waitText(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
