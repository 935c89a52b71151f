package store

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/partition"
)

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

// ReadLedgers reads ledgers that are stored together, by limit, and their number; 0: there are none.
func ReadLedgers(stored string) (ledgers map[string]*Ledger, number uint64, err error) {
	ledgers = map[string]*Ledger{}
	first, all, _ := strings.Cut(stored, " ")
	number, _ = strconv.ParseUint(first, 10, 64)
	if all != "" {
		err = json.Unmarshal([]byte(all), &ledgers)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the ledger of the shared limits: %w", err)
	}
	return ledgers, number, nil
}
