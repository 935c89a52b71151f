package limitsfile_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/limitsfile"
)

// A program with kinds of its own puts a limits file in force as the worker does: now and
// whenever it changes. apply would publish the limits, with operate.Publish.
func ExampleWatcher() {
	file, err := os.CreateTemp("", "limits-*.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.Remove(file.Name())
	fmt.Fprintln(file, `queues: {fax: {kinds: [fax], limits: [{name: line, rate: 2/m, algorithm: leaky_bucket}]}}`)
	ctx, cancel := context.WithCancel(context.Background())
	apply := func(_ context.Context, set limits.Set) error {
		fmt.Println(set.Queues["fax"].Kinds, set.Queues["fax"].Limits[0].Rate)
		cancel()
		return nil
	}
	watcher := limitsfile.NewWatcher(file.Name(), slog.New(slog.DiscardHandler), apply)
	fmt.Println(watcher.Run(ctx), watcher.Err())
	// Output:
	// [fax] 2/min
	// <nil> <nil>
}

func ExampleParse() {
	_, err := limitsfile.Parse([]byte("queues:\n  fax: {kinds: [fax], limits: [{name: line, rate: fast}]}\n"))
	fmt.Println(err)
	// Output: line 2: queues.fax.limits[0].rate: "fast" must be COUNT/PERIOD, such as 300/s, 10000/day or 1/90s
}
