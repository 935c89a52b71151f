package queue

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
)

// TestEnqueueManyMixed: jobs that alternate between two queues take no more round trips
// than jobs sorted by queue, and keep their order in each queue.
func TestEnqueueManyMixed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := NewClient(server.Client())
	names := []string{"one", "two"}
	var jobs []Job
	for i := range 200 {
		jobs = append(jobs, Job{Kind: "call", Queue: names[i%2], Tenant: "acme", Key: fmt.Sprint(i), Payload: i})
	}
	client.EnqueueMany(t.Context(), jobs[:2]) // the script is loaded, and the queues are known
	before := redistest.Calls(t, server.Client(), "evalsha")
	for i, result := range client.EnqueueMany(t.Context(), jobs) {
		if result.Err != nil || result.Queue != names[i%2] || result.ID != fmt.Sprintf("acme:%d", i) || result.Existing != (i < 2) {
			t.Fatalf("job %d: %+v", i, result)
		}
	}
	if n := redistest.Calls(t, server.Client(), "evalsha") - before; n != 2 {
		t.Errorf("%d round trips for two queues of 100 jobs", n)
	}
	for i, name := range names {
		ids := server.Client().ZRange(t.Context(), asynqwire.Key(name, "g:acme;kind=call"), 0, -1).Val()
		for n, id := range ids {
			if want := fmt.Sprintf("acme:%d", 2*n+i); id != want {
				t.Fatalf("%s: job %d is %s; want %s", name, n, id, want)
			}
		}
	}
}
