package mover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
)

// carrier takes what tenants have from one partition to others.
type carrier struct {
	*Mover
	home, token string
	to          map[string]string // where an escaped tenant arrives
}

const (
	jobsAtATime  = 50
	bytesAtATime = 1 << 20

	// fruitless is how often in a row no job may be found before counts of jobs that are higher count as wrong.
	fruitless = 5
)

// errNotArrived means that another worker has begun to move the tenants again.
var errNotArrived = errors.New("another worker has gone on with this")

// tenantOf returns the escaped tenant of a task; false: there is no such task.
func tenantOf(group, message string) (tenant string, ok bool) {
	if group != "" {
		return store.ParseLane(group).Tenant, true
	}
	m, err := asynqwire.Decode([]byte(message))
	return rediskey.Escape(m.Tenant()), message != "" && err == nil
}

// jobs moves all jobs of the tenants. No new ones come, but some go from place to place until they are taken out: an
// expired one is put away by a worker, one that is due returns to its lane. A look that finds none may have missed one
// each time that it went where the look had been before. So it looks again until there is none by count either.
func (c *carrier) jobs(ctx context.Context) error {
	for looks := 0; looks < fruitless; looks++ {
		if err := c.lead(ctx); err != nil {
			return err
		}
		if err := c.underway(ctx); err != nil {
			return err
		}
		idle, err := c.idle(ctx, c.home, slices.Collect(maps.Keys(c.to)), c.Longest)
		if err != nil {
			return err
		}
		moved, err := c.walk(ctx)
		if err != nil {
			return err
		}
		if moved > 0 || len(idle) < len(c.to) {
			looks = -1
			continue
		}
		if none, err := c.counted(ctx); err != nil || none && looks > 0 {
			return err
		}
	}
	return nil
}

// counted reports whether the tenants have no job in the partition, by their counts.
func (c *carrier) counted(ctx context.Context) (none bool, err error) {
	for some := range slices.Chunk(slices.Collect(maps.Keys(c.to)), atATime) {
		var counts map[string]store.Counts
		err := c.do(ctx, func(ctx context.Context) error {
			reply := c.Redis.HMGet(ctx, store.TenantsKey(c.home), some...)
			counts = store.ReadAllCounts(some, reply)
			return reply.Err()
		})
		if err != nil {
			return false, err
		}
		for _, n := range counts {
			if n.Jobs > 0 {
				return false, nil
			}
		}
	}
	return true, nil
}

// underway puts jobs to their places that were taken out before.
func (c *carrier) underway(ctx context.Context) error {
	return c.scan(ctx, func(ctx context.Context, cursor uint64) (ids []string, next uint64, err error) {
		fields, next, err := c.Redis.HScan(ctx, store.Key(c.home, "leaving"), cursor, "", atATime).Result()
		for i := 0; i+1 < len(fields); i += 2 {
			ids = append(ids, fields[i])
		}
		return ids, next, err
	}, c.put)
}

// walk looks for jobs in all places, and moves them. It returns how many it moved.
func (c *carrier) walk(ctx context.Context) (moved int, err error) {
	take := func(ctx context.Context, ids []string) error {
		n, err := c.take(ctx, ids)
		moved += n
		return err
	}
	for _, set := range []string{
		asynqwire.Key(c.home, "scheduled"), asynqwire.Key(c.home, "retry"), asynqwire.Key(c.home, "completed"),
		asynqwire.Key(c.home, "archived"), store.Key(c.home, "archive"),
	} {
		if err := c.scan(ctx, c.members(set), take); err != nil {
			return moved, err
		}
	}
	var lanes []string
	err = c.do(ctx, func(ctx context.Context) (err error) {
		lanes, err = c.Redis.SMembers(ctx, asynqwire.Key(c.home, "groups")).Result()
		return err
	})
	if err != nil {
		return moved, err
	}
	for _, lane := range lanes {
		if c.to[store.ParseLane(lane).Tenant] == "" {
			continue
		}
		if err := c.scan(ctx, c.members(asynqwire.Key(c.home, "g:"+lane)), take); err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// members returns a step of a scan through a sorted set.
func (c *carrier) members(key string) func(ctx context.Context, cursor uint64) ([]string, uint64, error) {
	return func(ctx context.Context, cursor uint64) (ids []string, next uint64, err error) {
		pairs, next, err := c.Redis.ZScan(ctx, key, cursor, "", atATime).Result()
		for i := 0; i+1 < len(pairs); i += 2 {
			ids = append(ids, pairs[i])
		}
		return ids, next, err
	}
}

// scan calls each with all ids that steps return.
func (c *carrier) scan(
	ctx context.Context, step func(ctx context.Context, cursor uint64) ([]string, uint64, error), each func(ctx context.Context, ids []string) error,
) error {
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var ids []string
		err := c.do(ctx, func(ctx context.Context) (err error) {
			ids, cursor, err = step(ctx, cursor)
			return err
		})
		if err != nil {
			return err
		}
		for some := range slices.Chunk(ids, jobsAtATime) {
			if err := c.keep(ctx); err != nil {
				return err
			}
			if err := each(ctx, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// take takes those of some jobs out of their places that are the tenants', and puts them where these arrive.
func (c *carrier) take(ctx context.Context, ids []string) (n int, err error) {
	mine := []any{c.home, ""}
	var out []string
	err = c.do(ctx, func(ctx context.Context) error {
		mine, out = mine[:2], out[:0]
		return c.of(ctx, c.home, ids, func(id, tenant string) {
			if c.to[tenant] != "" {
				mine, out = append(mine, id), append(out, id)
			}
		})
	})
	if err != nil || len(out) == 0 {
		return 0, err
	}
	err = c.calendars[c.home].Run(ctx, func(calendars string) error {
		mine[1] = calendars
		return c.do(ctx, func(ctx context.Context) error {
			reply, err := store.MoveOutScript.Run(ctx, c.Redis, store.ScriptKeys(c.home), mine...)
			taken, _ := reply.(int64)
			n += int(taken)
			return err
		})
	})
	if err != nil {
		return n, err
	}
	return n, c.put(ctx, out)
}

// onItsWay is a job that was taken out of its place.
type onItsWay struct {
	id, tenant, place string
	fields            map[string]string
}

func (j *onItsWay) size() int {
	n := 0
	for name, value := range j.fields {
		n += len(name) + len(value)
	}
	return n
}

// put puts those of some jobs that are on their way where their tenants arrive, and deletes them here.
func (c *carrier) put(ctx context.Context, ids []string) error {
	var jobs map[string][]onItsWay // by where they go
	err := c.do(ctx, func(ctx context.Context) error {
		pipe := c.Redis.Pipeline()
		places := pipe.HMGet(ctx, store.Key(c.home, "leaving"), ids...)
		tasks := make([]*redis.MapStringStringCmd, len(ids))
		for i, id := range ids {
			tasks[i] = pipe.HGetAll(ctx, asynqwire.Key(c.home, "t:"+id))
		}
		if err := store.Execute(ctx, pipe); err != nil {
			return err
		}
		jobs = map[string][]onItsWay{}
		for i, place := range store.Texts(places.Val()) {
			task := tasks[i].Val()
			tenant, known := tenantOf(task["group"], task["msg"])
			to := c.to[tenant]
			if place == "" || to == "" || !known { // of a task that is gone, nothing is known
				continue
			}
			delete(task, "hg_permits") // they were given back
			// The lock of asynq's own client is in this partition and stays until it expires: in a Cluster, no script
			// reads it from the other one.
			delete(task, "unique_key")
			jobs[to] = append(jobs[to], onItsWay{ids[i], tenant, place, task})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for to, all := range jobs {
		for len(all) > 0 {
			n, bytes := 0, 0
			for n < len(all) && (n == 0 || bytes+all[n].size() <= bytesAtATime) {
				bytes += all[n].size()
				n++
			}
			if err := c.keep(ctx); err != nil {
				return err
			}
			if err := c.putSome(ctx, to, all[:n]); err != nil {
				return err
			}
			all = all[n:]
		}
	}
	return nil
}

func (c *carrier) putSome(ctx context.Context, to string, jobs []onItsWay) error {
	in, tenants := []any{to, c.token}, map[string]string{}
	for _, job := range jobs {
		in = append(in, job.id, job.tenant, job.place, 2*len(job.fields))
		for name, value := range job.fields {
			in = append(in, name, value)
		}
		tenants[job.id] = job.tenant
	}
	done := []any{c.home, c.token}
	reply, err := c.write(ctx, store.MoveInScript, to, in...)
	if err != nil {
		return err
	}
	for _, id := range reply.([]any) {
		done = append(done, id, tenants[id.(string)])
	}
	if len(done) < 2+2*len(jobs) {
		return cmp.Or(c.lead(ctx), fmt.Errorf("%d of %d jobs cannot be put into %s: %w", len(jobs)-(len(done)-2)/2, len(jobs), to, errNotArrived))
	}
	_, err = c.write(ctx, store.MoveDoneScript, c.home, done...)
	return err
}
