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

// sweeps answers each sweep with the cursor "7", and notes from where it was to go on.
type sweeps struct{ from []string }

func (s *sweeps) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *sweeps) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		keys := cmd.Args()[2].(int)
		s.from = append(s.from, fmt.Sprint(cmd.Args()[3+keys+1]))
		cmd.(interface{ SetVal(any) }).SetVal([]any{"7", int64(0)})
		return nil
	}
}

func (s *sweeps) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestSweepBeginsAnew: who had lost the role sweeps from the first lane again. Otherwise it could end a sweep that
// another worker had begun, and say that all lanes were looked at.
func TestSweepBeginsAnew(t *testing.T) {
	client, queue, hook := redistest.Shared(t).Client(), redistest.Queue(t), &sweeps{}
	client.AddHook(hook)
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
	if want := []string{"0", "7", "0", "7"}; !slices.Equal(hook.from, want) {
		t.Errorf("sweeps from %q; want %q", hook.from, want)
	}
}
