package dashboard

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate/headgate/queue"
)

// WorkerDetails is what the program worker tells of itself beside what every
// [queue.Worker] tells: the Details of its [queue.WorkerInfo].
type WorkerDetails struct {
	Providers  []ProviderDetails  `json:"providers,omitempty"` // by kind
	LimitsFile *LimitsFileDetails `json:"limits_file,omitempty"`
}

// ProviderDetails is what one worker knows of those that take the calls of a kind.
type ProviderDetails struct {
	Kind    string          `json:"kind"`
	Breaker *BreakerDetails `json:"breaker,omitempty"` // nil: calls are watched by none
	Quotas  []Quota         `json:"quotas,omitempty"`  // as answers told them last
}

// BreakerDetails is [BreakerStats] with some of the providers or receivers that
// are down.
type BreakerDetails struct {
	Down    int           `json:"down"`
	Opened  uint64        `json:"opened"`
	Refused uint64        `json:"refused"`
	Hosts   []HostDetails `json:"hosts,omitempty"`
}

// HostDetails is a provider or a receiver that is down. Key is a stranger's text.
type HostDetails struct {
	Key   string    `json:"key"`
	State string    `json:"state"` // open or half-open
	Until time.Time `json:"until"` // when it may be tried
}

// Quota is a limit of an account at its provider.
type Quota struct {
	Account   string    `json:"account"` // the tenant whose account it is; "" the worker's own
	Name      string    `json:"name"`
	Limit     int64     `json:"limit,omitempty"`     // 0: not known
	Remaining *int64    `json:"remaining,omitempty"` // nil: not known
	ResetsAt  time.Time `json:"resets_at,omitzero"`
}

// LimitsFileDetails is how the limits file stands.
type LimitsFileDetails struct {
	Path  string    `json:"path"`
	At    time.Time `json:"at,omitzero"`     // when it was last put in force or refused; zero: not yet
	Error string    `json:"error,omitempty"` // why it is not in force as it stands; "": it is
}

// ReadWorkerDetails reads the details of a worker. Those of a program that tells
// none are zero, and so is what another program tells and is not called so here.
// The error says that they are not such as WorkerDetails can hold.
func ReadWorkerDetails(worker queue.WorkerInfo) (WorkerDetails, error) {
	details := WorkerDetails{}
	if len(worker.Details) == 0 {
		return details, nil
	}
	if err := json.Unmarshal(worker.Details, &details); err != nil {
		return WorkerDetails{}, fmt.Errorf("details of worker %.40q: %w", worker.ID, err)
	}
	return details, nil
}
