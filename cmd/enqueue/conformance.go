package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/operate"
)

// conformanceQuery has the flags of the command.
type conformanceQuery struct {
	queue, tenant, limit string
	hours, n             int
	csv                  bool
}

func conformanceCommand(o *options) *cobra.Command {
	var q conformanceQuery
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Show whether calls kept to the limits",
		Long: `conformance compares the calls that left with the limits of their queue: for each limit and
tenant the most permits that calls took in any window of the limit, and how many were allowed,
hour by hour for up to 30 days. Limits that were exceeded come first, with the changes that
explain it: jobs that an operator ran at once, or a limit that was lowered.

Calls are counted while the limits file says "conformance: true" for their queue.`,
		Example: "  enqueue conformance --queue email\n  enqueue conformance --queue email --tenant acme --hours 720 --csv",
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withQueue(cmd.Context(), q.queue, func(client redis.UniversalClient) error {
				if o.json {
					return conformanceAsJSON(cmd, client, q)
				}
				return showConformance(cmd, client, q)
			})
		},
	}
	cmd.Flags().StringVar(&q.queue, "queue", "", "the queue (required)")
	cmd.Flags().StringVar(&q.tenant, "tenant", "", "only limits per tenant, of this one")
	cmd.Flags().StringVar(&q.limit, "limit", "", "only this limit")
	cmd.Flags().IntVar(&q.hours, "hours", 24, fmt.Sprintf("how many hours, with this one, 1 to %d", api.MaxConformanceHours))
	cmd.Flags().IntVarP(&q.n, "number", "n", 100, "how many limits and tenants, 1 to 1000")
	cmd.Flags().BoolVar(&q.csv, "csv", false, "print CSV, a line for each hour")
	return cmd
}

func conformanceAsJSON(cmd *cobra.Command, client redis.UniversalClient, q conformanceQuery) error {
	query := url.Values{"hours": {strconv.Itoa(q.hours)}, "n": {strconv.Itoa(q.n)}, "tenant": {q.tenant}, "limit": {q.limit}}
	return printAnswer(cmd.Context(), cmd.OutOrStdout(), client, query, "queues", q.queue, "conformance")
}

func showConformance(cmd *cobra.Command, client redis.UniversalClient, q conformanceQuery) error {
	if q.hours < 1 || q.hours > api.MaxConformanceHours {
		return &program.UsageError{Err: fmt.Errorf("--hours: %d must be 1 to %d", q.hours, api.MaxConformanceHours)}
	}
	ctx, out, now := cmd.Context(), cmd.OutOrStdout(), time.Now()
	c, err := inspect.ReadConformance(ctx, client, q.queue, inspect.ConformanceQuery{
		From: now.Add(-time.Duration(q.hours-1) * time.Hour).Truncate(time.Hour), To: now, Tenant: q.tenant, Limit: q.limit, N: q.n,
	})
	if err == nil {
		err = operate.NameCauses(ctx, client, q.queue, &c)
	}
	if err != nil {
		return err
	}
	notes := out
	if q.csv {
		notes = cmd.ErrOrStderr()
	}
	if !c.Counts {
		fmt.Fprintf(notes, "queue %s does not count its calls: say \"conformance: true\" for it in the limits file\n", printable(q.queue))
	}
	show := conformanceAsTable
	if q.csv {
		show = conformanceAsCSV
	}
	if err := show(out, c); err != nil {
		return err
	}
	if more := c.Total - len(c.Buckets); more > 0 {
		fmt.Fprintf(notes, "and %d more that kept further below their limits (-n)\n", more)
	}
	if len(c.Missed) > 0 {
		fmt.Fprintf(notes, "some calls were not counted in %d of these hours, the latest %s\n", len(c.Missed), c.Missed[len(c.Missed)-1].Local().Format("2006-01-02 15:04"))
	}
	return nil
}

func conformanceAsTable(out io.Writer, c inspect.Conformance) error {
	if len(c.Buckets) == 0 {
		_, err := fmt.Fprintln(out, "no call was counted in this time")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LIMIT\tOF\tWINDOW\tMOST\tALLOWED\tIN THE HOUR\t")
	for _, b := range c.Buckets {
		hour := worst(b)
		most, allowed, verdict := hour.Most, hour.Allowed, "kept"
		if hour.Over != nil {
			most, allowed, verdict = hour.Over.Took, hour.Over.Allowed, "EXCEEDED: "+causes(hour.Over.Causes)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", printable(b.Limit), printable(owner(b)), window(b), most, allowed, hour.At.Local().Format("2006-01-02 15:04"), verdict)
	}
	return w.Flush()
}

// worst returns the hour in which a limit was exceeded most, or else came nearest to it.
func worst(b inspect.ConformanceBucket) inspect.ConformanceHour {
	return slices.MaxFunc(b.Hours, func(x, y inspect.ConformanceHour) int {
		of := func(h inspect.ConformanceHour) float64 {
			if h.Over != nil {
				return float64(h.Over.Took) / float64(max(h.Over.Allowed, 1))
			}
			return float64(h.Most) / float64(max(h.Allowed, 1))
		}
		return cmp.Or(cmp.Compare(of(x), of(y)), x.At.Compare(y.At))
	})
}

// owner says whose calls share a limit.
func owner(b inspect.ConformanceBucket) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(b.Values)) {
		if name == "tenant" || name == "" { // the latter of a limit that is gone
			parts = append([]string{b.Values[name]}, parts...)
		} else {
			parts = append(parts, name+" "+b.Values[name])
		}
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}

func window(b inspect.ConformanceBucket) string {
	if b.Window == 0 {
		return "-"
	}
	return b.Window.String()
}

// causes says what explains a violation.
func causes(all []inspect.Cause) string {
	if len(all) == 0 {
		return "no change explains it"
	}
	var parts []string
	for _, c := range all {
		parts = append(parts, printable(causeText(c)))
	}
	return strings.Join(parts, "; ")
}

func causeText(c inspect.Cause) string {
	at := c.At.Local().Format("15:04:05")
	because := ""
	if c.Reason != "" {
		because = " (" + c.Reason + ")"
	}
	switch c.What {
	case inspect.CausedByRun:
		return fmt.Sprintf("%s ran jobs at once at %s%s", c.Actor, at, because)
	case inspect.CausedByChange:
		return fmt.Sprintf("%s changed it at %s from %s to %s%s", c.Actor, at, cmp.Or(c.Before, "none"), cmp.Or(c.After, "none"), because)
	case inspect.CausedByEnd:
		return fmt.Sprintf("the override of %s ended at %s%s", c.Actor, at, because)
	case inspect.CauseUnknown:
		return "not known, because the audit has all changes only since " + c.At.Local().Format("2006-01-02 15:04")
	default:
		return "what was used of it was lost from Redis at " + at
	}
}

// cell returns a text that no spreadsheet takes for a formula.
func cell(text string) string {
	text = printable(text)
	if strings.ContainsAny(text[:min(len(text), 1)], "=+-@") {
		return "'" + text
	}
	return text
}

func conformanceAsCSV(out io.Writer, c inspect.Conformance) error {
	w := csv.NewWriter(out)
	_ = w.Write([]string{"limit", "of", "window_seconds", "hour", "most", "allowed", "exceeded_at", "exceeded_took", "exceeded_allowed", "causes"})
	for _, b := range c.Buckets {
		for _, h := range b.Hours {
			line := []string{cell(b.Limit), cell(owner(b)), strconv.FormatFloat(b.Window.Seconds(), 'f', -1, 64), h.At.Format(time.RFC3339), strconv.FormatInt(h.Most, 10), strconv.FormatInt(h.Allowed, 10), "", "", "", ""}
			if over := h.Over; over != nil {
				copy(line[6:], []string{over.At.Format(time.RFC3339Nano), strconv.FormatInt(over.Took, 10), strconv.FormatInt(over.Allowed, 10), cell(causes(over.Causes))})
			}
			_ = w.Write(line)
		}
	}
	w.Flush()
	return w.Error()
}
