package api

import (
	"cmp"
	"slices"
	"strings"

	"github.com/headgate/headgate/queue/workers"
)

type workerJSON struct {
	ID          string   `json:"id"`
	Host        string   `json:"host"`
	PID         int      `json:"pid"`
	Version     string   `json:"version"`
	Started     moment   `json:"started"`
	Seen        moment   `json:"seen"`
	Queues      []string `json:"queues"`
	Kinds       []string `json:"kinds"`
	Concurrency int      `json:"concurrency"`
	Held        int      `json:"held"`
	Sending     int      `json:"sending"`

	Starved    map[string]float64 `json:"starved,omitempty"` // by queue: share of the time without room for jobs that could go
	LimitsFile *limitsFileJSON    `json:"limits_file,omitempty"`
}

// limitsFileJSON is the state of a worker's limits file.
type limitsFileJSON struct {
	Path  string `json:"path"`
	Error string `json:"error,omitempty"` // why it is not in effect
}

func (a *API) workers(r *request) (answer, error) {
	alive, details, err := a.workerDetails(r)
	all := []workerJSON{}
	for i, w := range alive {
		one := workerJSON{
			w.ID, w.Host, w.PID, w.Version, moment{w.Started}, moment{w.Seen}, list(w.Queues), list(w.Kinds), w.Concurrency, w.Held, w.Sending, w.Starved, nil,
		}
		if f := details[i].LimitsFile; f != nil {
			one.LimitsFile = &limitsFileJSON{f.Path, f.Error}
		}
		all = append(all, one)
	}
	return answer{body: map[string]any{"workers": all, "starved": workers.Starved(alive)}}, err
}

// workerDetails returns the workers that are alive, each with its details, which are zero for other programs.
func (a *API) workerDetails(r *request) ([]workers.Info, []WorkerDetails, error) {
	alive, err := workers.List(r.Context(), a.config.Redis)
	all := make([]WorkerDetails, len(alive))
	for i, w := range alive {
		all[i], _ = ReadWorkerDetails(w)
	}
	return alive, all, err
}

type breakerJSON struct {
	Opened uint64 `json:"opened"`
}

// quotaJSON is what a provider said of a limit of its own, and beside it the limits of queues that stand for it.
type quotaJSON struct {
	Account   string  `json:"account"`
	Name      string  `json:"name"`
	Limit     int64   `json:"limit,omitempty"`
	Window    float64 `json:"window_seconds,omitempty"`
	Remaining *int64  `json:"remaining,omitempty"`
	ResetsAt  *moment `json:"resets_at,omitempty"`
	SaidAt    *moment `json:"said_at,omitempty"`

	Limits []levelJSON `json:"limits,omitzero"` // nil: they could not be read

	limitName string // see Quota
}

type providerJSON struct {
	Kind    string       `json:"kind"`
	Workers int          `json:"workers"` // workers that make its calls
	Breaker *breakerJSON `json:"breaker,omitempty"`
	Quotas  []quotaJSON  `json:"quotas"`

	queues map[string]bool // of the workers that make its calls
}

// providers combines what workers report about their providers.
func (a *API) providers(r *request) (answer, error) {
	alive, all, err := a.workerDetails(r)
	if err != nil {
		return answer{}, err
	}
	kinds := map[string]*providerJSON{}
	for i, worker := range all {
		for _, p := range worker.Providers {
			sum := kinds[p.Kind]
			if sum == nil {
				sum = &providerJSON{Kind: p.Kind, Quotas: []quotaJSON{}, queues: map[string]bool{}}
				kinds[p.Kind] = sum
			}
			sum.Workers++
			for _, queue := range alive[i].Queues {
				sum.queues[queue] = true
			}
			sum.addBreaker(p.Breaker)
			for _, q := range p.Quotas {
				sum.addQuota(q)
			}
		}
	}
	out := []providerJSON{}
	for _, p := range kinds {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(x, y providerJSON) int { return strings.Compare(x.Kind, y.Kind) })
	a.addLevels(r.Context(), out)
	return answer{body: map[string]any{"providers": out}}, nil
}

func (p *providerJSON) addBreaker(b *BreakerDetails) {
	if b == nil {
		return
	}
	if p.Breaker == nil {
		p.Breaker = &breakerJSON{}
	}
	p.Breaker.Opened += b.Opened
}

// addQuota keeps, of all reports of one quota, what the provider said last; of workers that do not say when that was,
// the one with the fewest remaining.
func (p *providerJSON) addQuota(q Quota) {
	one := quotaJSON{
		Account: q.Account, Name: q.Name, Limit: q.Limit, Window: q.WindowSeconds, Remaining: q.Remaining, ResetsAt: at(q.ResetsAt), SaidAt: at(q.SaidAt),
		limitName: q.LimitName,
	}
	i := slices.IndexFunc(p.Quotas, func(known quotaJSON) bool { return known.Account == q.Account && known.Name == q.Name })
	switch {
	case i < 0:
		p.Quotas = append(p.Quotas, one)
	case one.SaidAt != nil:
		if known := p.Quotas[i].SaidAt; known == nil || one.SaidAt.After(known.Time) {
			p.Quotas[i] = one
		}
	case p.Quotas[i].SaidAt != nil:
	case one.Remaining != nil && (p.Quotas[i].Remaining == nil || *one.Remaining < *p.Quotas[i].Remaining):
		p.Quotas[i] = one
	}
}

type reloadJSON struct {
	Worker string  `json:"worker"`
	Path   string  `json:"path"`
	At     *moment `json:"at,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// reload serves the state of each worker's limits file.
func (a *API) reload(r *request) (answer, error) {
	workers, all, err := a.workerDetails(r)
	files := []reloadJSON{}
	for i, worker := range all {
		if f := worker.LimitsFile; f != nil {
			files = append(files, reloadJSON{cmp.Or(workers[i].Host, workers[i].ID), f.Path, at(f.At), f.Error})
		}
	}
	return answer{body: map[string]any{"files": files}}, err
}
