package mover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/seats"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// Mover moves the tenants of a queue, as long as no other worker does.
type Mover struct {
	Of      partition.Layout // From says where the tenants are
	Worker  string           // its id
	Longest time.Duration    // that a call of this worker can take, and for how long it waits for those of recovered jobs
	Redis   redis.UniversalClient
	Logger  *slog.Logger

	// Replicated runs a script in a partition and waits until a replica has what it wrote. It is needed for queues
	// with [limits.Replicated].
	Replicated func(ctx context.Context, script *redisscript.Script, home string, args ...any) (any, error)

	replicated bool                            // the queue has limits.Replicated
	calendars  map[string]*effective.Calendars // by partition
	led        time.Time                       // when it last took the role
	away       map[string]error                // partitions that did not answer when this attempt began, or lacked the change
	register   *seats.Register                 // the ledger of the shared limits; nil until it is used
}

const roleLasts = 5 * time.Second

var tryAgain = time.Second // shorter in tests

var (
	// errOther means that another worker moves the tenants.
	errOther = errors.New("another worker moves the tenants")

	// errOver means that another worker has moved them, and that the queue has other partitions by now.
	errOver = errors.New("the change is over")
)

// Run moves tenants until the last one has arrived and the limits say so, or ctx is done.
func (m *Mover) Run(ctx context.Context) {
	m.calendars = map[string]*effective.Calendars{}
	for _, home := range m.Of.Names() {
		m.calendars[home] = &effective.Calendars{Queue: home, Redis: m.Redis}
	}
	defer m.resign()
	failing := false
	for {
		err := m.move(ctx)
		if errors.Is(err, errOver) || ctx.Err() != nil {
			err = m.emptyLedger(ctx) // whoever ended the change may not have done this
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		if !errors.Is(err, errOther) && !failing {
			m.Logger.Warn("cannot move tenants to other partitions; retrying", logkey.Queue, m.Of.Queue, logkey.Error, err)
		}
		failing = !errors.Is(err, errOther)
		_ = wait.For(ctx, tryAgain) // if ctx is done, the next attempt is the last one
	}
}

// move does all that is left to do. Each step can be repeated.
func (m *Mover) move(ctx context.Context) error {
	ended, err := m.published(ctx)
	if err != nil {
		return err
	}
	if err := m.lead(ctx); err != nil {
		return err
	}
	if err := m.readDurability(ctx, m.Of.Queue); err != nil {
		return err
	}
	if !ended {
		if err := m.moveAll(ctx); err != nil {
			// The next attempts may fail as well, for as long as a node is away. The tenants that could still be called where
			// they are do not wait for it.
			_ = m.releaseAll(ctx)
			return err
		}
	}
	if _, err := m.set(ctx, m.Of.Queue, "", m.Of.Sum(), []string{endedField}); err != nil {
		return err
	}
	if err := m.end(ctx); err != nil {
		return fmt.Errorf("end: %w", err)
	}
	m.Logger.Info("all tenants are in their new partitions", logkey.Queue, m.Of.Queue, "partitions", m.Of.N)
	return nil
}

// moveAll moves all tenants that belong elsewhere. None begins to move while a partition is away.
func (m *Mover) moveAll(ctx context.Context) error {
	if err := m.resumeAll(ctx); err != nil {
		return err
	}
	if err := m.pauses(ctx); err != nil {
		return err
	}
	for _, home := range m.Of.From.Names() {
		if err := m.empty(ctx, home, true); err != nil {
			return fmt.Errorf("from %s: %w", home, err)
		}
	}
	// Tenants that nobody knew were added to their old partitions until now.
	for _, home := range m.Of.From.Names() {
		if _, err := m.set(ctx, home, "", m.Of.Sum(), []string{store.WholeQueue}); err != nil {
			return err
		}
	}
	for _, home := range m.Of.From.Names() {
		if err := m.empty(ctx, home, true); err != nil { // a direct call leaves only keys
			return fmt.Errorf("from %s: %w", home, err)
		}
	}
	if err := m.pauses(ctx); err != nil {
		return err
	}
	return m.strays(ctx)
}

func (m *Mover) role() string { return store.Key(m.Of.Queue, "mover") }

// lead takes or keeps the role of the worker that moves.
func (m *Mover) lead(ctx context.Context) error {
	var reply any
	asked := time.Now()
	err := m.do(ctx, func(ctx context.Context) (err error) {
		reply, err = store.WatchScript.Run(ctx, m.Redis, store.KeysOf(m.Of.Queue, m.role()), m.Of.Queue, m.Worker, roleLasts.Milliseconds())
		return err
	})
	if err == nil && reply != int64(0) {
		err = errOther
	}
	if err == nil {
		m.led = asked
	}
	return err
}

// keep renews the role in time. Whatever can take longer than the role lasts calls it again and again. Otherwise another
// worker would take the role, and let the tenants go on that this one has stopped.
func (m *Mover) keep(ctx context.Context) error {
	if time.Since(m.led) < roleLasts/4 {
		return nil
	}
	return m.lead(ctx)
}

// resign lets another worker go on at once.
func (m *Mover) resign() {
	ctx, cancel := context.WithTimeout(context.Background(), store.Timeout)
	defer cancel()
	_, _ = store.ResignScript.Run(ctx, m.Redis, []string{m.role()}, m.Worker, store.WakeChannel(m.Of.Queue), "")
}

// do sends something to Redis, also while a slot of it moves to another node.
func (m *Mover) do(ctx context.Context, send func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	return store.Patient(ctx, func() error { return send(ctx) })
}

// readDurability reads whether what is written in a move needs a replica.
func (m *Mover) readDurability(ctx context.Context, home string) error {
	return m.do(ctx, func(ctx context.Context) error {
		q, err := effective.ReadQueue(ctx, m.Redis, home)
		m.replicated = q.Durability == limits.Replicated
		return err
	})
}

// write runs a script in a partition. In a replicated queue it succeeds only when a replica has what the script wrote:
// otherwise jobs that the next step deletes in another partition would be lost if this one failed over.
func (m *Mover) write(ctx context.Context, script *redisscript.Script, home string, args ...any) (reply any, err error) {
	err = m.do(ctx, func(ctx context.Context) (err error) {
		if m.replicated {
			reply, err = m.Replicated(ctx, script, home, args...)
		} else {
			reply, err = script.Run(ctx, m.Redis, store.ScriptKeys(home), args...)
		}
		return err
	})
	return reply, err
}

// hash reads a hash as [Mover.do] does.
func (m *Mover) hash(ctx context.Context, key string) (fields map[string]string, err error) {
	err = m.do(ctx, func(ctx context.Context) (err error) {
		fields, err = store.ScanHash(ctx, m.Redis, key)
		return err
	})
	return fields, err
}

// endedField is the field of moves in the first partition that says that all tenants have arrived: from then on the
// change is only taken out of the limits.
const endedField = "*ended"

// published reports whether all tenants have arrived. It notes in away which partitions do not answer or do not know the
// change yet: who published it has to finish that.
func (m *Mover) published(ctx context.Context) (ended bool, err error) {
	homes := m.Of.Names()
	l, ended, err := m.stored(ctx, homes[0])
	switch {
	case err != nil:
		return false, err
	case !l.Equal(m.Of): // the first partition is the last one that learns that the change is over
		return false, errOver
	case ended:
		return true, nil
	}
	errs := make([]error, len(homes))
	var asking sync.WaitGroup // all at once: a node that is away may have many of them, and tenants may be held meanwhile
	for i, home := range homes[1:] {
		asking.Go(func() {
			l, _, err := m.stored(ctx, home)
			if err == nil && !l.Equal(m.Of) {
				err = fmt.Errorf("partition %s does not have the limits of the others: publish them again", home)
			}
			errs[i+1] = err
		})
	}
	asking.Wait()
	m.away = map[string]error{}
	for i, err := range errs {
		if err != nil {
			m.away[homes[i]] = err
		}
	}
	return false, nil
}

// stored returns the layout in the limits of a partition, and whether the partition has the mark that this change has ended.
func (m *Mover) stored(ctx context.Context, home string) (l partition.Layout, ended bool, err error) {
	var stored *redis.SliceCmd
	var mark *redis.StringCmd
	err = m.do(ctx, func(ctx context.Context) error {
		pipe := m.Redis.Pipeline()
		stored, mark = pipe.HMGet(ctx, store.Key(home, "limits"), "*", store.PinsField), pipe.HGet(ctx, store.MovesKey(home), endedField)
		return store.Execute(ctx, pipe)
	})
	if err != nil {
		return l, false, err
	}
	text := store.Texts(stored.Val())
	l, err = store.LayoutOf(m.Of.Queue, text[0], text[1])
	return l, mark.Val() == m.Of.Sum(), err
}
