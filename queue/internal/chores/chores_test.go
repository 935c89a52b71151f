package chores

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/effective"
)

// TestSweepBeginsAnew: who had lost the role sweeps from the first lane again. Otherwise it could end a sweep that
// another worker had begun, and say that all lanes were looked at.
func TestSweepBeginsAnew(t *testing.T) {
	client, queue := redistest.Shared(t).Client(), redistest.Queue(t)
	var from []string // each sweep is answered with the cursor "7"
	client.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		keys := cmd.Args()[2].(int)
		from = append(from, fmt.Sprint(cmd.Args()[3+keys+1]))
		cmd.(interface{ SetVal(any) }).SetVal([]any{"7", int64(0)})
		return nil
	}))
	c := New(queue, partition.Layout{Queue: queue, N: 1}, client, &effective.Calendars{Queue: queue, Redis: client}, slog.New(slog.DiscardHandler))
	sweep := func() {
		t.Helper()
		if err := c.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	sweep()
	c.Lost()
	sweep()
	sweep()
	if want := []string{"0", "7", "0", "7"}; !slices.Equal(from, want) {
		t.Errorf("sweeps from %q; want %q", from, want)
	}
}
