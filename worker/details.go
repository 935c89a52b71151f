package worker

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/breaker"
	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/dashboard/metrics"
	"github.com/headgate/headgate/queue/limitsfile"
	"github.com/headgate/headgate/queue/workers"
)

// Details are what a worker reports about its providers and its limits file, for the
// dashboard and for metrics.
type Details struct {
	metrics *metrics.Metrics // nil: no metrics

	mu        sync.Mutex
	providers []func() api.ProviderDetails
	quotas    map[string][]func() []api.Quota // by kind
	file      func() *api.LimitsFileDetails
	private   bool
}

// NewDetails returns empty details. A program has details already; metrics can be nil.
func NewDetails(metrics *metrics.Metrics) *Details {
	return &Details{metrics: metrics, quotas: map[string][]func() []api.Quota{}}
}

// The details of a worker have little room (workers.MaxDetails), and others choose the names
// of hosts and tenants.
const (
	maxQuotas = 20 // of a kind
	maxError  = 1000
)

// AddQuotas shows the quotas of a kind's accounts, as read returns them.
func (d *Details) AddQuotas(kind string, read func() []api.Quota) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.quotas[kind] = append(d.quotas[kind], read)
}

// AddProvider shows the provider of a kind with its circuit breaker, which may be nil.
func (d *Details) AddProvider(kind string, failures *breaker.Breaker) {
	if d.metrics != nil {
		d.metrics.Breakers(kind, failures.Opened)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.providers = append(d.providers, func() api.ProviderDetails {
		p := api.ProviderDetails{Kind: kind}
		for _, quotas := range d.quotas[kind] {
			p.Quotas = append(p.Quotas, quotas()...)
		}
		p.Quotas = p.Quotas[:min(len(p.Quotas), maxQuotas)]
		if failures != nil {
			p.Breaker = &api.BreakerDetails{Opened: failures.Opened()}
		}
		return p
	})
}

// AllowPrivate reports that the worker calls webhooks at private addresses, so that producers
// are not warned.
func (d *Details) AllowPrivate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.private = true
}

// limitsFile shows the state of the limits file: why it is not in effect, because of a mistake
// in it or because others have published other limits.
func (d *Details) limitsFile(path string, watcher *limitsfile.Watcher, others *drift) {
	last := func() (at time.Time, err error) {
		if at, err = watcher.Last(); err == nil {
			err = others.Err()
		}
		return at, err
	}
	d.metrics.LimitsFile(func() error { _, err := last(); return err })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.file = func() *api.LimitsFileDetails {
		at, err := last()
		file := &api.LimitsFileDetails{Path: clients.Printable(path, maxError), At: at.UTC()}
		if err != nil {
			file.Error = clients.Printable(err.Error(), maxError)
		}
		return file
	}
}

// Read returns the details, for [queue.Config].
func (d *Details) Read() any {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := api.WorkerDetails{AllowPrivate: d.private}
	for _, provider := range d.providers {
		all.Providers = append(all.Providers, provider())
	}
	if d.file != nil {
		all.LimitsFile = d.file()
	}
	for more := true; more && tooLarge(all); {
		more = false
		for i, p := range all.Providers {
			all.Providers[i].Quotas = p.Quotas[:len(p.Quotas)/2]
			more = more || len(p.Quotas) > 0
		}
	}
	return all // still too large with hundreds of providers: the worker reports none then
}

// tooLarge reports whether the details are too large to be reported.
func tooLarge(all api.WorkerDetails) bool {
	text, err := json.Marshal(all)
	return err == nil && len(text) > workers.MaxDetails
}
