package queue

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// recoverer takes jobs back from workers that are gone. asynq renews the lease
// of a living task every 5 s, so one whose lease has not moved for 11 s of this
// process's own clock is dead, whatever anybody's wall clock says.
type recoverer struct {
	queue  string
	redis  redis.UniversalClient
	logger *slog.Logger

	seen   map[string]sighting
	looked time.Duration // boot time of the last look
}

// sighting is a lease as it was when it last changed.
type sighting struct {
	lease string
	since time.Duration // boot time
}

const (
	silence   = 11 * time.Second
	lookEvery = 500 * time.Millisecond
	// After a gap in looking, leases may have moved unseen: counting starts anew.
	blind = 3 * time.Second
)

// Run watches until ctx is done.
func (r *recoverer) Run(ctx context.Context) {
	every(ctx, lookEvery, func() {
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			r.logger.Warn("recovery cannot look at leases", logQueue, r.queue, logError, err)
		}
	})
}

// every calls fn at each interval until ctx is done.
func every(ctx context.Context, interval time.Duration, fn func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			fn()
		}
	}
}

func (r *recoverer) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	now, err := leases(ctx, r.redis, r.queue)
	if err != nil {
		return err
	}
	dead := r.compare(now, bootTime())
	for len(dead) > 0 {
		n := min(len(dead), 50)
		args := []any{r.queue}
		for _, id := range dead[:n] {
			args = append(args, id, now[id])
		}
		dead = dead[n:]
		taken, err := recoverScript.Run(ctx, r.redis, scriptKeys(r.queue), args...)
		if err != nil {
			return err
		}
		r.logger.Warn("jobs of a dead worker are back in their lanes", logQueue, r.queue, "jobs", taken)
	}
	return nil
}

// compare notes what has moved and returns the ids of what has been silent.
func (r *recoverer) compare(leases map[string]string, now time.Duration) []string {
	if now-r.looked > blind {
		r.seen = nil
	}
	r.looked = now
	seen := make(map[string]sighting, len(leases))
	var dead []string
	for id, lease := range leases {
		s, known := r.seen[id]
		if !known || s.lease != lease {
			s = sighting{lease, now}
		}
		seen[id] = s
		if now-s.since > silence {
			dead = append(dead, id)
		}
	}
	r.seen = seen
	return dead
}
