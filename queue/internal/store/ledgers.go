package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/partition"
)

// LedgerKept is how long the ledger of a queue is kept after the queue was unregistered: longer than any window of a quota.
// What was used of it is used, also by a queue of the same name that comes after.
const LedgerKept = 400 * 24 * time.Hour

// Ledger is the ledger of a limit, as it is stored beside others.
type Ledger struct {
	Spec   limitlua.Spec
	Ledger *partition.Ledger

	// Calendar is what the first partition said last, see [partition.Ask]. It is stored so that the others get permits while
	// that one does not answer. Each queue of a budget has its own.
	Calendar []int64 `json:"calendar,omitempty"`
}

// UnmarshalJSON reads what encoding/json wrote.
func (l *Ledger) UnmarshalJSON(text []byte) error {
	var stored struct {
		Spec     limitlua.Spec
		Ledger   json.RawMessage
		Calendar []int64 `json:"calendar"`
	}
	if err := json.Unmarshal(text, &stored); err != nil {
		return err
	}
	l.Spec, l.Ledger, l.Calendar = stored.Spec, partition.NewLedger(stored.Spec), stored.Calendar
	return l.Ledger.UnmarshalJSON(stored.Ledger)
}

// Ledgers are those of a queue's shared limits, or of a budget, which are stored together.
type Ledgers struct {
	Of map[string]*Ledger `json:"limits"` // by limit

	// Ahead is by how much the clock of the ledgers, which is that of the first partition, is ahead of those of some other
	// partitions, µs. A worker that starts while the node of the first one is away computes the time from these.
	Ahead map[string]int64 `json:"ahead,omitempty"`
}

// ReadLedgers reads ledgers that are stored together. There are none in an empty text.
func ReadLedgers(stored string) (all Ledgers, err error) {
	if stored != "" {
		err = json.Unmarshal([]byte(stored), &all)
	}
	if stored == "" {
		all.Of = map[string]*Ledger{}
	} else if err == nil && all.Of == nil {
		err = errors.New("it has no limits") // not even none, so it is something else
	}
	if err != nil {
		return Ledgers{}, fmt.Errorf("read the ledger of the shared limits: %w", err)
	}
	return all, nil
}
