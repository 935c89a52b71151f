// Command queue measures Headgate beside plain asynq and asynq's recipe for rate limits,
// in one run on one Redis: what a job costs, how exactly calls keep to their limits, and
// how long a job takes to its handler. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// config is what the flags say.
type config struct {
	rounds    int
	scale     float64
	workloads []workload
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := work(ctx, os.Stdin, os.Stdout)
	if errors.Is(err, errNoWorker) {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "queue:", err)
		stop()
		os.Exit(1)
	}
}

// run measures and prints. The error names every target that was missed.
func run(ctx context.Context, args []string, out io.Writer) error {
	config, err := parse(args, out)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, config, out)
	if err != nil {
		return err
	}
	defer b.close()
	b.head()
	var all []verdict
	for _, w := range config.workloads {
		rows, err := b.measure(ctx, w)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		verdicts := judge(w, rows)
		writeTable(out, w, rows, verdicts)
		all = append(all, verdicts...)
	}
	return missed(all)
}

func parse(args []string, out io.Writer) (config, error) {
	known := workloads()
	flags := flag.NewFlagSet("queue", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprint(out, `Usage: go run . [flags]

Measure Headgate beside plain asynq, on a redis-server that is started for it, and
print the tables in Markdown. Exit with 1 when a target is missed, naming it.

`)
		flags.PrintDefaults()
		fmt.Fprint(out, "\nWorkloads:\n")
		for _, w := range known {
			fmt.Fprintf(out, "  %-14s %s\n", w.name, w.about)
		}
	}
	var c config
	flags.IntVar(&c.rounds, "rounds", 5, "rounds of each workload, each with every contender; tables show medians")
	flags.Float64Var(&c.scale, "scale", 1, "`factor` of the numbers of jobs, lanes and idle workers and of durations, above 0 to 1; targets are meant for 1")
	only := flags.String("workload", "", "measure these workloads alone: `names`, separated by commas")
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	if flags.NArg() > 0 {
		return config{}, fmt.Errorf("unexpected argument %q: flags begin with -", flags.Arg(0))
	}
	if c.rounds < 1 {
		return config{}, fmt.Errorf("-rounds: %d is less than 1", c.rounds)
	}
	if !(c.scale > 0 && c.scale <= 1) {
		return config{}, fmt.Errorf("-scale: %v is not above 0 and up to 1", c.scale)
	}
	if *only == "" {
		c.workloads = known
		return c, nil
	}
	for name := range strings.SplitSeq(*only, ",") {
		i := slices.IndexFunc(known, func(w workload) bool { return w.name == name })
		if i < 0 {
			return config{}, fmt.Errorf("-workload: %q is no workload: see -help", name)
		}
		c.workloads = append(c.workloads, known[i])
	}
	return c, nil
}
