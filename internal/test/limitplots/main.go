// Command limitplots makes the figures of docs/limits.md, docs/hot-keys.md, docs/direct.md, docs/conformance.md, docs/what-if.md, docs/ramps.md and docs/guarantees.md:
// it runs every algorithm of package throttle and shows what it lets through.
//
//	limitplots [-o DIR]   writes SVG plots: one of each algorithm, of two sides that share a limit, of counts by the clock, of a hot key, of limits that are tried, of a ramp, of guarantees, and of refusals
//	limitplots bursts     prints the max number of calls within a short time
//	limitplots bytes      prints the Redis memory of a bucket; needs redis-server
//	limitplots shards     prints how many permits of a sharded bucket are found
//	limitplots ranges     prints the largest and smallest valid limits
//
// Except for bytes, it uses the embedded Redis. The plots and the bursts use a simulated clock,
// so that every run has the same output.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/embedded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "limitplots:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("limitplots", flag.ContinueOnError)
	dir := flags.String("o", filepath.FromSlash("docs/limits"), "folder for the plots")
	if err := flags.Parse(args); err != nil {
		return err
	}
	what := flags.Arg(0)
	show, known := map[string]func(context.Context, *redis.Client, io.Writer) error{
		"": func(ctx context.Context, client *redis.Client, _ io.Writer) error {
			return writePlots(ctx, client, *dir)
		},
		"bursts": printBursts,
		"bytes":  printBytes,
		"shards": printShards,
		"ranges": func(_ context.Context, _ *redis.Client, out io.Writer) error { return printRanges(out) },
	}[what]
	if !known || flags.NArg() > 1 {
		return fmt.Errorf("%q: want nothing, bursts, bytes, shards or ranges", flags.Args())
	}
	server, err := embedded.Start(embedded.Options{Miniredis: what == "" || what == "bursts"})
	if err != nil {
		return err
	}
	defer server.Close()
	if what == "bytes" && server.Kind() == "miniredis" {
		return errors.New("bytes: the embedded Redis cannot measure memory: install redis-server")
	}
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer client.Close()
	return show(ctx, client, out)
}

// writePlots writes one file for each scene.
func writePlots(ctx context.Context, client *redis.Client, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, s := range scenes {
		played, err := s.play(ctx, client)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, s.file+".svg"), played.draw(), 0o644); err != nil {
			return err
		}
	}
	for _, other := range others {
		plot, err := other.play(ctx, client)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, other.file+".svg"), plot, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// others are the plots of other pages than that of the algorithms. A script that Redis does not know yet is sent twice,
// so their order matters.
var others = []struct {
	file string
	play func(context.Context, *redis.Client) ([]byte, error)
}{{"sides", playSides}, {"windows", playWindows}, {"hot-key", playHotKey}, {"what-if", playWhatIf}, {"ramp", playRamp}, {"guarantee", playGuarantee}, {"refused", playRefused}}
