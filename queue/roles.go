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

// roles tracks the roles that other workers have in this worker's queues: one worker leads
// a queue (lead.go), and one watches it (recoverer). A role is a key that expires, with the
// worker's id as its value.
//
// A worker that finds a role taken stands by until the role ends. Once a second it reads
// all roles for which it stands by in one round trip, so that an idle fleet costs little.
type roles struct {
	redis  redis.UniversalClient
	worker string // id of this session

	mu   sync.Mutex
	ends map[string]time.Duration // by key: when the role ends, on the boot clock
}

const (
	askRoles = time.Second
	maxRole  = leadLasts // maximum time to live of a role's key
)

func newRoles(client redis.UniversalClient, worker string) *roles {
	return &roles{redis: client, worker: worker, ends: map[string]time.Duration{}}
}

// taken records that another worker has a role for the time left.
func (r *roles) taken(name string, left time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends[name] = boottime.Now() + left
}

// left returns how long another worker has a role, as far as is known; 0: none has it.
func (r *roles) left(name string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.ends[name]-boottime.Now(), 0)
}

// Run reads the roles regularly until ctx is done.
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
	_, _ = pipe.Exec(ctx) // a node that does not answer fails all commands; whoever stands by then asks for its role
	now := boottime.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, name := range names {
		// A key without an expiry, or with a longer one, is not a role.
		if who[i].Err() != nil || who[i].Val() == r.worker || who[i].Val() == dispatchedByAll || left[i].Val() <= 0 || left[i].Val() > maxRole {
			delete(r.ends, name)
			continue
		}
		r.ends[name] = now + left[i].Val()
	}
}
