package api

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/workers"
)

// WorkerDetails is what the program worker reports in [workers.Info].Details, in addition
// to what every [queue.Worker] reports.
type WorkerDetails struct {
	Providers  []ProviderDetails  `json:"providers,omitempty"` // by kind
	LimitsFile *LimitsFileDetails `json:"limits_file,omitempty"`

	// AllowPrivate reports that the worker calls webhooks at private and loopback addresses.
	AllowPrivate bool `json:"webhook_allow_private,omitempty"`
}

// ProviderDetails is what one worker knows of the provider of a kind.
type ProviderDetails struct {
	Kind    string          `json:"kind"`
	Breaker *BreakerDetails `json:"breaker,omitempty"` // nil: no breaker
	Quotas  []Quota         `json:"quotas,omitempty"`  // from the latest responses
}

// BreakerDetails counts how often the worker held back a provider or a receiver after
// repeated failures. Current holds are among the pauses of the queue.
type BreakerDetails struct {
	Opened uint64 `json:"opened"`
}

// Quota is a limit of an account at its provider.
type Quota struct {
	Account   string    `json:"account"` // the tenant that owns the account; "": the worker's own
	Name      string    `json:"name"`
	Limit     int64     `json:"limit,omitempty"`     // 0: unknown
	Remaining *int64    `json:"remaining,omitempty"` // nil: unknown
	ResetsAt  time.Time `json:"resets_at,omitzero"`
	SaidAt    time.Time `json:"said_at,omitzero"` // zero: unknown

	// WindowSeconds is the time for which Limit is; 0: unknown.
	WindowSeconds float64 `json:"window_seconds,omitempty"`

	// LimitName is the limit that the worker sets to this quota. "": adaptive limits of the
	// unit that Name counts follow it.
	LimitName string `json:"limit_name,omitempty"`
}

// LimitsFileDetails is the state of a worker's limits file.
type LimitsFileDetails struct {
	Path  string    `json:"path"`
	At    time.Time `json:"at,omitzero"`     // when it was last put in force or rejected; zero: never
	Error string    `json:"error,omitempty"` // why the current file is not in force; "": it is
}

// PrivateWarning returns a warning for a webhook to a private address, if the workers are known
// to call none; "" if a worker does, or if that is not known.
func PrivateWarning(ctx context.Context, client redis.UniversalClient, host string) string {
	list, err := workers.List(ctx, client)
	if err != nil {
		return ""
	}
	serve := false
	for _, worker := range list {
		if !slices.Contains(worker.Kinds, "webhook") {
			continue
		}
		details, err := ReadWorkerDetails(worker)
		if err != nil || details.AllowPrivate || len(details.Providers) == 0 {
			return "" // it allows them, or it is a program with a handler of its own
		}
		serve = true
	}
	if !serve {
		return ""
	}
	return fmt.Sprintf("%s is not a public internet address: the job is held until the workers run with HEADGATE_WEBHOOK_ALLOW_PRIVATE=true", host)
}

// ReadWorkerDetails decodes the details of a worker. It returns the zero value for programs
// that report none, ignores unknown fields, and fails if known fields have other types.
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
