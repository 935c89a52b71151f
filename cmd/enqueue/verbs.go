package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/operate"
)

// verbHelp is how a verb is described.
type verbHelp struct {
	use, short, long, example string
	doing, did                string // "cancel 3 jobs", "cancelled 3 jobs"
	asksForOne                bool   // also for a single job
}

var verbHelps = map[operate.Verb]verbHelp{
	operate.Cancel: {
		use: "cancel", short: "Archive jobs that have not been sent", doing: "cancel", did: "cancelled",
		long: `cancel archives jobs that are waiting, scheduled, to be retried, or released but not yet
taken by a worker. Each records who cancelled it and why. "enqueue retry" brings them back.

Jobs that a worker holds cannot be cancelled: they are counted, and finish. To catch all
jobs of a busy tenant, pause it first.`,
		example: `  enqueue cancel --queue email --tenant acme --kind newsletter --reason "wrong template"
  enqueue cancel --queue email --id acme:order-4711 --reason "customer called"`,
	},
	operate.RunNow: {
		use: "run", short: "Send waiting jobs at once, WHATEVER THE LIMITS SAY", doing: "run, BEYOND EVERY LIMIT,", did: "handed to the workers",
		long: `run sends waiting, scheduled and retried jobs at once. IT EXCEEDS EVERY LIMIT of the queue,
including those of the provider, and ignores send windows: the provider may answer with 429,
or block the account.

The jobs are charged to their limits, so other jobs wait for them. Paused jobs stay where
they are. The flag --yes is required, even for a single job.`,
		example:    `  enqueue run --queue email --id acme:password-reset --reason "customer on the phone" --yes`,
		asksForOne: true,
	},
	operate.RetryArchived: {
		use: "retry", short: "Put archived jobs back into their lanes", doing: "retry", did: "put back",
		long: `retry puts archived jobs back at the end of their lanes. Their attempts start again at one,
and limits apply as usual. Jobs whose call succeeded are not retried.`,
		example: `  enqueue retry --queue payments --tenant acme --reason "the provider is back"
  enqueue retry --queue payments --reason-contains "answered 503" --reason "the provider is back"`,
	},
	operate.DeleteArchived: {
		use: "delete", short: "Permanently delete archived jobs", doing: "delete", did: "deleted",
		long: `delete permanently deletes archived jobs and their payloads. No other command deletes jobs.
Jobs that are not archived must be cancelled first.`,
		example:    `  enqueue delete --queue email --tenant acme --reason "erasure requested"`,
		asksForOne: true,
	},
}

func verbCommands(o *options) []*cobra.Command {
	var all []*cobra.Command
	for _, verb := range []operate.Verb{operate.Cancel, operate.RetryArchived, operate.RunNow, operate.DeleteArchived} {
		all = append(all, verbCommand(o, verb))
	}
	return all
}

func verbCommand(o *options, verb operate.Verb) *cobra.Command {
	help := verbHelps[verb]
	var who operator
	var filter operate.Filter
	cmd := &cobra.Command{
		Use: help.use, Short: help.short, Example: help.example, Args: program.NoArgs,
		Long: help.long + `

A job must match all given flags; --queue alone selects all jobs of the queue. The jobs are
counted first, and the count is shown before anything is changed. The command works in short
steps: it can be interrupted, and run again for the rest.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return doVerb(cmd, o, verb, filter, who)
		},
	}
	who.flags(cmd)
	who.askFlag(cmd)
	cmd.Flags().StringVar(&filter.Tenant, "tenant", "", "only jobs of this tenant")
	cmd.Flags().StringVar(&filter.Kind, "kind", "", "only jobs of this kind")
	cmd.Flags().StringVar(&filter.ID, "id", "", "only this job")
	if verb == operate.RetryArchived || verb == operate.DeleteArchived {
		cmd.Flags().StringVar(&filter.Reason, "reason-contains", "", "only jobs with this text in their reason")
	}
	cmd.Flags().BoolVar(&who.dry, "dry-run", false, "count the jobs, and change nothing")
	return cmd
}

// tallyJSON is what a verb prints as JSON.
type tallyJSON struct {
	Action  string                    `json:"action"`
	Queue   string                    `json:"queue"`
	DryRun  bool                      `json:"dry_run"`
	Jobs    int64                     `json:"jobs"`
	ByState map[lifecycle.State]int64 `json:"by_state"`
	TooLate int64                     `json:"too_late"`
	Paused  int64                     `json:"paused"`
}

func doVerb(cmd *cobra.Command, o *options, verb operate.Verb, filter operate.Filter, who operator) error {
	ctx, help := cmd.Context(), verbHelps[verb]
	if err := who.check(); err != nil {
		return err
	}
	client, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	tally, words, partly, err := who.count(cmd, client, verb, filter)
	if err != nil {
		return wrong(err)
	}
	if !who.dry && (tally.Jobs > 0 || partly != nil) {
		if !o.json {
			fmt.Fprintf(cmd.ErrOrStderr(), "queue %s: %s\n", who.queue, told(tally, "would "+help.doing+" "+words))
		}
		if verb == operate.RunNow && !who.yes {
			return &program.UsageError{Err: fmt.Errorf("run sends %s beyond every limit of queue %s: say --yes if you mean it", words, who.queue)}
		}
		if filter.ID == "" || help.asksForOne {
			if err := who.confirm(cmd, fmt.Sprintf("%s %s of queue %s?", help.doing, words, who.queue)); err != nil {
				return err
			}
		}
		progress, end := verbBar(cmd.ErrOrStderr(), tally.Jobs, o.json)
		tally, err = operate.Apply(ctx, client, who.queue, verb, filter, who.by(), progress)
		end()
		words, partly = counted(tally.Jobs, "job"), nil
	}
	if err != nil && tally.Jobs == 0 {
		return wrong(err)
	}
	out := cmd.OutOrStdout()
	if o.json {
		if tally.ByState == nil {
			tally.ByState = map[lifecycle.State]int64{}
		}
		if err := json.NewEncoder(out).Encode(tallyJSON{string(verb), who.queue, who.dry, tally.Jobs, tally.ByState, tally.TooLate, tally.Paused}); err != nil {
			return err
		}
	} else {
		did := help.did
		if who.dry {
			did = "would " + help.doing
		}
		fmt.Fprintf(out, "queue %s: %s\n", who.queue, told(tally, did+" "+words))
	}
	if err != nil {
		return partialError{fmt.Errorf("%w; running the same again does the rest", err)}
	}
	return partly
}

// told is a tally in words, after the number of jobs.
func told(tally operate.Tally, text string) string {
	var parts []string
	for _, state := range []lifecycle.State{lifecycle.StateWaiting, lifecycle.StateScheduled, lifecycle.StateRetry, lifecycle.StatePending, lifecycle.StateArchived} {
		if n := tally.ByState[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	if tally.TooLate > 0 {
		text += fmt.Sprintf("; too late for %s in workers' hands or called already", counted(tally.TooLate, "job"))
	}
	if tally.Paused > 0 {
		text += fmt.Sprintf("; %s under a pause stay", counted(tally.Paused, "job"))
	}
	return text
}

// verbBar shows on a terminal how far a verb came, and nothing anywhere else.
func verbBar(out io.Writer, all int64, quiet bool) (progress func(operate.Tally), end func()) {
	file, ok := out.(*os.File)
	if quiet || !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, func() {}
	}
	bar := progressbar.NewOptions64(all, progressbar.OptionSetWriter(out), progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	// A bar that cannot be drawn is no failure.
	return func(tally operate.Tally) { _ = bar.Set64(min(tally.Jobs, all)) }, func() { _ = bar.Finish() }
}
