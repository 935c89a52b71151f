package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/jobline"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
)

func periodicCommand(o *options) *cobra.Command {
	return group(&cobra.Command{
		Use:   "periodic",
		Short: "Manage jobs that are enqueued on a schedule",
		Long: `periodic manages jobs that are enqueued on a schedule. Each tick is enqueued once, with any
number of workers. Workers follow changes within about a second.

A spec is "minute hour day-of-month month day-of-week" as in crontab, with
seconds in front if there are six fields; @hourly, @daily, @weekly, @monthly,
@yearly; or "@every 90s". All but @every need a time zone. In spring, a tick in
the missing hour runs right after it. In autumn, a tick in the repeated hour runs the first
time. A spec for every hour follows the clock.

A tick is skipped while the job of the last tick waits or runs. With --overlap queue, its job
is enqueued too. With --overlap replace, the last job is cancelled if it still waits.`,
	},
		periodicListCommand(o), periodicAddCommand(o),
		entriesCommand(o, "remove", "Remove entries; enqueued jobs stay", "removed", func(ctx context.Context, client redis.UniversalClient, s queue.PeriodicState) (bool, error) {
			return o.client(client).RemovePeriodic(ctx, s.ID)
		}),
		entriesCommand(o, "pause", "Pause entries; ticks during the pause are skipped", "paused", pausing(o, true)),
		entriesCommand(o, "resume", "Resume paused entries at their next ticks", "resumed", pausing(o, false)),
	)
}

func pausing(o *options, paused bool) func(context.Context, redis.UniversalClient, queue.PeriodicState) (bool, error) {
	return func(ctx context.Context, client redis.UniversalClient, s queue.PeriodicState) (bool, error) {
		if s.Err == nil && s.Paused == paused {
			return false, nil
		}
		return o.client(client).PausePeriodic(ctx, s.ID, paused)
	}
}

// recordPeriodic adds a change of an entry to the audit of the queue where its jobs go. An entry
// that cannot be read has no queue, and so no audit.
func recordPeriodic(ctx context.Context, client redis.UniversalClient, verb string, s queue.PeriodicState, by operate.Operator) error {
	if s.Queue == "" {
		return nil
	}
	return operate.Record(ctx, client, operate.AuditEntry{Action: "periodic " + verb, Queue: s.Queue, Tenant: s.Job.Tenant, Kind: s.Job.Kind, ID: s.ID}, by)
}

// findPeriodic returns the entry with an id. ok is false if there is none; names are all ids.
func findPeriodic(ctx context.Context, o *options, client redis.UniversalClient, id string) (found queue.PeriodicState, names []string, ok bool, err error) {
	states, err := o.client(client).ListPeriodic(ctx)
	for _, s := range states {
		names = append(names, s.ID)
		if s.ID == id {
			found, ok = s, true
		}
	}
	return found, names, ok, err
}

func periodicAddCommand(o *options) *cobra.Command {
	var (
		p          queue.Periodic
		l          jobline.Line
		payload    string
		attributes map[string]string
		who        operator
	)
	cmd := &cobra.Command{
		Use:     "add ID",
		Short:   "Add an entry, or replace the one with this id",
		Example: `  enqueue periodic add report --spec '30 7 * * mon-fri' --zone Europe/Berlin --kind webhook --tenant acme --payload '{"url":"https://example.com/report"}' --reason "the daily report"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &program.UsageError{Err: fmt.Errorf("%s takes one id, got %d arguments", cmd.CommandPath(), len(args))}
			}
			return nil
		},
	}
	who.reasonFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&p.Spec, "spec", "", `when, such as "*/5 * * * *", @daily or "@every 90s"`)
	flags.StringVar(&p.Zone, "zone", "", "time zone of the spec, such as Europe/Berlin or UTC; none for @every")
	flags.DurationVar(&p.MaxLate, "max-late", 0, "how late the latest tick that no worker fired in time may still be enqueued (default 1h)")
	flags.StringVar((*string)(&p.Overlap), "overlap", "", "if the last job has not ended: skip the tick, queue its job too, or replace the last job if it waits (default skip)")
	flags.BoolVar(&p.Paused, "paused", false, "add it paused; one that is paused stays so until it is resumed")
	l.Kind, l.Tenant, l.Queue, l.Priority = new(""), new(""), new(""), new("")
	flags.StringVar(l.Kind, "kind", "", "kind of the job: webhook, email, or your own")
	flags.StringVar(l.Tenant, "tenant", "", "tenant of the job (required)")
	flags.StringVar(l.Queue, "queue", "", "where the jobs wait (default: the queue of their kind)")
	flags.StringVar(l.Priority, "priority", "", "high, normal or low (default normal)")
	attempts := flags.Int("max-attempts", 0, "failed calls after which the job is archived (default 10)")
	cost := flags.Int64("cost", 0, "permits that a call takes (default 1)")
	flags.StringToStringVar(&attributes, "attribute", nil, "attribute as name=value, which limits may use in per; may be repeated")
	flags.StringVar(&payload, "payload", "", "JSON, @FILE, or - for standard input")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p.ID = args[0]
		if flags.Changed("max-attempts") {
			l.MaxAttempts = attempts
		}
		if flags.Changed("cost") {
			l.Cost = cost
		}
		l.Attributes = attributes
		text, err := readPayload(cmd.Context(), payload, cmd.InOrStdin())
		if err := cmd.Context().Err(); err != nil {
			return fmt.Errorf("interrupted before the entry was set: %w", context.Cause(cmd.Context()))
		}
		if err != nil {
			return &program.UsageError{Err: fmt.Errorf("--payload: %w", err)}
		}
		l.Payload = text
		if p.Job, err = l.Job(known); err != nil {
			return &program.UsageError{Err: oneLine(err)}
		}
		if err := who.checkReason(); err != nil {
			return err
		}
		client, err := o.connect(cmd.Context())
		if err != nil {
			return err
		}
		defer client.Close()
		before, _, _, err := findPeriodic(cmd.Context(), o, client, p.ID)
		if err != nil {
			return err
		}
		if err := o.client(client).SetPeriodic(cmd.Context(), p); err != nil {
			if validation.Is(err) {
				return &program.UsageError{Err: oneLine(err)}
			}
			return oneLine(err)
		}
		after, _, _, err := findPeriodic(cmd.Context(), o, client, p.ID)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(before.Periodic, after.Periodic) {
			if err := recordPeriodic(cmd.Context(), client, "add", after, who.by()); err != nil {
				return err
			}
		}
		return periodicList(cmd.Context(), o, client, p.ID, cmd.OutOrStdout())
	}
	return cmd
}

func periodicListCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List entries with their next, last and skipped ticks",
		Args:  program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			return periodicList(cmd.Context(), o, client, "", cmd.OutOrStdout())
		},
	}
}

// periodicJSON is an entry as JSON.
type periodicJSON struct {
	ID        string        `json:"id"`
	Spec      string        `json:"spec"`
	Zone      string        `json:"zone,omitempty"`
	MaxLate   string        `json:"max_late"`
	Overlap   queue.Overlap `json:"overlap"`
	Paused    bool          `json:"paused"`
	Next      *time.Time    `json:"next"`
	LastFired *time.Time    `json:"last_fired"`

	Skipped     int64      `json:"skipped"`
	LastSkipped *time.Time `json:"last_skipped"`

	Kind    string          `json:"kind"`
	Tenant  string          `json:"tenant"`
	Queue   string          `json:"queue,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"` // when it is JSON
	Error   string          `json:"error,omitempty"`
}

// periodicList prints the entry with the id, or all when it is "".
func periodicList(ctx context.Context, o *options, client redis.UniversalClient, id string, out io.Writer) error {
	states, err := o.client(client).ListPeriodic(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	entries := []periodicJSON{}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if !o.json {
		fmt.Fprintln(w, "ID\tSPEC\tZONE\tKIND\tTENANT\tOVERLAP\tNEXT\tLAST FIRED\tSKIPPED")
	}
	for _, s := range states {
		if id != "" && s.ID != id {
			continue
		}
		entry := periodicJSON{
			ID: s.ID, Spec: s.Spec, Zone: s.Zone, MaxLate: s.MaxLate.String(), Overlap: s.Overlap, Paused: s.Paused, Skipped: s.Skipped,
			Kind: s.Job.Kind, Tenant: s.Job.Tenant, Queue: s.Job.Queue,
		}
		next, last, skipped := when(s.Next, now), "-", "-"
		if s.Paused {
			next = "paused"
		}
		if !s.Next.IsZero() {
			entry.Next = &s.Next
		}
		if !s.LastFired.IsZero() {
			entry.LastFired = &s.LastFired
			last = s.LastFired.Local().Format(time.DateTime)
		}
		if !s.LastSkipped.IsZero() {
			entry.LastSkipped = &s.LastSkipped
			skipped = fmt.Sprintf("%d, last %s", s.Skipped, s.LastSkipped.Local().Format(time.DateTime))
		}
		if payload, ok := s.Job.Payload.(json.RawMessage); ok && json.Valid(payload) {
			entry.Payload = payload
		}
		if s.Err != nil {
			entry.Error = s.Err.Error()
			next = "unreadable: " + printable(strings.ReplaceAll(entry.Error, "\n", "; "))
		}
		entries = append(entries, entry)
		if !o.json {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(s.ID), printable(s.Spec), printable(cmp.Or(s.Zone, "-")),
				printable(s.Job.Kind), printable(s.Job.Tenant), cmp.Or(s.Overlap, "-"), next, last, skipped)
		}
	}
	if o.json {
		return json.NewEncoder(out).Encode(entries)
	}
	return w.Flush()
}

// entriesCommand does one thing to the entries that it is given. do reports whether that changed
// the entry.
func entriesCommand(o *options, verb, short, done string, do func(context.Context, redis.UniversalClient, queue.PeriodicState) (bool, error)) *cobra.Command {
	var who operator
	cmd := &cobra.Command{
		Use:   verb + " ID...",
		Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &program.UsageError{Err: fmt.Errorf("%s takes the ids of entries", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if err := who.checkReason(); err != nil {
				return err
			}
			client, err := o.connect(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			ids, err := oneByOne(args, func(id string) error {
				entry, names, ok, err := findPeriodic(ctx, o, client, id)
				if err != nil {
					return err
				}
				if !ok {
					return unknownError{fmt.Errorf("there is no periodic job %.60q%s", id, check.Suggest(id, names))}
				}
				changed, err := do(ctx, client, entry)
				if err != nil {
					return err
				}
				words := done
				if !changed {
					words = "was " + done + " already"
				} else if err := recordPeriodic(ctx, client, verb, entry, who.by()); err != nil {
					return err
				}
				if !o.json {
					fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", printable(id), words)
				}
				return nil
			})
			if o.json && len(ids) > 0 {
				err = errors.Join(err, json.NewEncoder(cmd.OutOrStdout()).Encode(map[string][]string{done: ids}))
			}
			return err
		},
	}
	who.reasonFlags(cmd)
	return cmd
}
