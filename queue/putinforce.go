package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// putInForce makes the limits written under the name next those of the queue,
// and tells the audit what changed. Of several workers that publish the same
// only one finds a change.
func putInForce(ctx context.Context, client redis.UniversalClient, queue, next string) error {
	limits := key(queue, "limits")
	var before, after map[string]string
	change := func(tx *redis.Tx) (err error) {
		if before, err = scanHash(ctx, client, limits); err != nil {
			return err
		}
		if after, err = scanHash(ctx, client, next); err != nil {
			return err
		}
		if maps.Equal(before, after) {
			return tx.Del(ctx, next).Err()
		}
		now, err := tx.Time(ctx).Result()
		if err != nil {
			return err
		}
		entry := AuditEntry{At: now, Actor: publisher(), Action: "publish", Queue: queue}
		was, wasErr := effectiveOf(before, nil, now)
		will, err := effectiveOf(after, nil, now)
		if err != nil {
			return err
		}
		if wasErr != nil { // of another version of Headgate: it is replaced
			was = effective{}
		}
		entry.Before, entry.After = differences(was.texts(), will.texts())
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Persist(ctx, next)
			p.Rename(ctx, next, limits)
			noteLimits(ctx, p, queue)
			pushAudit(ctx, p, entry)
			return nil
		})
		return err
	}
	for {
		err := client.Watch(ctx, change, limits)
		if errors.Is(err, redis.TxFailedErr) {
			continue
		}
		if err != nil {
			return err
		}
		return replanChanged(ctx, client, queue, before, after)
	}
}

// replanChanged asks those lanes anew whose limits were changed: a lane that waits for
// tomorrow's quota must not wait for it when the quota was raised.
func replanChanged(ctx context.Context, client redis.UniversalClient, queue string, before, after map[string]string) error {
	changed := map[string]bool{}
	for _, fields := range []map[string]string{before, after} {
		for field := range fields {
			if before[field] != after[field] {
				changed[field] = true
			}
		}
	}
	const few = 10 // above that one way over all lanes is shorter
	if changed["*"] || len(changed) > few {
		return replan(ctx, client, queue, "")
	}
	for _, field := range sortedKeys(changed) {
		if err := replan(ctx, client, queue, unescape(strings.TrimPrefix(field, "t:"))); err != nil {
			return err
		}
	}
	return nil
}

// noteLimits counts a change of the limits in force, by which those who know them
// see that they know them no more.
func noteLimits(ctx context.Context, p redis.Pipeliner, queue string) {
	p.HIncrBy(ctx, key(queue, "totals"), "limits", 1)
}

// publisher is who publishes, as far as that is known: a program on a machine,
// which read a file.
func publisher() string {
	host, err := os.Hostname()
	if err != nil {
		return "a publisher"
	}
	return "a publisher on " + host
}

// texts are the limits in words, by name, and what differs for "TENANT: NAME".
func (e effective) texts() map[string]string {
	all := map[string]string{}
	number := func(name string, n int64) {
		if n != 0 {
			all[name] = strconv.FormatInt(n, 10)
		}
	}
	number("max_backlog", e.queue.MaxBacklog)
	number("max_queue", e.queue.MaxQueue)
	for kind, window := range e.queue.SendWindows {
		all["send_windows: "+kind] = window
	}
	for i, limit := range e.queue.Limits {
		all[limit.Name] = string(limit.Text.Algorithm) + " " + e.inForce(i, "").String()
	}
	for escaped, own := range e.tenants {
		tenant := unescape(escaped)
		if own.Weight != 0 && own.Weight != 1 {
			all[tenant+": weight"] = strconv.FormatFloat(own.Weight, 'g', -1, 64)
		}
		if own.Window != "" {
			all[tenant+": send_window"] = own.Window
		}
		for i, limit := range e.queue.Limits {
			if _, differs := own.Limits[limit.Name]; differs {
				all[tenant+": "+limit.Name] = e.inForce(i, escaped).String()
			}
		}
	}
	return all
}

// mostDifferences bounds an entry of the audit; of more only the number is told.
const mostDifferences = 100

func differences(before, after map[string]string) (was, will map[string]string) {
	names := map[string]bool{}
	for name, text := range before {
		names[name] = after[name] != text
	}
	for name, text := range after {
		names[name] = before[name] != text
	}
	maps.DeleteFunc(names, func(_ string, differs bool) bool { return !differs })
	was, will = map[string]string{}, map[string]string{}
	for i, name := range sortedKeys(names) {
		if i == mostDifferences {
			will["…"] = fmt.Sprintf("and %d more", len(names)-i)
			break
		}
		if text, ok := before[name]; ok {
			was[name] = text
		}
		if text, ok := after[name]; ok {
			will[name] = text
		}
	}
	return was, will
}
