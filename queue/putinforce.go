package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
)

// putInForce makes the limits written under the name next those of the queue, with
// the overrides computed anew from them, and tells the audit what changed. Of several
// workers that publish the same only one finds a change.
func putInForce(ctx context.Context, client redis.UniversalClient, queue, next string) error {
	limits, overrides := store.Key(queue, "limits"), store.Key(queue, "overrides")
	var before, after map[string]string
	change := func(tx *redis.Tx) (err error) {
		if before, err = store.ScanHash(ctx, client, limits); err != nil {
			return err
		}
		if after, err = store.ScanHash(ctx, client, next); err != nil {
			return err
		}
		if maps.Equal(before, after) {
			return tx.Del(ctx, next).Err()
		}
		changed, err := store.ScanHash(ctx, client, overrides)
		if err != nil {
			return err
		}
		now, err := tx.Time(ctx).Result()
		if err != nil {
			return err
		}
		entry := AuditEntry{At: now, Actor: publisher(), Action: "publish", Queue: queue}
		was, err := effectiveOf(before, changed, now)
		if err != nil { // of another version of Headgate: it is replaced
			was = effective{}
		}
		will, err := effectiveOf(after, changed, now)
		if err != nil {
			return err
		}
		resolved, err := will.resolveAll()
		if err != nil {
			return err
		}
		entry.Before, entry.After = differences(was.texts(), will.texts())
		nextOverrides := store.Key(queue, "overrides:"+rand.Text())
		if maps.Equal(changed, resolved) {
			nextOverrides = ""
		} else if err := writeBeside(ctx, client, nextOverrides, resolved); err != nil {
			return err
		}
		// What is renamed has to be there, or half of the transaction would be made.
		if there, err := tx.Expire(ctx, next, besideFor).Result(); err != nil {
			return err
		} else if !there {
			return errors.New("it took more than a minute")
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Persist(ctx, next)
			p.Rename(ctx, next, limits)
			switch {
			case nextOverrides == "":
			case len(resolved) == 0:
				p.Del(ctx, overrides)
			default:
				p.Persist(ctx, nextOverrides)
				p.Rename(ctx, nextOverrides, overrides)
			}
			noteLimits(ctx, p, queue)
			pushAudit(ctx, p, entry)
			return nil
		})
		return err
	}
	for {
		err := client.Watch(ctx, change, limits, overrides)
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
	for _, field := range slices.Sorted(maps.Keys(changed)) {
		if err := replan(ctx, client, queue, store.Unescape(strings.TrimPrefix(field, "t:"))); err != nil {
			return err
		}
	}
	return nil
}

// besideFor is how long what is written beside the limits in force outlives a process
// that ends before it puts it in force.
const besideFor = time.Minute

// writeBeside writes a hash that will be renamed, in pieces, so that a large one does
// not hold Redis up.
func writeBeside(ctx context.Context, client redis.UniversalClient, name string, fields map[string]string) error {
	for names := range slices.Chunk(slices.Sorted(maps.Keys(fields)), 1000) {
		values := make([]any, 0, 2*len(names))
		for _, field := range names {
			values = append(values, field, fields[field])
		}
		_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, name, values...)
			p.Expire(ctx, name, besideFor)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// noteLimits counts a change of the limits in force, by which those who know them
// see that they know them no more.
func noteLimits(ctx context.Context, p redis.Pipeliner, queue string) {
	p.HIncrBy(ctx, store.Key(queue, "totals"), "limits", 1)
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

// texts are the limits in words, by name, what differs for "TENANT: NAME", and the
// overrides.
func (e effective) texts() map[string]string {
	all := map[string]string{}
	for tenant, overrides := range e.overrides {
		for limit, o := range overrides {
			if o.holds(e.now) {
				i := slices.IndexFunc(e.queue.Limits, func(l storedLimit) bool { return l.Name == limit })
				all[store.Unescape(tenant)+": override of "+limit] = e.inWords(i, limit, tenant)[limit]
			}
		}
	}
	e.overrides = nil // the rest is what was published
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
		tenant := store.Unescape(escaped)
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
	for i, name := range slices.Sorted(maps.Keys(names)) {
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
