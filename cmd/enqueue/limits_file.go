package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/limitsfile"
	"github.com/headgate/headgate/queue/operate"
)

// oneFile requires the path of a limits file as the only argument.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return &program.UsageError{Err: fmt.Errorf("%s takes the path of one limits file, got %d arguments", cmd.CommandPath(), len(args))}
	}
	return nil
}

func limitsCheckCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a limits file, without Redis",
		Long: `check reads a limits file as a worker does, and prints every mistake with its line and
the remedy. It needs no Redis. It exits 2 if there is a mistake. It warns of attributes in per
whose names look misspelled: a limit treats jobs without an attribute as one.`,
		Example: "  enqueue limits check limits.yaml",
		Args:    oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := loadLimits(cmd, args[0])
			if err != nil {
				return err
			}
			rules, warnings := 0, doubts(set)
			for _, q := range set.Queues {
				rules += len(q.Limits)
			}
			if o.json {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"queues": len(set.Queues), "limits": rules, "tenants": len(set.Tenants), "warnings": warnings})
			}
			for _, warning := range warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: warning: %s\n", args[0], warning)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: ok: %s, %s, %s\n", args[0],
				counted(len(set.Queues), "queue"), counted(rules, "limit"), counted(len(set.Tenants), "tenant"))
			return err
		},
	}
}

// doubts returns what may be a mistake in limits that are valid.
func doubts(set limits.Set) []string {
	known := []string{"tenant", limits.GroupAttribute, "kind", "endpoint", "host", "domain"} // which jobs have without naming them
	all := []string{}
	for _, queue := range slices.Sorted(maps.Keys(set.Queues)) {
		for i, limit := range set.Queues[queue].Limits {
			for _, name := range limit.Per {
				if suggestion := check.Suggest(name, known); suggestion != "" && !slices.Contains(known, name) {
					all = append(all, fmt.Sprintf("queues.%s.limits[%d].per: jobs have %s only if they bring it%s", queue, i, check.Quote(name), suggestion))
				}
			}
		}
	}
	return all
}

// loadLimits reads a limits file. It prints each mistake as FILE:LINE.
func loadLimits(cmd *cobra.Command, path string) (limits.Set, error) {
	set, err := limitsfile.Load(path)
	if mistakes, ok := errors.AsType[*limitsfile.Error](err); ok {
		for _, p := range mistakes.Problems {
			fmt.Fprintln(cmd.ErrOrStderr(), placed(path, p))
		}
		return limits.Set{}, &program.UsageError{Err: fmt.Errorf("%s has %s", path, counted(len(mistakes.Problems), "mistake"))}
	}
	if err != nil {
		return limits.Set{}, &program.UsageError{Err: err}
	}
	return set, nil
}

// placed returns a mistake after its place, as compilers print it: "limits.yaml:12: …".
func placed(path string, p limitsfile.Problem) string {
	if p.Line > 0 {
		path = fmt.Sprintf("%s:%d", path, p.Line)
	}
	p.Line = 0
	return path + ": " + p.String()
}

// counted returns "1 queue", "2 queues".
func counted[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func limitsDiffCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "diff FILE",
		Short: "Show how a limits file differs from the limits in effect",
		Long: `diff compares a limits file with the limits that are published in Redis, queue by queue:
+ is added by the file, - removed, and ~ changed. Overrides are left out, because
publishing keeps them. It prints nothing if there is no difference.`,
		Example: "  enqueue limits diff limits.yaml",
		Args:    oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := loadLimits(cmd, args[0])
			if err != nil {
				return err
			}
			client, err := o.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			_, err = printDiff(cmd, o, client, set, cmd.OutOrStdout())
			return err
		},
	}
}

// comparisonJSON is the difference of one queue.
type comparisonJSON struct {
	Queue   string            `json:"queue"`
	New     bool              `json:"new"`
	Before  map[string]string `json:"before"`
	After   map[string]string `json:"after"`
	Tenants int               `json:"tenants"` // with differing values of their own
}

// printDiff prints what publishing a set would change. It returns in how many queues.
func printDiff(cmd *cobra.Command, o *options, client redis.UniversalClient, set limits.Set, out io.Writer) (int, error) {
	all, err := operate.Compare(cmd.Context(), client, set)
	if err != nil {
		return 0, wrong(err)
	}
	all = slices.DeleteFunc(all, operate.Comparison.Equal)
	if o.json {
		list := []comparisonJSON{}
		for _, c := range all {
			list = append(list, comparisonJSON{c.Queue, c.New, orEmpty(c.Before), orEmpty(c.After), c.Tenants})
		}
		return len(all), json.NewEncoder(out).Encode(list)
	}
	for _, c := range all {
		printComparison(out, c)
	}
	return len(all), tellOthers(cmd, client, set)
}

func orEmpty(texts map[string]string) map[string]string {
	if texts == nil {
		return map[string]string{}
	}
	return texts
}

// maxDiffLines is how many differences of a queue are printed.
const maxDiffLines = 100

func printComparison(out io.Writer, c operate.Comparison) {
	head := "queue " + c.Queue
	if c.New {
		head += " (new)"
	}
	if c.Tenants > 0 {
		head += fmt.Sprintf(", own values of %s", counted(c.Tenants, "tenant"))
	}
	fmt.Fprintln(out, head+":")
	names := maps.Clone(orEmpty(c.Before))
	maps.Copy(names, c.After)
	for i, name := range slices.SortedFunc(maps.Keys(names), ofQueueFirst) {
		if i == maxDiffLines {
			fmt.Fprintf(out, "  … and %d more\n", len(names)-i)
			return
		}
		before, was := c.Before[name]
		after, will := c.After[name]
		switch {
		case !was:
			fmt.Fprintf(out, "  + %s: %s\n", printable(name), printable(after))
		case !will:
			fmt.Fprintf(out, "  - %s: %s\n", printable(name), printable(before))
		default:
			fmt.Fprintf(out, "  ~ %s: %s → %s\n", printable(name), printable(before), printable(after))
		}
	}
}

// ofQueueFirst orders the limits of the queue before the values of tenants and groups, "TENANT: NAME".
func ofQueueFirst(a, b string) int {
	ofTenant := func(name string) int { return strings.Count(name, ": ") }
	return cmp.Or(cmp.Compare(min(ofTenant(a), 1), min(ofTenant(b), 1)), strings.Compare(a, b))
}

// tellOthers names the queues with limits that a file leaves alone.
func tellOthers(cmd *cobra.Command, client redis.UniversalClient, set limits.Set) error {
	names, err := inspect.Queues(cmd.Context(), client)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(names, func(name string) bool { _, ok := set.Queues[name]; return ok })
	if len(others) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "not in the file, and left as they are: %s\n", strings.Join(others, ", "))
	}
	return nil
}

func limitsApplyCommand(o *options) *cobra.Command {
	var who operator
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Publish a limits file, after showing what it changes",
		Long: `apply shows how a limits file differs from the limits in effect, asks, and publishes it for
all workers and producers. They follow within a second. Queues that are not in the file keep
their limits, and overrides stay.

Workers with a limits file of their own publish that file when they start and when it changes:
then the last one wins.`,
		Example: `  enqueue limits apply limits.yaml --reason "new contract with the provider"`,
		Args:    oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			return limitsApply(cmd, o, args[0], who)
		},
	}
	who.reasonFlags(cmd)
	who.askFlag(cmd)
	cmd.Flags().BoolVar(&who.dry, "dry-run", false, "only show the changes")
	return cmd
}

func limitsApply(cmd *cobra.Command, o *options, path string, who operator) error {
	ctx := cmd.Context()
	if err := who.checkReason(); err != nil && !who.dry {
		return err
	}
	set, err := loadLimits(cmd, path)
	if err != nil {
		return err
	}
	client, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	changes, err := printDiff(cmd, o, client, set, cmd.OutOrStdout())
	question := fmt.Sprintf("publish %s, which changes %s?", path, counted(changes, "queue"))
	_, silent := errors.AsType[net.Error](err)
	switch {
	case err != nil && (!silent || who.dry || ctx.Err() != nil):
		return err
	case err != nil: // a node that does not answer does not keep the limits from the others
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: what it changes is not known: %v\n", err)
		question = fmt.Sprintf("publish %s?", path)
	case changes == 0:
		fmt.Fprintf(cmd.ErrOrStderr(), "the limits in effect are those of %s\n", path)
	}
	if err == nil && changes == 0 || who.dry {
		return nil
	}
	if err := who.confirm(cmd, question); err != nil {
		return err
	}
	by := who.by()
	by.Reason = path + ": " + by.Reason
	if err := operate.PublishBy(ctx, client, set, by); err != nil {
		return wrong(err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is in effect\n", path)
	return nil
}

func limitsExportCommand(o *options) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print the limits in effect as a limits file",
		Long: `export prints the published limits of all queues as a limits file, without overrides. Plans
are written out for each of their tenants.`,
		Example: "  enqueue limits export > limits.yaml",
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.json {
				return &program.UsageError{Err: errors.New("--json: export prints YAML; enqueue limits show --json prints limits as JSON")}
			}
			ctx := cmd.Context()
			client, err := o.connect(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			names, err := selected(ctx, client, name)
			if err != nil {
				return err
			}
			set, err := operate.PublishedTogether(ctx, client, names...)
			if err != nil {
				return err
			}
			if len(set.Queues) == 0 {
				return errors.New("no limits are published")
			}
			text, err := limitsfile.Format(set)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	cmd.Flags().StringVar(&name, "queue", "", "one queue, with those that share a budget with it (default: all)")
	return cmd
}
