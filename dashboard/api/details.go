package api

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate/headgate/queue/workers"
)

// WorkerDetails is what the program worker tells of itself beside what every
// [queue.Worker] tells: the Details of its [workers.WorkerInfo].
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

// BreakerDetails counts how often calls of the worker failed so often that a provider
// or a receiver was held back. What is held back now is among the pauses of the queue.
type BreakerDetails struct {
	Opened uint64 `json:"opened"`
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
func ReadWorkerDetails(worker workers.Info) (WorkerDetails, error) {
	details := WorkerDetails{}
	if len(worker.Details) == 0 {
		return details, nil
	}
	if err := json.Unmarshal(worker.Details, &details); err != nil {
		return WorkerDetails{}, fmt.Errorf("details of worker %.40q: %w", worker.ID, err)
	}
	return details, nil
}
