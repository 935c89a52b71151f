package queue

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/internal/seats"
	"github.com/headgate/headgate/queue/internal/store"
)

// book has the ledgers that are stored together: those of the shared limits of a queue, or the one of a
// budget, for all tenants or for one.
type book struct {
	kept   *seats.Register // the stored ledgers
	key    string          // of them
	of     string          // the queue for which it is used
	budget bool            // other queues use it, too

	used    time.Duration            // on the boot clock
	told    map[string]time.Duration // when its faults were reported, on the boot clock
	ledgers map[string]*store.Ledger // by limit; nil: to be read
	ahead   map[string]int64         // what is stored, see [store.Ledgers]
	clocks  map[string]int64         // the same of the clocks that this worker knows
	number  uint64                   // of what was read or stored last; numbers rise, and none comes twice
	lost    int64                    // when the ones before it were lost, µs; 0: there were none
	unsaved bool                     // the ledgers differ from the stored ones
}

// leaseCall is an ask, and where its answer or the error goes.
type leaseCall struct {
	ask    *leaseAsk
	answer *partition.Answer
	err    *error
}

const (
	// budgetTries is how often in a row other queues may store a ledger first.
	budgetTries = 5

	faultsAgain = time.Minute // between two reports of what cannot be read
)

// lease answers asks, and stores what it leases before it returns. After an error, nothing is leased.
func (b *book) lease(ctx context.Context, client redis.UniversalClient, all []leaseCall, now, ahead int64) error {
	for try := 1; ; try++ {
		if b.ledgers == nil || b.budget { // others may have changed it
			if err := b.read(ctx, client, all[0].ask.Member, now, ahead); err != nil {
				b.ledgers = nil
				return err
			}
		}
		for _, one := range all {
			*one.answer = b.ask(one.ask, now, ahead)
		}
		if !b.unsaved {
			return nil
		}
		err := b.store(ctx, now)
		if err == nil {
			return nil
		}
		b.ledgers = nil // whatever was stored
		if !b.budget || !errors.Is(err, seats.ErrTaken) || try == budgetTries {
			return err
		}
		time.Sleep(rand.N(time.Duration(try) * sharedAsks)) // or two could take turns at keeping each other from it
	}
}

// ask answers one ask. The answer to one that has to come again is empty.
func (b *book) ask(a *leaseAsk, now, ahead int64) partition.Answer {
	of := b.ledgers[a.limit]
	// All partitions of a queue have the limits and the windows of the first one, which is the last to get
	// new ones. Of a budget, each queue has its own for a moment: what was leased counts under both.
	leads := a.Member == b.of
	if of == nil && !leads && !b.budget {
		return partition.Answer{} // the first partition may have used some of it before it was shared
	}
	if of == nil {
		of = &store.Ledger{Spec: a.spec, Ledger: partition.NewLedger(a.spec)}
		if b.lost > 0 {
			of.Ledger.Lost(b.lost, ahead)
		}
		b.ledgers[a.limit] = of
	} else if (leads || b.budget) && a.spec != of.Spec {
		of.Spec = a.spec
		of.Ledger.SetLimit(a.spec, now)
		b.unsaved = true
	}
	if partition.Family(a.spec) != partition.Family(of.Spec) {
		return partition.Answer{} // the ledger is of the limit as it was, or will be
	}
	ask := a.Ask
	if b.budget {
		ask.Clock = b.of // its time is by that of the queue's first partition
	} else {
		if leads && !slices.Equal(of.Calendar, a.Calendar) {
			of.Calendar, b.unsaved = a.Calendar, true
		}
		ask.Calendar = of.Calendar
	}
	version := of.Ledger.Version()
	answer := of.Ledger.Ask(now, ask)
	b.unsaved = b.unsaved || of.Ledger.Version() != version
	return answer
}

// read reads the stored ledgers. The partition is one that has just answered: it knows whether Redis lost what it had.
func (b *book) read(ctx context.Context, client redis.UniversalClient, home string, now, ahead int64) error {
	text, number, err := b.kept.Read(ctx)
	if err != nil {
		return err
	}
	stored, err := store.ReadLedgers(text)
	if err != nil {
		return ledgerError{err}
	}
	b.unsaved = number < b.number // a failover lost the newer ones
	if b.unsaved {
		for _, of := range stored.Of {
			of.Ledger.Lost(now, ahead)
		}
	}
	switch b.lost = 0; {
	case number == 0 && b.number > 0:
		b.lost = now
	case number == 0:
		epoch, err := client.HGet(ctx, store.Key(home, "limits"), store.EpochField).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		b.lost = store.LostAt(epoch)
	}
	b.ledgers, b.ahead, b.number = stored.Of, stored.Ahead, number
	return nil
}

// ledgerError means that the stored ledgers are none.
type ledgerError struct{ error }

func (e ledgerError) Unwrap() error { return e.error }

// newFaults returns what of the stored ledgers cannot be read, after err, but for what it returned in the last minute.
func (b *book) newFaults(err error) (all []store.Fault) {
	if _, ok := errors.AsType[ledgerError](err); ok {
		all = append(all, store.Fault{What: b.key, Reason: err.Error() + "; delete it and its copies, and what is shared there counts as lost"})
	}
	for _, key := range b.kept.Damaged() {
		all = append(all, store.Fault{What: key, Reason: "it is no ledger; delete it: what is shared there counts as lost, unless it has copies that are whole"})
	}
	return slices.DeleteFunc(all, func(f store.Fault) bool {
		if told, known := b.told[f.What]; known && b.used-told < faultsAgain {
			return true
		}
		b.told[f.What] = b.used
		return false
	})
}

func (b *book) store(ctx context.Context, now int64) error {
	ahead := maps.Clone(b.ahead) // of a node that did not answer yet, what is known stays
	if ahead == nil {
		ahead = map[string]int64{}
	}
	maps.Copy(ahead, b.clocks)
	text, err := json.Marshal(store.Ledgers{Of: b.ledgers, Ahead: ahead})
	if err != nil {
		return err
	}
	number, err := b.kept.Store(ctx, uint64(now), string(text))
	if err == nil {
		b.ahead, b.number, b.unsaved = ahead, number, false
	}
	return err
}
