package queue

import (
	"sync"
	"time"

	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/store"
)

// unanswered are the partitions whose Redis did not answer when follow-ups were enqueued there, while that of their parents
// did. Each try takes the time of an answer that does not come, and a place of the worker. So while a partition is silent, it
// is tried once in silenceTry.
type unanswered struct {
	mu   sync.Mutex
	next map[string]time.Duration // when it may be tried, on the boot clock
}

const silenceTry = store.Timeout / 2

// skip reports whether a partition is not to be tried now. If it is silent and may be tried, only this caller does.
func (u *unanswered) skip(home string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	next, silent := u.next[home]
	now := boottime.Now()
	if silent && now >= next {
		u.next[home] = now + silenceTry
	}
	return silent && now < next
}

// note remembers whether a partition is silent.
func (u *unanswered) note(home string, silent bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !silent {
		delete(u.next, home)
		return
	}
	if u.next == nil || len(u.next) >= maxListed {
		u.next = map[string]time.Duration{}
	}
	u.next[home] = boottime.Now() + silenceTry
}
