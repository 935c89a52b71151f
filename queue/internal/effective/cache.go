package effective

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
)

// Calendars knows the calendars of a queue's limits for the scripts.
type Calendars struct {
	Queue string
	Redis redis.UniversalClient
	Seen  func(queue string, kinds []string) // is told the kinds of the queue; nil: nobody

	mu    sync.Mutex
	text  string
	Until time.Time
}

func (c *Calendars) Text(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Before(c.Until) {
		return c.text, nil
	}
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	stored, err := ReadQueue(ctx, c.Redis, c.Queue)
	if err != nil && !errors.Is(err, errUnreadable) {
		return "", err
	}
	if c.Seen != nil {
		c.Seen(c.Queue, stored.Kinds)
	}
	if c.text, err = stored.Calendars(now); err != nil {
		c.text = "" // the scripts meet the same limits, and report what they cannot understand
	}
	c.Until = now.Add(5 * time.Second)
	return c.text, nil
}

// Invalidate makes the next question read the limits again if a script missed a
// calendar: they have changed.
func (c *Calendars) Invalidate(err error) {
	if !Stale(err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Until = time.Time{}
}

// Stale is whether a script missed a calendar: the limits have changed.
func Stale(err error) bool { return strings.Contains(err.Error(), "STALE") }
