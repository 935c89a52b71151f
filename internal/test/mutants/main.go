// Command mutants tests the tests: it breaks one guarantee at a time by changing one line, and
// runs the tests that should notice.
//
// It changes a copy that `go test -overlay` compiles instead of the file, so the tree is not
// modified. Scripts are changed when the tests run, by a hook that an overlay adds to the test
// binary. A mutant is killed if a test fails that passes without it, or exceeds the time limit of
// a mutant, in which it passes without it; the test is reported. A mutant that does not compile, or whose line no longer exists,
// is wrong: when a line changes, its mutants must change too.
//
// Usage: mutants [flags] [regexp]. The regexp selects mutants by number, file and promise. The
// exit status is 1 unless all of them were killed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

// mutant is a change of one line that breaks a promise.
type mutant struct {
	file          string
	before, after string // the whole line, without surrounding spaces
	kind          string // the kind of mistake, in a word or two
	breaks        string // the promise that it breaks
	by            string // the tests that should notice: a folder and a pattern for `go test -run`
}

// mutants returns all mutants.
func mutants() []mutant {
	return slices.Concat(limiterMutants, leaseMutants, nodeMutants, movingMutants, laneMutants, queueMutants, gateMutants,
		directMutants, conformanceMutants, rampMutants, guaranteeMutants, groupMutants, clientMutants)
}

type result struct {
	verdict string
	by      string // the test that failed, or what is wrong
	took    time.Duration
}

const (
	killed   = "killed"
	survived = "SURVIVED"
	wrong    = "WRONG"      // its tests did not run
	unjudged = "not judged" // the machine was too busy, or the program was interrupted
)

func main() {
	whole := flag.Bool("whole", false, "run whole packages, not only the tests that should notice")
	together := flag.Int("j", 1, "how many mutants run at a time")
	limit := flag.Duration("limit", 2*time.Minute, "how long the tests of one mutant may take")
	flag.Parse()
	if err := run(flag.Arg(0), *whole, *together, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(match string, whole bool, together int, limit time.Duration) error {
	pattern, err := regexp.Compile(match)
	if err != nil {
		return err
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)

	all := mutants()
	var chosen []int
	var faults []error
	for i, m := range all {
		if !pattern.MatchString(fmt.Sprintf("%d %s %s", i+1, m.file, m.breaks)) {
			continue
		}
		chosen = append(chosen, i)
		if _, err := m.text(); err != nil {
			faults = append(faults, fmt.Errorf("mutant %d: %w", i+1, err))
		}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	dir, err := os.MkdirTemp("", "headgate-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t := &tester{dir: dir, whole: whole, limit: limit}
	if err := t.unchanged(all, chosen); err != nil {
		return err
	}

	results := make([]result, len(all))
	var wait sync.WaitGroup
	turns := make(chan struct{}, max(together, 1))
	began := time.Now()
	for n, i := range chosen {
		turns <- struct{}{}
		if len(interrupted) > 0 {
			chosen = chosen[:n]
			break
		}
		wait.Go(func() {
			defer func() { <-turns }()
			results[i] = t.test(all[i])
			if len(interrupted) > 0 {
				// The tests were interrupted, too.
				results[i] = result{verdict: unjudged, by: "interrupted"}
			}
			fmt.Fprintf(os.Stderr, "%d/%d %s\n", n+1, len(chosen), strings.Join(row(i, all[i], results[i]), "  "))
		})
	}
	wait.Wait()
	return report(all, chosen, results, time.Since(began))
}

func row(i int, m mutant, r result) []string {
	return []string{fmt.Sprint(i + 1), m.file, m.kind, m.breaks, r.verdict, r.by, fmt.Sprintf("%.1f s", r.took.Seconds())}
}

func report(all []mutant, chosen []int, results []result, took time.Duration) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "no.\tfile\tmistake\tthe promise that it breaks\t\tby\ttook")
	verdicts := map[string]int{}
	for _, i := range chosen {
		fmt.Fprintln(table, strings.Join(row(i, all[i], results[i]), "\t"))
		verdicts[results[i].verdict]++
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Printf("%d mutants: %d killed, %d survived, %d wrong, %d not judged, in %v\n", len(chosen),
		verdicts[killed], verdicts[survived], verdicts[wrong], verdicts[unjudged], took.Round(time.Second))
	if verdicts[killed] < len(chosen) {
		return errors.New("add tests for the mutants that survived, fix the wrong ones, and run those that were not judged again")
	}
	return nil
}
