package inspect_test

import (
	"encoding/json"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// rig is a queue with a worker that serves it but takes no jobs.
type rig struct {
	queue    string
	server   *redistest.Redis
	client   redis.UniversalClient
	producer *queue.Client
}

func newRig(t *testing.T, rules ...limits.Limit) *rig {
	t.Helper()
	server := redistest.Any(t)
	client := server.Client()
	r := &rig{redistest.Queue(t), server, client, queue.NewClient(client)}
	if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{r.queue: {Limits: rules}}}); err != nil {
		t.Fatal(err)
	}
	redistest.Serve(client, r.queue, "call")
	return r
}

// add enqueues one job and returns its id.
func (r *rig) add(t *testing.T, edit func(*queue.Job)) string {
	t.Helper()
	job := queue.Job{Kind: "call", Queue: r.queue, Payload: json.RawMessage("{}")}
	edit(&job)
	receipt, err := r.producer.Enqueue(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	return receipt.ID
}

func perTenant(rate int64) limits.Limit {
	return limits.Limit{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(rate), Per: []string{"tenant"}}
}

func sharedBy(rate int64) limits.Limit {
	return limits.Limit{Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(rate)}
}
