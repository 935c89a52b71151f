// Package workers tells which workers of a Redis are alive, and what they serve.
package workers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
)

// Info is a worker as it last told of itself.
type Info struct {
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

// BeatEvery is the time between the heartbeats of a worker.
const BeatEvery = 5 * time.Second

// BeatLasts is how long a worker counts as alive after its last heartbeat.
const BeatLasts = 3 * BeatEvery

// MaxDetails is how many bytes the Details of a worker may have as JSON.
const MaxDetails = 16 << 10

// ListKey is a sorted set of the workers by the time of their last heartbeat. What each says
// is under a key of its own, which expires; in a Cluster the two lie apart, so that nothing
// but time keeps them together.
const ListKey = "headgate:workers"

// Key is where a worker tells of itself.
func Key(id string) string { return "headgate:worker:" + id }

// List lists the workers that live, by host, process and ID. One that ended
// is listed no longer; one that died, for up to 15 s.
func List(ctx context.Context, client redis.UniversalClient) ([]Info, error) {
	fail := func(err error) ([]Info, error) { return nil, fmt.Errorf("list the workers: %w", err) }
	ids, err := client.ZRange(ctx, ListKey, 0, -1).Result()
	if err != nil {
		return fail(err)
	}
	var workers []Info
	for ids := range slices.Chunk(ids, 100) {
		pipe := client.Pipeline()
		texts := make([]*redis.StringCmd, len(ids))
		for i, id := range ids {
			texts[i] = pipe.Get(ctx, Key(id))
		}
		if err := store.Execute(ctx, pipe); err != nil {
			return fail(err)
		}
		for i, text := range texts {
			worker := Info{}
			if json.Unmarshal([]byte(text.Val()), &worker) == nil && worker.ID == ids[i] {
				workers = append(workers, worker)
			}
		}
	}
	slices.SortFunc(workers, func(a, b Info) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), a.PID-b.PID, strings.Compare(a.ID, b.ID))
	})
	return workers, nil
}

// Of is the worker that an owner mark on a task names; "" for none.
func Of(owner string) string {
	worker, _, _ := strings.Cut(owner, ":")
	return worker
}

// Ended names those workers, of some owner marks, that missed two beats: they
// have ended, as far as anybody can tell. A worker of which Redis does not answer is
// not among them. Leases are renewed with each beat, so when the leases of a dead
// worker have been silent for long enough, so has the worker.
func Ended(ctx context.Context, client redis.UniversalClient, owners []string) map[string]bool {
	pipe := client.Pipeline()
	left := map[string]*redis.DurationCmd{}
	for _, owner := range owners {
		if worker := Of(owner); worker != "" && left[worker] == nil {
			left[worker] = pipe.PTTL(ctx, Key(worker))
		}
	}
	ended := map[string]bool{}
	if len(left) == 0 {
		return ended
	}
	_, _ = pipe.Exec(ctx) // every command has its own error
	for worker, ttl := range left {
		ended[worker] = ttl.Err() == nil && ttl.Val() <= BeatLasts-2*BeatEvery
	}
	return ended
}
