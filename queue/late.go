package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/workers"
)

// lateSought is how long a job that is not where it was is looked for: that of a tenant that moves is somewhere else by then.
const lateSought = time.Minute

// endLate ends a run that has lost its job: this worker did not renew its leases for so long
// that another one recovered the job. endLate still records that the run did not crash, and
// whether its call succeeded. The job may have moved to another partition since, with its tenant.
func (g *gate) endLate(job *Running, v verdict) verdict {
	home, began := g.queue, time.Now()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		ctx, cancel := context.WithTimeout(context.Background(), store.Timeout)
		reply, err := store.LateScript.Run(ctx, g.redis, store.ScriptKeys(home), home, job.ID, job.owner, job.tenant(), job.kind(),
			v.outcome == lifecycle.Done, string(v.result), string(v.answer), job.Attempt, v.took.Microseconds())
		cancel()
		if gone := reply == int64(-2); err == nil && (gone || reply == int64(-1)) {
			var now string
			now, err = g.homeOf(job)
			switch {
			case err == nil && now != home:
				home = now
				continue
			case gone && time.Since(began) > lateSought:
				err = nil // the job was deleted, and its tenant is not known any more
			}
		}
		if err == nil {
			g.live.endedLate(job.ID)
			return lost()
		}
		g.logger.Warn("recording the end of a lost run failed; retrying", logkey.Queue, g.queue, logkey.Job, job.ID, logkey.Error, err)
		select {
		case <-g.ended:
			return lost()
		case <-time.After(wait):
		}
	}
}

// homeOf returns the partition that has a job's tenant now.
func (g *gate) homeOf(job *Running) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), store.Timeout)
	defer cancel()
	l, err := store.ReadLayout(ctx, g.redis, partition.QueueOf(g.queue))
	if err != nil {
		return "", err
	}
	home, _, err := store.HomeOf(ctx, g.redis, l, job.Tenant)
	return home, err
}

// certain reports whether a job that was counted as crashing its workers certainly did: all
// of these workers have ended. A worker that was only suspended may have come back.
func (g *gate) certain(ctx context.Context, job *Running) bool {
	for {
		runs, err := g.readLost(ctx, job.ID)
		if err == nil {
			ended := workers.Ended(ctx, g.redis, runs)
			return !slices.ContainsFunc(runs, func(owner string) bool { return !ended[workers.Of(owner)] })
		}
		if !g.pauseAfter(ctx, "crashed", job, err) {
			return false // the run ends anyway
		}
	}
}

// readLost returns the owner marks of the runs that were counted as crashes of a job.
func (g *gate) readLost(ctx context.Context, id string) (owners []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	runs, err := g.redis.HGet(ctx, asynqwire.Key(g.queue, "t:"+id), "hg_lost").Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	for run := range strings.FieldsSeq(runs) {
		if owner, counted, _ := strings.Cut(run, "="); counted != "0" {
			owners = append(owners, owner)
		}
	}
	return owners, err
}

// lost returns the verdict on a run that has lost its job.
func lost() verdict { return verdict{outcome: lifecycle.Lost} }
