package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/workers"
)

func statusCommand(o *options) *cobra.Command {
	var name string
	var top int
	var watch bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show backlog, throughput and drain time of each tenant",
		Long: `status shows each queue and its tenants, the largest backlog first: how many jobs wait, when the
next one goes and what holds it, and when the backlog drains. ARCHIVED counts the tenant's jobs
among the newest 10,000 that ended without success; "enqueue failures" groups them by reason.

With --json it shows the queues alone; "enqueue tenants --json" lists the tenants of one.`,
		Example: "  enqueue status\n  enqueue status --queue email --top 20 --watch",
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case top < 0:
				return &program.UsageError{Err: fmt.Errorf("--top: %d is negative", top)}
			case every < 100*time.Millisecond:
				return &program.UsageError{Err: fmt.Errorf("--interval: %v must be at least 100ms", every)}
			case !watch:
				return status(cmd.Context(), o, name, top, cmd.OutOrStdout())
			}
			return watchStatus(cmd.Context(), o, name, top, every, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "queue", "", "one queue (default: all)")
	flags.IntVar(&top, "top", 0, "only this many tenants of each queue (default: all)")
	flags.BoolVar(&watch, "watch", false, "print it again until interrupted")
	flags.DurationVar(&every, "interval", 2*time.Second, "how often --watch prints it")
	return cmd
}

// watchStatus prints the status again and again until ctx is done. On a terminal it starts at the
// top of the screen each time.
func watchStatus(ctx context.Context, o *options, name string, top int, every time.Duration, out io.Writer) error {
	clearScreen := ""
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) && !o.json {
		clearScreen = "\x1b[H\x1b[2J"
	}
	for {
		var page bytes.Buffer // written at once, so that a terminal does not flicker
		page.WriteString(clearScreen)
		err := status(ctx, o, name, top, &page)
		if unread, ok := errors.AsType[partialError](err); ok { // their nodes may come back
			if !o.json { // which says so itself
				fmt.Fprintln(&page, unread)
			}
			err = nil
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if _, err := out.Write(page.Bytes()); err != nil {
			return err
		}
		if wait.For(ctx, every) != nil {
			return nil
		}
	}
}

// statusPatience is shorter than readPatience: the status may be watched.
const statusPatience = 10 * time.Second

// queueStatus is a queue with its tenants, the largest backlog first.
type queueStatus struct {
	inspect.Overview
	tenants  []inspect.TenantRow
	archived map[string]int64 // by tenant
}

func status(ctx context.Context, o *options, name string, top int, out io.Writer) error {
	if o.json {
		return statusJSON(ctx, o, name, out)
	}
	all, unread, err := readQueues(ctx, o, name, statusPatience, func(ctx context.Context, client redis.UniversalClient, name string) (queueStatus, error) {
		s, err := readStatus(ctx, client, name, top)
		return s, withFaults(ctx, client, name, err)
	})
	for _, err := range unread {
		if faulty, ok := errors.AsType[faultyError](err); ok {
			if err := printFaults(out, faulty.queue, faulty.faults); err != nil {
				return err
			}
		}
	}
	if err != nil {
		return err
	}
	if err := printStatus(out, all, time.Now()); err != nil {
		return err
	}
	if err := o.printLimitsFiles(ctx, out); err != nil {
		return err
	}
	return partly(unread)
}

// statusJSON prints the queues, or one of them.
func statusJSON(ctx context.Context, o *options, name string, out io.Writer) error {
	if name != "" {
		return o.withQueue(ctx, name, func(client redis.UniversalClient) error {
			return printAnswer(ctx, out, client, nil, "queues", name)
		})
	}
	client, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	text, err := answer(ctx, client, "", http.MethodGet, nil, nil, "queues")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "%s\n", text); err != nil {
		return err
	}
	var all struct {
		Queues []struct {
			Queue     string
			Scheduled *int64 // left out of a queue that could not be read
		}
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	var unread []error
	for _, q := range all.Queues {
		if q.Scheduled == nil {
			unread = append(unread, fmt.Errorf("queue %q could not be read, so its figures are not known", q.Queue))
		}
	}
	return partly(unread)
}

// printLimitsFiles names the workers whose limits file is not in effect.
func (o *options) printLimitsFiles(ctx context.Context, out io.Writer) error {
	client, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	list, err := workers.List(ctx, client)
	if err != nil {
		return err
	}
	for _, worker := range list {
		details, err := api.ReadWorkerDetails(worker)
		if err != nil || details.LimitsFile == nil || details.LimitsFile.Error == "" {
			continue // a program of another kind has details of its own
		}
		fmt.Fprintf(out, "worker %s, process %d: its limits file %s is not in effect: %s\n",
			printable(worker.Host), worker.PID, printable(details.LimitsFile.Path), printable(details.LimitsFile.Error))
	}
	return nil
}

// readStatus reads a queue and its tenants: all of them, or only the first ones.
func readStatus(ctx context.Context, client redis.UniversalClient, name string, top int) (s queueStatus, err error) {
	inspector := inspect.New(client)
	if s.Overview, err = inspector.Overview(ctx, name); err != nil {
		return s, err
	}
	if s.archived, err = inspector.FailedByTenant(ctx, name); err != nil {
		return s, err
	}
	missing := maps.Clone(s.archived)
	for t, err := range inspector.Tenants(ctx, name, inspect.TenantQuery{Sort: inspect.ByWaiting, Limit: min(top, inspect.MaxTenants)}) {
		if err != nil {
			return s, err
		}
		delete(missing, t.Tenant)
		if s.tenants = append(s.tenants, t); len(s.tenants) == top {
			break
		}
	}
	// The queue forgets tenants without waiting and completed jobs, but not their archived ones.
	for _, tenant := range slices.Sorted(maps.Keys(missing)) {
		if top == 0 || len(s.tenants) < top {
			s.tenants = append(s.tenants, inspect.TenantRow{Outlook: inspect.Outlook{Queue: name, Tenant: tenant}})
		}
	}
	return s, nil
}

func printStatus(out io.Writer, all []queueStatus, now time.Time) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "no queues yet: nothing was enqueued and no limits were published")
		return err
	}
	for i, s := range all {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "queue %s: %d waiting, %d scheduled, %d to retry, %d released, %d in workers' hands, %d archived",
			s.Queue, s.Waiting, s.Scheduled, s.Retry, s.Pending, s.Active, s.Archived)
		if s.Stored > 0 {
			fmt.Fprintf(out, "; keeps %s", keeps(s.Stored, s.StoredBytes))
		}
		if !s.DrainsAt.IsZero() {
			fmt.Fprintf(out, "; drains %s", when(s.DrainsAt, now))
		}
		fmt.Fprintln(out)
		if s.Moving != nil {
			fmt.Fprintln(out, s.Moving)
		}
		for _, u := range s.Unserved {
			fmt.Fprintln(out, u)
		}
		for _, p := range s.Pauses {
			if _, err := fmt.Fprintf(out, "%s: %v is %s\n", s.Queue, printable(p.Scope.String()), printable(p.Text(now))); err != nil {
				return err
			}
		}
		if err := printFaults(out, s.Queue, s.Faults); err != nil {
			return err
		}
		if len(s.tenants) == 0 {
			continue
		}
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "TENANT\tWAITING\tNEXT SLOT\tHELD BY\tDONE\tARCHIVED\tKEEPS\tDRAINS")
		for _, t := range s.tenants {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d\t%d\t%s\t%s\n", printable(t.Tenant), t.Waiting, soon(t.Next, now), printable(heldWords(t, now)), t.Done, s.archived[t.Tenant],
				keeps(t.Stored, t.StoredBytes), when(t.DrainsAt, now))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// keeps is how many jobs are in Redis in all states, and their size: "1200 jobs, 1.4 MiB".
func keeps(jobs, bytes int64) string {
	if jobs == 0 {
		return "-"
	}
	size, units := float64(bytes), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; size >= 1000 && i < len(units)-1; i++ {
		size /= 1024
	}
	digits := 1
	if i == 0 || size >= 100 {
		digits = 0
	}
	return fmt.Sprintf("%s, %.*f %s", counted(jobs, "job"), digits, size, units[i])
}

// heldWords is what holds a tenant, be it a limit or not.
func heldWords(t inspect.TenantRow, now time.Time) string {
	var all []string
	if t.Unserved != nil {
		all = append(all, t.Unserved.String())
	}
	if t.Pause != nil {
		all = append(all, t.Pause.Text(now))
	}
	return cmp.Or(strings.Join(all, "; "), heldBy(t), "-")
}

// heldBy is the limit that holds a tenant longest; "": none does.
func heldBy(t inspect.TenantRow) string {
	if t.HeldBy == nil {
		return ""
	}
	return t.HeldBy.Limit
}

// printable quotes a name that would do something to a terminal or hide in it, also
// with bytes that are not UTF-8.
func printable(name string) string {
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

// soon is how far away a slot is.
func soon(t, now time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case !t.After(now):
		return "now"
	}
	return "in " + t.Sub(now).Round(time.Millisecond).String()
}

// when is a moment with how far away it is.
func when(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	layout := "15:04:05"
	if t.Sub(now) > 20*time.Hour {
		layout = "2006-01-02 15:04"
	}
	return fmt.Sprintf("%s (in %v)", t.Local().Format(layout), max(t.Sub(now), 0).Round(time.Second))
}
