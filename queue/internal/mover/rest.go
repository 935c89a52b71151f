package mover

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
)

// keys returns the names of the keys that tenants have in a partition, by escaped tenant: the buckets of their
// limits, the permits of their direct calls, and the keys of their jobs. No set lists them, so it looks at all keys of the node.
func (m *Mover) keys(ctx context.Context, home string) (map[string][]string, error) {
	limits, err := effective.ReadQueue(ctx, m.Redis, home)
	if err != nil {
		return nil, err
	}
	places := map[string]int{} // of the tenant among the values of a limit
	for _, limit := range limits.Limits {
		// What was leased goes back to the ledger by itself.
		if i := slices.Index(limit.Per, "tenant"); i >= 0 && !limit.Spec.Leased {
			places[limit.Name] = i
		}
	}
	prefix := store.Key(home, "")
	found, seen := map[string][]string{}, map[string]bool{} // a scan may return a name twice
	node, err := m.nodeOf(ctx, home)
	if err != nil {
		return nil, err
	}
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		if err := m.keep(ctx); err != nil {
			return nil, err
		}
		var names []string
		err := m.do(ctx, func(ctx context.Context) (err error) {
			names, cursor, err = node.Scan(ctx, cursor, prefix+"*", 1000).Result()
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			name = strings.TrimPrefix(name, prefix)
			if tenant, ok := ownerOf(name, places); ok && !seen[name] {
				found[tenant], seen[name] = append(found[tenant], name), true
			}
		}
	}
	return found, m.hasAll(ctx, node, home)
}

// nodeOf returns the node with the keys of a partition. It waits while their slot moves to another node.
func (m *Mover) nodeOf(ctx context.Context, home string) (node redis.UniversalClient, err error) {
	err = m.do(ctx, func(ctx context.Context) (err error) {
		node = m.Redis
		if cluster, ok := m.Redis.(*redis.ClusterClient); ok {
			if node, err = cluster.MasterForKey(ctx, store.Key(home, "")); err != nil {
				return err
			}
		}
		return m.hasAll(ctx, node, home)
	})
	return node, err
}

// hasAll returns an error if a node does not have all keys of a partition: a scan is not redirected to the node to
// which their slot moves, and it would miss the keys that are there.
func (m *Mover) hasAll(ctx context.Context, node redis.UniversalClient, home string) error {
	err := node.Exists(ctx, store.ScriptKeys(home)...).Err()
	if cluster, ok := m.Redis.(*redis.ClusterClient); ok && store.Moving(err) {
		cluster.ReloadState(ctx) // this is a client of one node, which follows no MOVED
	}
	return err
}

// ownerOf returns the escaped tenant of a key that is moved with it.
func ownerOf(name string, places map[string]int) (tenant string, ok bool) {
	what, rest, _ := strings.Cut(name, ":")
	switch what {
	case "unique":
		tenant, _, ok = strings.Cut(rest, ":")
	case "b", "ramp", "adapt", "permits":
		limit, values, _ := strings.Cut(rest, ":")
		all := strings.Split(values, ";")
		if i, of := places[limit]; of && i < len(all) {
			return all[i], true
		}
	}
	return tenant, ok
}

// tenantOfScope returns the escaped tenant of a pause or hold that is its own; "": it is that of others, too.
func tenantOfScope(scope string) string {
	what, name, found := strings.Cut(scope, ":")
	first, second, _ := strings.Cut(name, ";")
	switch {
	case !found && scope != store.WholeQueue:
		return scope
	case what == "a":
		return second
	case what == "e":
		return first
	}
	return ""
}

// writes collects arguments of move_with.lua, one list for each write.
type writes [][]any

func (w *writes) add(words ...any) { *w = append(*w, words) }

// with writes to a partition what is a tenant's while it has a state; or with the tenant "" what is the queue's,
// while the state is the sum of its layout. Else it returns errNotArrived.
func (m *Mover) with(ctx context.Context, home, tenant, state string, all writes) error {
	for some := range slices.Chunk(all, atATime) {
		args := []any{home, tenant, state}
		for _, words := range some {
			args = append(append(args, len(words)), words...)
		}
		reply, err := m.write(ctx, store.MoveWithScript, home, args...)
		if err == nil && reply != int64(1) {
			err = errNotArrived
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rest moves what the tenants have besides jobs. Each is written there before it is deleted here.
func (c *carrier) rest(ctx context.Context) error {
	keys, err := c.keys(ctx, c.home)
	if err != nil {
		return err
	}
	hashes := map[string]map[string]string{}
	for _, name := range []string{"tenants", "overrides", "pauses"} {
		if hashes[name], err = c.hash(ctx, store.Key(c.home, name)); err != nil {
			return err
		}
	}
	entries, err := c.periodic(ctx)
	if err != nil {
		return err
	}
	scopes := map[string][]string{}
	for scope := range hashes["pauses"] {
		if tenant := tenantOfScope(scope); tenant != "" {
			scopes[tenant] = append(scopes[tenant], scope)
		}
	}
	for tenant, arrives := range c.to {
		if err := c.keep(ctx); err != nil {
			return err
		}
		var there, here writes
		if err := c.values(ctx, keys[tenant], &there); err != nil {
			return err
		}
		for _, name := range keys[tenant] {
			here.add("DEL", name)
		}
		for _, id := range entries[tenant] {
			if err := c.ticks(ctx, id, &there); err != nil {
				return err
			}
			here.add("DEL", "tick:"+rediskey.Escape(id))
		}
		if text := hashes["overrides"][tenant]; text != "" {
			if err := c.overrides(ctx, arrives, tenant, text); err != nil {
				return err
			}
			here.add("HDEL", "overrides", tenant)
			here.add("HINCRBY", "totals", "limits", 1)
		}
		for _, scope := range scopes[tenant] {
			text := hashes["pauses"][scope]
			there.add("PAUSE", scope, text, pauseKept(text))
			here.add("RESUME", scope)
		}
		if n := store.ReadCounts(hashes["tenants"][tenant]); n.Done > 0 {
			there.add("DONE", n.Done)
			here.add("DONE", 0)
		}
		if err := c.with(ctx, arrives, tenant, store.MoveComes+c.token, there); err != nil {
			return err
		}
		if err := c.with(ctx, c.home, tenant, store.MoveLeft+c.token, here); err != nil {
			return err
		}
	}
	return nil
}

// overrides writes the overrides of a tenant to the partition where it arrives, as its limits there have them: other limits
// may be published on both sides of the move, before the overrides are there or after they have been read here.
func (c *carrier) overrides(ctx context.Context, home, tenant, text string) error {
	for written := ""; ; {
		next, err := c.resolved(ctx, home, tenant, text)
		if err != nil || next == written {
			return err
		}
		all := writes{{"HSET", "overrides", tenant, next}, {"HINCRBY", "totals", "limits", 1}}
		if err := c.with(ctx, home, tenant, store.MoveComes+c.token, all); err != nil {
			return err
		}
		written = next // limits that are published from now on find them
	}
}

// resolved returns the overrides of a tenant by the limits that a partition has now.
func (c *carrier) resolved(ctx context.Context, home, tenant, text string) (string, error) {
	var known map[string]effective.Override
	if json.Unmarshal([]byte(text), &known) != nil {
		return text, nil // damaged ones do not hold up the move
	}
	var e effective.Limits
	err := c.do(ctx, func(ctx context.Context) error {
		limits, rules, err := effective.ReadTenants(ctx, c.Redis, home, tenant)
		if err != nil {
			return err
		}
		e = limits
		e.Overrides[tenant] = known
		e.Resolve(rules, tenant)
		return nil
	})
	if err != nil || len(e.Overrides[tenant]) == 0 { // all have ended, so nothing reads them
		return text, err
	}
	next, err := json.Marshal(e.Overrides[tenant])
	return string(next), err
}

// pauseKept returns until when a pause is kept, µs, as lanes.lua keeps it.
func pauseKept(text string) int64 {
	until := store.PausedUntil(text)
	if _, rest, _ := strings.Cut(text, " "); strings.HasPrefix(rest, "tried ") {
		return until + time.Hour.Microseconds()
	}
	return until
}

// values adds the writes that copy strings, lists and the permits of direct calls.
func (c *carrier) values(ctx context.Context, names []string, to *writes) error {
	for some := range slices.Chunk(names, atATime) {
		if err := c.keep(ctx); err != nil {
			return err
		}
		err := c.do(ctx, func(ctx context.Context) error {
			var added writes
			err := c.copies(ctx, some, &added)
			if err == nil {
				*to = append(*to, added...)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *carrier) copies(ctx context.Context, names []string, to *writes) error {
	pipe, kinds := c.Redis.Pipeline(), make([]*redis.StatusCmd, len(names))
	for i, name := range names {
		kinds[i] = pipe.Type(ctx, store.Key(c.home, name))
	}
	if err := store.Execute(ctx, pipe); err != nil {
		return err
	}
	pipe = c.Redis.Pipeline()
	texts, lists, left := make([]*redis.StringCmd, len(names)), make([]*redis.StringSliceCmd, len(names)), make([]*redis.DurationCmd, len(names))
	permits := make([]*redis.ZSliceCmd, len(names))
	for i, name := range names {
		key := store.Key(c.home, name)
		switch kinds[i].Val() { // another one has expired, or is damaged
		case "string":
			texts[i] = pipe.Get(ctx, key)
		case "list":
			lists[i] = pipe.LRange(ctx, key, 0, -1)
		case "zset":
			permits[i] = pipe.ZRangeWithScores(ctx, key, 0, -1)
		}
		left[i] = pipe.PTTL(ctx, key)
	}
	if err := store.Execute(ctx, pipe); err != nil {
		return err
	}
	for i, name := range names {
		key := store.Key(c.home, name)
		const endless = -1 // others have expired meanwhile
		if left[i].Val() <= 0 && left[i].Val() != endless {
			continue
		}
		switch {
		case texts[i] != nil && texts[i].Err() == nil:
			to.add("SET", name, texts[i].Val())
		case lists[i] != nil && len(lists[i].Val()) > 0:
			to.add("DEL", name)
			for some := range slices.Chunk(lists[i].Val(), atATime) { // a script takes only so many words at once
				words := []any{"RPUSH", name}
				for _, one := range some {
					words = append(words, one)
				}
				to.add(words...)
			}
		case permits[i] != nil && len(permits[i].Val()) > 0:
			// No job of the tenant has begun, so these are of direct calls, which go on meanwhile. They could not be
			// renewed while the tenant was on its way.
			now, err := store.Time(ctx, c.Redis, key)
			if err != nil {
				return err
			}
			lapse := now.Add(store.DirectLease)
			for some := range slices.Chunk(permits[i].Val(), atATime) {
				words := []any{"ZADD", name}
				for _, one := range some {
					words = append(words, strconv.FormatFloat(max(one.Score, float64(lapse.UnixMicro())), 'f', 0, 64), one.Member)
				}
				to.add(words...)
			}
			to.add("PEXPIRE", name, max(left[i].Val(), store.DirectLease+2*time.Second).Milliseconds())
			continue
		default:
			continue
		}
		if left[i].Val() > 0 {
			to.add("PEXPIRE", name, left[i].Val().Milliseconds())
		}
	}
	return nil
}

// periodic returns the ids of the periodic jobs of tenants, by escaped tenant.
func (c *carrier) periodic(ctx context.Context) (map[string][]string, error) {
	all, err := c.hash(ctx, store.PeriodicKey)
	ids := map[string][]string{}
	for id, text := range all {
		var entry struct {
			Job struct {
				Tenant string `json:"tenant"`
			} `json:"job"`
		}
		if json.Unmarshal([]byte(text), &entry) != nil {
			continue
		}
		if tenant := rediskey.Escape(entry.Job.Tenant); c.to[tenant] != "" {
			ids[tenant] = append(ids[tenant], id)
		}
	}
	return ids, err
}

// ticks adds the writes that copy what is known of the ticks of a periodic job. Which one was fired last is also
// kept here, for workers that do not know yet that the tenant has gone: it expires.
func (c *carrier) ticks(ctx context.Context, id string, to *writes) error {
	if err := c.values(ctx, []string{"tick:" + rediskey.Escape(id)}, to); err != nil {
		return err
	}
	return c.do(ctx, func(ctx context.Context) error {
		score, err := c.Redis.ZScore(ctx, store.Key(c.home, "periodic"), id).Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		if err == nil {
			to.add("ZADD", "periodic", strconv.FormatFloat(score, 'f', 0, 64), id)
		}
		return err
	})
}

// pauses copies the pauses of the queue and of kinds to the partitions that are new.
func (m *Mover) pauses(ctx context.Context) error {
	read := func(home string) (map[string]string, error) { return m.hash(ctx, store.Key(home, "pauses")) }
	all, err := read(m.Of.Queue)
	if err != nil {
		return err
	}
	maps.DeleteFunc(all, func(scope, _ string) bool { return scope != store.WholeQueue && !strings.HasPrefix(scope, "k:") })
	for _, home := range m.Of.Names()[min(m.Of.From.N, m.Of.N):] {
		known, err := read(home)
		if err != nil {
			return err
		}
		var missing writes
		for scope, text := range all {
			if known[scope] == "" {
				missing.add("PAUSE", scope, text, pauseKept(text))
			}
		}
		if err := m.with(ctx, home, "", m.Of.Sum(), missing); err != nil {
			return err
		}
		now, err := read(m.Of.Queue)
		if err != nil {
			return err
		}
		var ends writes // of what was resumed meanwhile
		for scope := range all {
			if known[scope] == "" && now[scope] == "" {
				ends.add("RESUME", scope)
			}
		}
		if err := m.with(ctx, home, "", m.Of.Sum(), ends); err != nil {
			return err
		}
	}
	return nil
}

// strays ends pauses of tenants in the partition that they left, and those of moves that were interrupted.
func (m *Mover) strays(ctx context.Context) error {
	for _, home := range m.Of.Names() {
		all, err := m.hash(ctx, store.Key(home, "pauses"))
		if err != nil {
			return err
		}
		var ends writes
		for scope := range all {
			tenant := tenantOfScope(scope)
			if strings.HasPrefix(scope, store.MoveScope("")) || tenant != "" && m.Of.Home(store.Unescape(tenant)) != home {
				ends.add("RESUME", scope)
			}
		}
		if err := m.with(ctx, home, "", m.Of.Sum(), ends); err != nil {
			return err
		}
	}
	return nil
}
