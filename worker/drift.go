package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// driftEvery is how often a program checks that the limits of its file are still in effect.
const driftEvery = 5 * time.Second

// drift notices that others have published limits that differ from the program's file, and publishes
// them again if they are gone from Redis.
type drift struct {
	redis  redis.UniversalClient
	wanted func() (set limits.Set, puts int)

	// restore publishes the file's limits again, because they are gone from Redis.
	restore func(context.Context) error
	logger  *slog.Logger

	seen map[string]int64 // number of changes of a queue's limits that were compared
	puts int              // of the file's limits that were compared

	mu  sync.Mutex
	err error // why the file is not in effect; nil: it is
}

// Err returns who published other limits than those of the file; nil if they are in effect.
func (d *drift) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Run checks until ctx is done.
func (d *drift) Run(ctx context.Context) error {
	for wait.For(ctx, driftEvery) == nil {
		if err := d.check(ctx); err != nil && ctx.Err() == nil {
			d.logger.Debug("the limits in effect cannot be compared with the limits file", "error", err)
		}
	}
	return nil
}

// check compares the limits of the file with those in effect, if either have changed since
// they were compared.
func (d *drift) check(ctx context.Context) error {
	wanted, puts := d.wanted()
	changes, err := operate.Changes(ctx, d.redis, slices.Collect(maps.Keys(wanted.Queues))...)
	if err != nil || puts == d.puts && maps.Equal(changes, d.seen) {
		return err
	}
	all, err := operate.Compare(ctx, d.redis, wanted)
	if err != nil {
		return err
	}
	var texts []string
	for _, c := range all {
		if c.Equal() {
			continue
		}
		if c.New && puts > 0 {
			d.logger.Warn("the limits in Redis are gone, and nothing goes without them; they are published again and start empty", "queue", c.Queue)
			return d.restore(ctx) // and compared at the next check
		}
		by, err := d.publisher(ctx, c.Queue)
		if err != nil {
			return err
		}
		names := maps.Clone(c.Before)
		maps.Copy(names, c.After)
		texts = append(texts, fmt.Sprintf("queue %s: %s, which differ in %s", c.Queue, by, shortList(slices.Sorted(maps.Keys(names)))))
	}
	if _, now := d.wanted(); now != puts {
		return nil // the file has changed meanwhile: compare at the next check
	}
	d.seen, d.puts = changes, puts
	d.set(strings.Join(texts, "; "))
	return nil
}

// publisher returns who has published the limits of a queue, in words.
func (d *drift) publisher(ctx context.Context, queue string) (string, error) {
	entries, err := operate.Audit(ctx, d.redis, queue, 100)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.Action != "publish" {
			continue
		}
		text := fmt.Sprintf("%s published other limits at %s", e.Actor, e.At.UTC().Format(time.RFC3339))
		if e.Reason != "" {
			text += " (" + e.Reason + ")"
		}
		return text, nil
	}
	return "other limits are in effect", nil
}

// shortList joins the first names.
func shortList(names []string) string {
	const few = 5
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
	}
	return strings.Join(names, ", ")
}

// set keeps and logs what differs, if it is new.
func (d *drift) set(text string) {
	d.mu.Lock()
	was := d.err
	d.err = nil
	if text != "" {
		d.err = errors.New(text)
	}
	d.mu.Unlock()
	switch {
	case text == "" && was != nil:
		d.logger.Info("the limits file is in effect again")
	case text != "" && (was == nil || was.Error() != text):
		d.logger.Warn("the limits file is not in effect", "error", text)
	}
}
