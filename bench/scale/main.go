// Command scale simulates a queue in partitions that share one limit, on a simulated clock
// and network. The rules are those of internal/partition, unchanged. See README.md.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	c := config{}
	flag.IntVar(&c.partitions, "partitions", 64, "partitions of the queue")
	flag.IntVar(&c.tenants, "tenants", 1_000_000, "tenants with jobs")
	flag.Int64Var(&c.rate, "rate", 100_000, "the shared limit, in calls per `second`")
	flag.Int64Var(&c.burst, "burst", 1, "calls that the limit allows at once")
	flag.Float64Var(&c.load, "load", 1.5, "jobs that arrive, as a `factor` of the limit")
	flag.DurationVar(&c.length, "length", 20*time.Second, "simulated time")
	flag.Float64Var(&c.lost, "lost", 0.01, "`part` of the messages that are lost")
	flag.Uint64Var(&c.seed, "seed", 1, "seed of all chance")
	flag.Parse()
	if err := run(c, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// run simulates and prints. The error names every target that was missed.
func run(c config, out io.Writer) error {
	began := time.Now()
	w, err := newWorld(c)
	if err != nil {
		return err
	}
	w.run()
	f := w.figures()
	fmt.Fprintf(out, "%d partitions, %d tenants, %d calls/s at a burst of %d, load %.2f, %v simulated in %.1f s\n",
		c.partitions, c.tenants, c.rate, c.burst, c.load, c.length, time.Since(began).Seconds())
	return f.print(out)
}
