package queue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/store"
)

// roles are those that other workers have in the queues of this one: one worker leads a
// queue, and one watches it. A role is a key that expires, with the worker as its value.
//
// Who found that another worker has a role stands by until it ends. All that this process
// stands by for is asked for together once a second, so an idle fleet asks little.
type roles struct {
	redis  redis.UniversalClient
	worker string // this process

	mu   sync.Mutex
	ends map[string]time.Duration // boot time, by key
}

const (
	askRoles = time.Second
	// maxRole is for how long a role lasts at most unless it is renewed.
	maxRole = leadLasts
)

func newRoles(client redis.UniversalClient, worker string) *roles {
	return &roles{redis: client, worker: worker, ends: map[string]time.Duration{}}
}

// taken notes that another worker has a role for so long yet.
func (r *roles) taken(name string, left time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends[name] = boottime.Now() + left
}

// left is for how long another worker has a role yet, as far as it is known; 0: none has.
func (r *roles) left(name string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.ends[name]-boottime.Now(), 0)
}

// Run asks until ctx is done.
func (r *roles) Run(ctx context.Context) {
	every(ctx, askRoles, func() { r.ask(ctx) })
}

func (r *roles) ask(ctx context.Context) {
	r.mu.Lock()
	names := slices.Sorted(maps.Keys(r.ends))
	r.mu.Unlock()
	if len(names) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	pipe := r.redis.Pipeline()
	who, left := make([]*redis.StringCmd, len(names)), make([]*redis.DurationCmd, len(names))
	for i, name := range names {
		who[i], left[i] = pipe.Get(ctx, name), pipe.PTTL(ctx, name)
	}
	_, _ = pipe.Exec(ctx) // every command has its own error
	now := boottime.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, name := range names {
		// One that would not end when a role does is none.
		if who[i].Err() != nil || who[i].Val() == r.worker || who[i].Val() == dispatchedByAll || left[i].Val() <= 0 || left[i].Val() > maxRole {
			delete(r.ends, name)
			continue
		}
		r.ends[name] = now + left[i].Val()
	}
}
