package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// WorkerInfo is a worker as it last told of itself.
type WorkerInfo struct {
	ID          string          `json:"id"` // of this run of it
	Host        string          `json:"host"`
	PID         int             `json:"pid"`
	Version     string          `json:"version,omitempty"` // of its program: that of the module, or the commit; "": not known
	Started     time.Time       `json:"started"`
	Seen        time.Time       `json:"seen"` // when it told this; both by Redis's clock
	Queues      []string        `json:"queues"`
	Kinds       []string        `json:"kinds"` // that it has handlers for
	Concurrency int             `json:"concurrency"`
	Held        int             `json:"held"`    // jobs in its hands
	Sending     int             `json:"sending"` // of these, calls under way
	Details     json.RawMessage `json:"details,omitempty"`
}

const beatEvery = 5 * time.Second

// A worker is gone when it told nothing for this long.
const beatLasts = 3 * beatEvery

// MostDetails is how many bytes the Details of a worker may have as JSON.
const MostDetails = 16 << 10

// Each worker tells of itself under a key of its own, which ends by itself. A
// sorted set lists the workers by when they last did; in a Cluster the two lie
// apart, so that nothing but time keeps them together.
const workersKey = "headgate:workers"

func workerKey(id string) string { return "headgate:worker:" + id }

// Workers lists the workers that live, by host, process and ID. One that ended
// is listed no longer; one that died, for up to 15 s.
func Workers(ctx context.Context, client redis.UniversalClient) ([]WorkerInfo, error) {
	fail := func(err error) ([]WorkerInfo, error) { return nil, fmt.Errorf("list the workers: %w", err) }
	ids, err := client.ZRange(ctx, workersKey, 0, -1).Result()
	if err != nil {
		return fail(err)
	}
	var workers []WorkerInfo
	for ids := range slices.Chunk(ids, 100) {
		pipe := client.Pipeline()
		texts := make([]*redis.StringCmd, len(ids))
		for i, id := range ids {
			texts[i] = pipe.Get(ctx, workerKey(id))
		}
		if err := execute(ctx, pipe); err != nil {
			return fail(err)
		}
		for i, text := range texts {
			worker := WorkerInfo{}
			if json.Unmarshal([]byte(text.Val()), &worker) == nil && worker.ID == ids[i] {
				workers = append(workers, worker)
			}
		}
	}
	slices.SortFunc(workers, func(a, b WorkerInfo) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), a.PID-b.PID, strings.Compare(a.ID, b.ID))
	})
	return workers, nil
}

// workerOf is the worker that an owner mark on a task names; "" for none.
func workerOf(owner string) string {
	worker, _, _ := strings.Cut(owner, ":")
	return worker
}

// endedWorkers names those workers, of some owner marks, that missed two beats: they
// have ended, as far as anybody can tell. A worker of which Redis does not answer is
// not among them. Leases are renewed with each beat, so when the leases of a dead
// worker have been silent for long enough, so has the worker.
func endedWorkers(ctx context.Context, client redis.UniversalClient, owners []string) map[string]bool {
	pipe := client.Pipeline()
	left := map[string]*redis.DurationCmd{}
	for _, owner := range owners {
		if worker := workerOf(owner); worker != "" && left[worker] == nil {
			left[worker] = pipe.PTTL(ctx, workerKey(worker))
		}
	}
	ended := map[string]bool{}
	if len(left) == 0 {
		return ended
	}
	_, _ = pipe.Exec(ctx) // every command has its own error
	for worker, ttl := range left {
		ended[worker] = ttl.Err() == nil && ttl.Val() <= beatLasts-2*beatEvery
	}
	return ended
}
