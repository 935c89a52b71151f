package main

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

// details is what this worker tells of its providers and its limits file: to
// metrics as numbers, and to the pages, which list workers, with names.
type details struct {
	metrics *metrics.Metrics // nil: the pages alone are told

	mu        sync.Mutex
	providers []func() api.ProviderDetails
	told      map[string][]func() []api.Quota // by kind
	file      func() *api.LimitsFileDetails
}

func newDetails(metrics *metrics.Metrics) *details {
	return &details{metrics: metrics, told: map[string][]func() []api.Quota{}}
}

// What a worker tells has little room (queue.MaxDetails), and hosts and tenants are
// strangers' choice.
const (
	maxTold    = 20 // quotas of a kind
	maxKeyText = 64
	maxError   = 1000
)

// quotas shows what read tells of the accounts of a kind.
func (d *details) quotas(kind string, read func() []api.Quota) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told[kind] = append(d.told[kind], read)
}

// add shows a kind with its breaker, which may be nil.
func (d *details) add(kind string, failures *breaker.Breaker) {
	if d.metrics != nil {
		d.metrics.Breakers(kind, failures.Opened)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.providers = append(d.providers, func() api.ProviderDetails {
		p := api.ProviderDetails{Kind: kind}
		for _, quotas := range d.told[kind] {
			p.Quotas = append(p.Quotas, quotas()...)
		}
		p.Quotas = p.Quotas[:min(len(p.Quotas), maxTold)]
		if failures != nil {
			p.Breaker = &api.BreakerDetails{Opened: failures.Opened()}
		}
		return p
	})
}

// limitsFile shows how the limits file stands.
func (d *details) limitsFile(path string, watcher *limitsfile.Watcher) {
	d.metrics.LimitsFile(watcher.Err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.file = func() *api.LimitsFileDetails {
		at, err := watcher.Last()
		file := &api.LimitsFileDetails{Path: clients.Printable(path, maxError)}
		if !at.IsZero() {
			file.At = at.UTC()
		}
		if err != nil {
			file.Error = clients.Printable(err.Error(), maxError)
		}
		return file
	}
}

// read is the Details of the worker's queue.Config.
func (d *details) read() any {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := api.WorkerDetails{}
	for _, provider := range d.providers {
		all.Providers = append(all.Providers, provider())
	}
	if d.file != nil {
		all.LimitsFile = d.file()
	}
	for tooLarge(all) {
		for i, p := range all.Providers {
			all.Providers[i].Quotas = p.Quotas[:len(p.Quotas)/2]
		}
	}
	return all
}

// tooLarge is whether a worker would leave its details out.
func tooLarge(all api.WorkerDetails) bool {
	text, err := json.Marshal(all)
	return err == nil && len(text) > workers.MaxDetails
}

// quotasOf is what a client knows of its account's limits, if it does.
func quotasOf(account string, client any) (all []api.Quota) {
	told, ok := client.(interface{ Quotas() []clients.Quota })
	if !ok {
		return nil
	}
	for _, q := range told.Quotas() {
		resets := time.Time{}
		if !q.ResetsAt.IsZero() {
			resets = q.ResetsAt.UTC()
		}
		all = append(all, api.Quota{
			Account: clients.Printable(account, maxKeyText), Name: clients.Printable(q.Name, maxKeyText), Limit: q.Limit, Remaining: q.Remaining, ResetsAt: resets,
		})
	}
	return all
}
