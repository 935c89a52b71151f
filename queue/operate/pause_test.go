package operate

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// TestPauseBesideAPublication: a pause meets limits that were published a moment ago.
func TestPauseBesideAPublication(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	set := limits.Set{Queues: map[string]limits.Queue{"q": {Limits: []limits.Limit{
		{Name: "day", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 5, Period: 24 * time.Hour}, Location: time.UTC},
	}}}}
	client := redis.NewUniversalClient(server.Options())
	defer client.Close()
	if err := Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{"q": {}}}); err != nil {
		t.Fatal(err)
	}
	var published atomic.Bool
	client.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.Contains(fmt.Sprint(cmd.Args()...), "ann: a test") && published.CompareAndSwap(false, true) {
			if err := Publish(ctx, server.Client(), set); err != nil {
				t.Error(err)
			}
		}
		return next(ctx, cmd)
	}))
	pause, err := PauseJobs(t.Context(), client, "q", inspect.Scope{Tenant: "acme"}, time.Time{}, Operator{Actor: "ann", Reason: "a test"})
	if err != nil || pause.Scope.Tenant != "acme" || !published.Load() {
		t.Errorf("%+v, %v", pause, err)
	}
}
