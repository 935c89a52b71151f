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

// maxWords is the maximum length in bytes of a hold's reason, the provider's words.
const maxWords = 256

// pauses caches the pauses and holds of a queue. Those of other workers are read after the
// next round of dispatch.
type pauses struct {
	mu      sync.RWMutex
	until   map[string]int64 // by scope: end of the pause by Redis's clock, Unix µs
	version int64            // of the last round that was followed
	read    int64            // number of the latest change that was read
	dropAt  int              // number of pauses at which ended ones are dropped
}

// add adds a pause before Redis has it.
func (p *pauses) add(scope string, now time.Time, length time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil {
		p.until = map[string]int64{}
	}
	p.until[scope] = max(p.until[scope], now.Add(length).UnixMicro())
	p.drop(now)
}

// reread makes the next follow read all pauses: one that was added may not be in Redis.
func (p *pauses) reread() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version, p.read = -1, 0
}

// drop removes ended pauses. It does so only when the map has doubled, so that it costs
// little for each pause that is added.
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

// follow reads the changes of the pauses since the last call. version is from the reply of
// a round; if it has not changed, follow reads nothing.
func (p *pauses) follow(ctx context.Context, client redis.UniversalClient, queue string, version int64, now time.Time) error {
	p.mu.RLock()
	followed, known := p.version, p.read
	p.mu.RUnlock()
	if followed == version {
		return nil
	}
	before := known
	all := known == 0 || followed > version // the latter: Redis has lost data
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
				// Redis has dropped changes that were not read, such as a resume. Read
				// all pauses again.
				p.reread()
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
	if p.read == before { // otherwise reread was called meanwhile
		p.version, p.read = version, known
	}
	return nil
}
