package mover

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/conformance"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
)

// end removes the change from the limits, and the partitions that no tenant has any more. The first partition
// comes last: until then everybody knows that there is something to end.
func (m *Mover) end(ctx context.Context) error {
	homes := m.Of.Names()
	if err := m.budgetsBack(ctx, homes[m.Of.N:]); err != nil {
		return err
	}
	leases, err := m.leases(ctx, homes[m.Of.N:])
	if err != nil {
		return err
	}
	if others := homes[m.Of.N:]; len(others) > 0 {
		if err := m.remove(ctx, others); err != nil {
			return err
		}
	}
	for _, home := range slices.Backward(homes[:m.Of.N]) {
		if err := m.do(ctx, func(ctx context.Context) error { return m.settle(ctx, home, leases) }); err != nil {
			return err
		}
		store.AnnounceToAll(ctx, m.Redis, home)
	}
	return nil
}

// settle removes the change from the limits of a partition. If it is the only one that is left, it shares none of
// them any more.
func (m *Mover) settle(ctx context.Context, home string, leases leases) error {
	key, after := store.Key(home, "limits"), m.Of
	after.From = nil
	change := func(tx *redis.Tx) error {
		stored, err := tx.HMGet(ctx, key, "*", store.PinsField).Result()
		if err != nil {
			return err
		}
		text, pins := store.Texts(stored)[0], store.Texts(stored)[1]
		if l, err := store.LayoutOf(m.Of.Queue, text, pins); err != nil || !l.Equal(m.Of) {
			return err // it was settled before
		}
		var q effective.Queue
		if err := json.Unmarshal([]byte(text), &q); err != nil {
			return err
		}
		q.From = nil
		unshare := func(redis.Pipeliner) {}
		if m.Of.N == 1 && home == m.Of.Queue {
			if unshare, err = m.unshare(ctx, tx, &q, leases); err != nil {
				return err
			}
		}
		next, err := json.Marshal(q)
		if err != nil {
			return err
		}
		return store.Transaction(ctx, tx, func(p redis.Pipeliner) error {
			p.HSet(ctx, key, "*", next)
			if sum := after.Sum(); sum != "" {
				p.HSet(ctx, key, store.SumField, sum)
			} else {
				p.HDel(ctx, key, store.SumField)
			}
			unshare(p)
			p.Del(ctx, store.MovesKey(home))
			p.HIncrBy(ctx, store.Key(home, "totals"), "limits", 1)
			return nil
		})
	}
	for {
		err := m.Redis.Watch(ctx, change, key)
		if errors.Is(err, redis.TxFailedErr) {
			continue
		}
		if err == nil && home == m.Of.Queue {
			err = m.emptyLedger(ctx)
		}
		return err
	}
}

// remove takes partitions out of Redis that have no job. What asynq's tools left in one stays, and the log says so.
func (m *Mover) remove(ctx context.Context, homes []string) error {
	// The audit of a partition stays, and is found by its name in the first one's.
	if err := m.Redis.SAdd(ctx, store.Key(m.Of.Queue, "audit"), homes).Err(); err != nil {
		return err
	}
	q, err := effective.ReadQueue(ctx, m.Redis, m.Of.Queue)
	if err != nil {
		return err
	}
	if q.Conformance {
		// The latest calls of these partitions, which whoever counts them may not know yet. What cannot be counted does not
		// keep the change from its end.
		if err := conformance.NewAuditor(m.Of, m.Redis).Count(ctx); err != nil {
			m.Logger.Warn("the latest calls of partitions that the queue has no more may not be counted", logkey.Queue, m.Of.Queue, logkey.Error, err)
		}
	}
	for _, home := range homes {
		jobs, err := m.write(ctx, store.UnregisterScript, home, home, false, m.Of.Sum())
		if err != nil {
			return err
		}
		if jobs == int64(0) {
			if err := m.do(ctx, func(ctx context.Context) error { return m.addCounts(ctx, home) }); err != nil {
				return err
			}
			if jobs, err = m.write(ctx, store.UnregisterScript, home, home, true, m.Of.Sum()); err != nil {
				return err
			}
		}
		if jobs == int64(-1) {
			return errOver
		}
		if jobs != int64(0) {
			m.Logger.Warn("a partition that the queue has no more still has jobs, which could not be read", logkey.Queue, home, "jobs", jobs)
			if err := m.settle(ctx, home, nil); err != nil {
				return err
			}
			continue
		}
		if err := m.forget(ctx, home, shared(&q)); err != nil {
			return err
		}
		// A partition of this name that comes later begins anew.
		if err := m.Redis.HDel(ctx, store.Key(m.Of.Queue, "counted"), home).Err(); err != nil && !wrongType(err) {
			return err
		}
		if err := m.Redis.SRem(ctx, asynqwire.Queues, home).Err(); err != nil {
			return err
		}
	}
	return nil
}

// addCounts adds what a partition that ends has counted to the counts of the first one, once: they would fall.
func (m *Mover) addCounts(ctx context.Context, home string) error {
	to, limits, moves, mark := m.Of.Queue, store.Key(m.Of.Queue, "limits"), store.MovesKey(m.Of.Queue), "*counted "+home
	add := func(tx *redis.Tx) error {
		sum, err := tx.HGet(ctx, limits, store.SumField).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if sum != m.Of.Sum() {
			return errOver
		}
		if added, err := tx.HExists(ctx, moves, mark).Result(); err != nil || added {
			return err
		}
		pipe := m.Redis.Pipeline()
		totals, runs := pipe.HGetAll(ctx, store.Key(home, "totals")), pipe.MGet(ctx, asynqwire.Key(home, "processed"), asynqwire.Key(home, "failed"))
		if _, err := pipe.Exec(ctx); err != nil && !wrongType(err) { // damaged counts are lost
			return err
		}
		return store.Transaction(ctx, tx, func(p redis.Pipeliner) error {
			for name, text := range totals.Val() {
				// These are numbers of changes.
				if n, err := strconv.ParseInt(text, 10, 64); err == nil && name != "limits" && name != "pauses" {
					p.HIncrBy(ctx, store.Key(to, "totals"), name, n)
				}
			}
			for i, text := range store.Texts(runs.Val()) {
				if n, err := strconv.ParseInt(text, 10, 64); err == nil {
					p.IncrBy(ctx, asynqwire.Key(to, []string{"processed", "failed"}[i]), n)
				}
			}
			p.HSet(ctx, moves, mark, "1")
			return nil
		})
	}
	for {
		if err := m.Redis.Watch(ctx, add, limits, moves); !errors.Is(err, redis.TxFailedErr) {
			return err
		}
	}
}
