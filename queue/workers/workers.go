// Package workers lists the workers that are alive, and what they serve.
package workers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/fanout"
	"github.com/headgate/headgate/queue/internal/store"
)

// Info is what a worker reported about itself in its last heartbeat.
type Info struct {
	ID          string    `json:"id"` // of this run of the worker; another run begins when a queue gets other partitions
	Host        string    `json:"host"`
	PID         int       `json:"pid"`
	Version     string    `json:"version,omitempty"` // of its module, or the commit; "": not known
	Started     time.Time `json:"started"`
	Seen        time.Time `json:"seen"` // time of the heartbeat; both by the clock of Redis
	Queues      []string  `json:"queues"`
	Kinds       []string  `json:"kinds"` // for which it has handlers
	Concurrency int       `json:"concurrency"`
	Held        int       `json:"held"`    // jobs that it holds
	Sending     int       `json:"sending"` // of these, calls in flight

	// Starved is, by queue, the share of the time since the heartbeat before in which jobs
	// could go and this worker had no room for them. Queues with a share of 0 are left out.
	Starved map[string]float64 `json:"starved,omitempty"`

	Details json.RawMessage `json:"details,omitempty"`
}

// BeatEvery is the interval between the heartbeats of a worker.
const BeatEvery = 5 * time.Second

// BeatLasts is how long a worker counts as alive after its last heartbeat.
const BeatLasts = 3 * BeatEvery

// MaxDetails is the maximum length in bytes of the Details of a worker, as JSON.
const MaxDetails = 16 << 10

// ListKey is a sorted set of the workers by the time of their last heartbeat. What each
// worker reports is under a key of its own, which expires. In a Cluster the keys are on
// different nodes, so that nothing but time keeps them consistent.
const ListKey = "headgate:workers"

// Key returns the key under which a worker reports.
func Key(id string) string { return "headgate:worker:" + id }

// List returns the workers that are alive, by host, process and ID. A worker that ended
// is not in the list; one that died is in it for up to 15 s.
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

// MinStarved is the least share from which [Starved] counts a queue.
const MinStarved = 0.1

// Starved returns the queues that the workers limit, with the share of the time in which
// jobs could go and none of the workers that serve the queue had room for them: the least of
// their shares, see [Info].Starved.
func Starved(list []Info) map[string]float64 {
	least := map[string]float64{}
	for _, w := range list {
		for _, queue := range w.Queues {
			share := w.Starved[queue]
			if before, ok := least[queue]; ok {
				share = min(share, before)
			}
			least[queue] = share
		}
	}
	maps.DeleteFunc(least, func(_ string, share float64) bool { return share < MinStarved })
	return least
}

// Of returns the id of the worker in the owner mark of a task; "" if there is none.
func Of(owner string) string {
	worker, _, _ := strings.Cut(owner, ":")
	return worker
}

// Ended returns which workers of some owner marks missed two heartbeats and so, as far as
// anyone can know, have ended. A worker is not among them if Redis returns an error for
// it, or no answer before ctx is done. Leases are renewed with each heartbeat, so when the
// leases of a dead worker have been silent for long enough, so has the worker.
func Ended(ctx context.Context, client redis.UniversalClient, owners []string) map[string]bool {
	ended := map[string]bool{}
	for _, owner := range owners {
		if worker := Of(owner); worker != "" {
			ended[worker] = false
		}
	}
	// Not in a pipeline: if one node of a Cluster does not answer, all its commands fail.
	ids := slices.Collect(maps.Keys(ended))
	left, errs := fanout.Ask(ctx, store.Timeout, ids, func(ctx context.Context, id string) (time.Duration, error) {
		return client.PTTL(ctx, Key(id)).Result()
	})
	for i, id := range ids {
		ended[id] = errs[i] == nil && left[i] <= BeatLasts-2*BeatEvery
	}
	return ended
}
