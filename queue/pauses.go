package queue

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
)

// maxWords bounds what is kept of a provider's words.
const maxWords = 256

// pauses is what this process knows of a queue's pauses, by scope: until when, by
// Redis's clock. Those of other workers come with the next round of dispatch.
type pauses struct {
	mu      sync.RWMutex
	until   map[string]int64 // µs since the epoch
	version int64            // of the reply that was followed last
	read    int64            // number of the latest change that was read
	dropAt  int              // at so many those that have ended are dropped
}

// add notes a pause before Redis has it.
func (p *pauses) add(scope string, now time.Time, length time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil {
		p.until = map[string]int64{}
	}
	p.until[scope] = max(p.until[scope], now.Add(length).UnixMicro())
	p.drop(now)
}

// drop forgets the pauses that have ended, so seldom that it costs next to nothing for
// each that is added.
func (p *pauses) drop(now time.Time) {
	if len(p.until) < p.dropAt {
		return
	}
	maps.DeleteFunc(p.until, func(_ string, until int64) bool { return until <= now.UnixMicro() })
	p.dropAt = max(1000, 2*len(p.until))
}

func (p *pauses) holds(now time.Time, scopes ...string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, scope := range scopes {
		if now.UnixMicro() < p.until[scope] {
			return true
		}
	}
	return false
}

// follow reads what was changed of the pauses since this process looked.
func (p *pauses) follow(ctx context.Context, client redis.UniversalClient, queue string, version int64, now time.Time) error {
	p.mu.RLock()
	followed, known := p.version, p.read
	p.mu.RUnlock()
	if followed == version {
		return nil
	}
	all := known == 0 || followed > version // Redis lost what this process knew
	if all {
		known = 0
	}
	changed := map[string]int64{} // 0: it is not paused
	for more := true; more; {
		changes, err := client.ZRangeByScoreWithScores(ctx, store.Key(queue, "pause_changes"), &redis.ZRangeBy{
			Min: "(" + strconv.FormatInt(known, 10), Max: "+inf", Count: store.MaxKeys,
		}).Result()
		if err != nil {
			return err
		}
		var scopes []string
		for _, change := range changes {
			known = int64(change.Score)
			if scope := change.Member.(string); scope != "" {
				scopes = append(scopes, scope)
			} else if !all {
				// A change was forgotten that this process does not know, such as a
				// resume: it begins anew.
				p.mu.Lock()
				p.read = 0
				p.mu.Unlock()
				return p.follow(ctx, client, queue, version, now)
			}
		}
		more = len(changes) == store.MaxKeys
		if len(scopes) == 0 {
			continue
		}
		found, err := client.HMGet(ctx, store.Key(queue, "pauses"), scopes...).Result()
		if err != nil {
			return err
		}
		for i, text := range store.Texts(found) {
			changed[scopes[i]] = store.PausedUntil(text)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if all || p.until == nil {
		p.until = make(map[string]int64, len(changed))
	}
	for scope, until := range changed {
		if until > 0 {
			p.until[scope] = until
		} else {
			delete(p.until, scope)
		}
	}
	p.drop(now)
	p.version, p.read = version, known
	return nil
}
