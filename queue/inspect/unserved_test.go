package inspect_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// TestServedAtOnce: a worker that starts is seen though the forecast is from before it.
func TestServedAtOnce(t *testing.T) {
	server := redistest.Any(t)
	client, name := server.Client(), redistest.Queue(t)
	set := limits.Set{Queues: map[string]limits.Queue{name: {Limits: []limits.Limit{sharedBy(1)}}}}
	if err := operate.Publish(t.Context(), client, set); err != nil {
		t.Fatal(err)
	}
	if _, err := queue.NewClient(client).Enqueue(t.Context(), queue.Job{Kind: "call", Queue: name, Tenant: "a"}); err != nil {
		t.Fatal(err)
	}
	in := inspect.New(client)
	overview := func() inspect.Overview {
		t.Helper()
		o, err := in.Overview(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	if o := overview(); len(o.Unserved) != 1 || o.UnservedJobs != 1 || !o.Top.DrainsAt.IsZero() {
		t.Fatalf("before a worker serves it: %+v", o)
	}
	in.KeepForecast(name, time.Hour)
	redistest.Serve(client, name, "call")
	until.Done(t, "served", func() bool {
		o := overview()
		return len(o.Unserved) == 0 && o.UnservedJobs == 0 && !o.Top.DrainsAt.IsZero()
	})
}
