// Command limiters measures limiters on Redis against each other, in one run:
// what a decision costs, and what a key weighs. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

// config is what the flags say.
type config struct {
	rounds  int
	slice   time.Duration
	pool    int
	json    bool
	profile string
	only    *regexp.Regexp // nil: all contenders
	fresh   int            // keys that are weighed
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "limiters:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	config, err := parse(args)
	if err != nil {
		return err
	}
	report, err := measure(ctx, config)
	if err != nil {
		return err
	}
	return report.publish(out, config.json)
}

func parse(args []string) (config, error) {
	c := config{fresh: 10_000}
	flags := flag.NewFlagSet("limiters", flag.ContinueOnError)
	flags.IntVar(&c.rounds, "rounds", 15, "rounds, each with every contender")
	flags.DurationVar(&c.slice, "slice", 100*time.Millisecond, "time of a contender in a round")
	flags.IntVar(&c.pool, "pool", 64, "connections of a contender, at most")
	flags.BoolVar(&c.json, "json", false, "print JSON")
	flags.StringVar(&c.profile, "profile", "", "also write CPU profiles of headgate alone into this `folder`")
	only := flags.String("only", "", "measure only the contenders that match this `regexp`")
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	if flags.NArg() > 0 || c.rounds < 1 || c.slice < turns*time.Millisecond || c.pool < 1 {
		return config{}, fmt.Errorf("want -rounds >= 1, -slice >= %dms, -pool >= 1 and no other arguments", turns)
	}
	if *only != "" {
		var err error
		if c.only, err = regexp.Compile(*only); err != nil {
			return config{}, fmt.Errorf("-only: %w", err)
		}
	}
	return c, nil
}

// measure measures all there is to measure.
func measure(ctx context.Context, config config) (*report, error) {
	b, err := newBench(ctx, config)
	if err != nil {
		return nil, err
	}
	defer b.close()
	memory, err := b.memory(ctx)
	if err != nil {
		return nil, err
	}
	cells, err := b.race(ctx)
	if err != nil {
		return nil, err
	}
	if config.profile != "" {
		if err := b.profile(ctx); err != nil {
			return nil, err
		}
	}
	return newReport(config, b.server.Version(), cells, memory), nil
}
