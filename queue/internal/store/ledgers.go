package store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/partition"
)

// LedgerKept is how long a ledger is kept that may be of no use any more: longer than any window of a quota. What was used
// of it is used, also by a queue or a budget of the same name that comes after.
const LedgerKept = 400 * 24 * time.Hour

// Ledger is the ledger of a limit, as it is stored beside others.
type Ledger struct {
	Spec   limitlua.Spec
	Ledger *partition.Ledger

	Calendar []int64 `json:"-"` // see [partition.Ask]
}

// UnmarshalJSON reads what encoding/json wrote.
func (l *Ledger) UnmarshalJSON(text []byte) error {
	var stored struct {
		Spec   limitlua.Spec
		Ledger json.RawMessage
	}
	if err := json.Unmarshal(text, &stored); err != nil {
		return err
	}
	l.Spec, l.Ledger = stored.Spec, partition.NewLedger(stored.Spec)
	return l.Ledger.UnmarshalJSON(stored.Ledger)
}

// ReadLedgers reads ledgers that are stored together, by limit. There are none in an empty text.
func ReadLedgers(stored string) (ledgers map[string]*Ledger, err error) {
	ledgers = map[string]*Ledger{}
	if stored != "" {
		err = json.Unmarshal([]byte(stored), &ledgers)
	}
	if err != nil {
		return nil, fmt.Errorf("read the ledger of the shared limits: %w", err)
	}
	return ledgers, nil
}
