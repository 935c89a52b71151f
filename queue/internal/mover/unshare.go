package mover

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/seats"
	"github.com/headgate/headgate/queue/internal/store"
)

// leases has what partitions have of the limits that they share: by limit, by holder.
type leases map[string]map[string]limitlua.Lease

// add adds what a bucket has, and returns false if it never was one of a shared limit.
func (l leases) add(limit, home, bucket string) bool {
	body, _, _ := strings.Cut(bucket, " !")
	lease, err := limitlua.ReadLease(body)
	if err != nil {
		return bucket == ""
	}
	if l[limit] == nil {
		l[limit] = map[string]limitlua.Lease{}
	}
	l[limit][fmt.Sprintf("%s:%d", home, lease.ID)] = lease
	return true
}

// shared returns the limits that only partitions share. A budget stays shared with other queues.
func shared(q *effective.Queue) (limits []*effective.Limit) {
	for i := range q.Limits {
		if one := &q.Limits[i]; one.Spec.Leased && one.Queues == nil {
			limits = append(limits, one)
		}
	}
	return limits
}

func bucketKey(home string, limit *effective.Limit) string {
	return store.Key(home, "b:"+limit.Name+":")
}

func callsKey(home string, limit *effective.Limit) string {
	return store.Key(home, "calls:"+limit.Name+":")
}

// forget deletes the leases of a partition that is gone. If the queue gets it again, it is another holder.
func (m *Mover) forget(ctx context.Context, home string, limits []*effective.Limit) error {
	var keys []string
	for _, limit := range limits {
		keys = append(keys, bucketKey(home, limit), callsKey(home, limit))
	}
	if len(keys) == 0 {
		return nil
	}
	return m.do(ctx, func(ctx context.Context) error { return m.Redis.Del(ctx, keys...).Err() })
}

// giveBack is how long partitions that end have for giving back what they do not spend: they are asked four times a
// second.
const giveBack = 2 * time.Second

// leases returns the leases of partitions that end. None of their tenants is there any more, so they are not spent. It
// waits until they have been given back, or what is left of a quota would be lost with its partition.
func (m *Mover) leases(ctx context.Context, homes []string) (leases, error) {
	for end := time.Now().Add(giveBack); ; {
		found := leases{}
		for _, home := range homes {
			if err := m.do(ctx, func(ctx context.Context) error { return m.leasesOf(ctx, home, found) }); err != nil {
				return nil, err
			}
		}
		if len(found) == 0 {
			return found, nil
		}
		text, _, err := m.ledger().Read(ctx)
		if err != nil {
			return nil, err
		}
		ledgers, err := store.ReadLedgers(text)
		if err != nil {
			return nil, err
		}
		left := int64(0)
		for limit, of := range ledgers.Of {
			left += of.Ledger.Unspent(found[limit])
		}
		if left == 0 || time.Now().After(end) {
			return found, nil
		}
		if err := wait.For(ctx, idleLook); err != nil {
			return nil, err
		}
	}
}

// budgetsBack waits until partitions that end have given back what they have of budgets: their ledgers know these buckets
// as holders until the window ends. It waits as long as there is less of it within a time.
func (m *Mover) budgetsBack(ctx context.Context, homes []string) error {
	least := math.MaxInt64
	for end := time.Now(); ; {
		if err := m.keep(ctx); err != nil {
			return err
		}
		have := 0
		for _, home := range homes {
			n, err := m.budgetsOf(ctx, home)
			if err != nil {
				return err
			}
			have += n
		}
		if have < least {
			least, end = have, time.Now().Add(budgetBack)
		}
		if have == 0 || time.Now().After(end) {
			return nil
		}
		if err := wait.For(ctx, idleLook); err != nil {
			return err
		}
	}
}

// budgetBack is longer than giveBack: a tenant without jobs keeps what it has for a second more.
const budgetBack = giveBack + time.Second

// budgetsOf returns how many buckets of budgets a partition has that have not given back all that they could spend.
func (m *Mover) budgetsOf(ctx context.Context, home string) (n int, err error) {
	err = m.do(ctx, func(ctx context.Context) error {
		n = 0
		q, err := effective.ReadQueue(ctx, m.Redis, home)
		if err != nil {
			return err
		}
		for i := range q.Limits {
			limit := &q.Limits[i]
			switch {
			case !limit.Spec.Leased || limit.Queues == nil:
			case len(limit.Per) > 0: // the tenants whose buckets are asked
				tenants, err := m.Redis.ZCard(ctx, store.Key(home, "leases:"+limit.Name)).Result()
				if err != nil {
					return err
				}
				n += int(tenants)
			default:
				text, err := m.Redis.Get(ctx, bucketKey(home, limit)).Result()
				if err != nil && !errors.Is(err, redis.Nil) {
					return err
				}
				body, _, _ := strings.Cut(text, " !")
				if lease, err := limitlua.ReadLease(body); err == nil && lease.Spent < min(lease.N, lease.Keep) {
					n++
				}
			}
		}
		return nil
	})
	return n, err
}

// leasesOf adds the leases of a partition.
func (m *Mover) leasesOf(ctx context.Context, home string, found leases) error {
	q, err := effective.ReadQueue(ctx, m.Redis, home)
	if err != nil {
		return err
	}
	for _, limit := range shared(&q) {
		text, err := m.Redis.Get(ctx, bucketKey(home, limit)).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		found.add(limit.Name, home, text)
	}
	return nil
}

// ledger returns the ledger of the shared limits. It is the same one each time, because only that knows which seat has not
// answered. Another one would wait for it again, and a bucket of a busy queue changes in that time.
func (m *Mover) ledger() *seats.Register {
	if m.register == nil {
		m.register = seats.New(m.Redis, m.Worker, m.Of.Queue, store.Key(m.Of.Queue, "ledger"))
	}
	return m.register
}

// betweenTries is how long it waits for a worker that still leases.
const betweenTries = 10 * time.Millisecond

// noLedgers is the text of a ledger without limits.
const noLedgers = `{"limits":{}}`

// emptyLedger makes the ledger of limits that are not shared any more an empty one, and not none: who knew this one would
// take it for lost, and lease nothing of a quota any more. It changes nothing if the queue is divided. It can be repeated,
// and has time of its own, because a change may have ended just before the worker stops: what is left in the ledger would
// count twice when the queue is divided again.
func (m *Mover) emptyLedger(ctx context.Context) error {
	if m.Of.N > 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
	defer cancel()
	l := m.ledger()
	for {
		text, number, err := l.Read(ctx)
		if err == nil && (number == 0 || text == noLedgers) {
			return nil
		}
		if err == nil { // if they are shared again after that, another ledger is stored, and not this one
			var layout partition.Layout
			if layout, err = store.ReadLayout(ctx, m.Redis, m.Of.Queue); err == nil && !layout.Whole() {
				return nil
			}
		}
		if err == nil {
			_, err = l.Store(ctx, uint64(time.Now().UnixMicro()), noLedgers)
		}
		if !errors.Is(err, seats.ErrTaken) || ctx.Err() != nil {
			return err
		}
		time.Sleep(betweenTries)
	}
}

// unshare changes limits that were shared to those of one partition. It returns what has to be written with them: the
// partition's buckets know from then on what all have used. What is leased meanwhile has no bucket then.
func (m *Mover) unshare(ctx context.Context, tx *redis.Tx, q *effective.Queue, leases leases) (func(redis.Pipeliner), error) {
	home, limits := m.Of.Queue, shared(q)
	if len(limits) == 0 {
		return func(redis.Pipeliner) {}, nil
	}
	var keys []string
	for _, limit := range limits {
		keys = append(keys, bucketKey(home, limit))
	}
	if err := tx.Watch(ctx, keys...).Err(); err != nil {
		return nil, err
	}
	pipe := tx.Pipeline() // what takes long is done in vain when a call goes meanwhile
	values, now := pipe.MGet(ctx, keys...), pipe.Time(ctx)
	if err := store.Execute(ctx, pipe); err != nil {
		return nil, err
	}
	texts := store.Texts(values.Val())
	text, _, err := m.ledger().Read(ctx) // after the buckets: so it has all that was leased to them
	if err != nil {
		return nil, err
	}
	ledgers, err := store.ReadLedgers(text)
	if err != nil {
		return nil, err
	}
	buckets := map[string]string{}
	var gone []string
	for i, limit := range limits {
		leased := limit.Spec
		limit.Spec.Leased, limit.Spec.Pool = false, false
		if limit.Spec.Algorithm == "cc" {
			gone = append(gone, callsKey(home, limit))
			continue
		}
		key, was := keys[i], texts[i]
		if !leases.add(limit.Name, home, was) {
			continue
		}
		of := ledgers.Of[limit.Name]
		if of == nil { // nobody has asked yet
			of = &store.Ledger{Ledger: partition.NewLedger(leased)}
		}
		buckets[key] = of.Ledger.Alone(now.Val().UnixMicro(), leases[limit.Name])
		if _, pause, paused := strings.Cut(was, " !"); paused {
			buckets[key] += " !" + pause
		}
	}
	return func(p redis.Pipeliner) {
		if len(gone) > 0 {
			p.Del(ctx, gone...)
		}
		for key, text := range buckets {
			p.Set(ctx, key, text, unsharedKept)
		}
	}, nil
}

// unsharedKept is how long such a bucket is kept if no call comes: longer than any window.
const unsharedKept = 400 * 24 * time.Hour
