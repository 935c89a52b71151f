package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/fanout"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/validation"
)

// overviewJSON is the current state of a queue. For keys of single tenants it covers only
// these, and omits figures of the queue as a whole.
type overviewJSON struct {
	Queue       string                     `json:"queue"`
	Now         moment                     `json:"now"`
	Waiting     int64                      `json:"waiting"`
	Scheduled   *int64                     `json:"scheduled,omitempty"`
	Retry       *int64                     `json:"retry,omitempty"`
	Pending     *int64                     `json:"pending,omitempty"`
	Active      *int64                     `json:"active,omitempty"`
	Archived    *int64                     `json:"archived,omitempty"`
	Enqueued    *int64                     `json:"enqueued,omitempty"`
	Stored      *int64                     `json:"stored,omitempty"`
	StoredBytes *int64                     `json:"stored_bytes,omitempty"`
	Tenants     int64                      `json:"tenants"`
	Allowed     float64                    `json:"allowed_per_second"`
	DrainsAt    *moment                    `json:"drains_at,omitempty"`
	Confidence  string                     `json:"confidence"`
	Top         *outlookJSON               `json:"top,omitempty"`
	Pauses      []pauseJSON                `json:"pauses"`
	Answers     map[lifecycle.Answer]int64 `json:"answers,omitzero"` // calls in total, by answer
	Calls       *int64                     `json:"calls,omitempty"`
	Faults      []faultJSON                `json:"faults,omitzero"`
	Unserved    []string                   `json:"unserved,omitempty"` // why no worker takes its jobs, or some of them
	Moving      string                     `json:"moving,omitempty"`   // from how many to how many partitions tenants move
}

// faultJSON is a record in Redis that the queue's scripts could not read.
type faultJSON struct {
	What   string  `json:"what"`
	Reason string  `json:"reason"`
	At     *moment `json:"at,omitempty"`
}

func overviewOf(o inspect.Overview) overviewJSON {
	out := overviewJSON{
		Queue: o.Queue, Now: moment{o.Now}, Waiting: o.Waiting, Scheduled: &o.Scheduled, Retry: &o.Retry, Pending: &o.Pending,
		Active: &o.Active, Archived: &o.Archived, Enqueued: &o.Enqueued, Stored: &o.Stored, StoredBytes: &o.StoredBytes, Tenants: o.Tenants, Allowed: o.Allowed,
		DrainsAt: at(o.DrainsAt), Confidence: string(o.Confidence), Pauses: []pauseJSON{},
		Answers: o.Answers, Calls: &o.Calls, Faults: []faultJSON{},
	}
	for _, u := range o.Unserved {
		out.Unserved = append(out.Unserved, u.String())
	}
	if o.Moving != nil {
		out.Moving = o.Moving.String()
	}
	if o.Top != nil {
		out.Top = new(outlookOf(*o.Top))
	}
	for _, p := range o.Pauses {
		out.Pauses = append(out.Pauses, pauseOf(p))
	}
	for _, f := range o.Faults {
		out.Faults = append(out.Faults, faultJSON{f.What, f.Reason, at(f.At)})
	}
	return out
}

// overviewFor returns the state of a queue as far as a caller may see it.
func (a *API) overviewFor(ctx context.Context, by caller, name string) (overviewJSON, error) {
	if by.all() {
		o, err := a.inspector.Overview(ctx, name)
		return overviewOf(o), err
	}
	out := overviewJSON{Queue: name, Now: moment{time.Now()}, Confidence: string(inspect.Steady), Pauses: []pauseJSON{}}
	pauses, err := inspect.Pauses(ctx, a.config.Redis, name)
	if err != nil {
		return out, err
	}
	out.Pauses = pausesOf(pauses, by.mayTenant)
	unknown := false
	var last *inspect.Outlook
	for _, tenant := range by.key.Tenants {
		o, err := a.inspector.Outlook(ctx, name, tenant)
		if err != nil {
			return out, err
		}
		out.Now = moment{o.Now}
		if o.Waiting == 0 {
			continue
		}
		out.Waiting += o.Waiting
		out.Tenants++
		out.Allowed += o.Rate
		unknown = unknown || o.DrainsAt.IsZero()
		if last == nil || o.DrainsAt.After(last.DrainsAt) {
			last = &o
		}
	}
	if last != nil {
		out.Top, out.Confidence = new(outlookOf(*last)), string(last.Confidence)
		if out.DrainsAt = at(last.DrainsAt); unknown {
			out.DrainsAt, out.Confidence = nil, string(inspect.NoForecast)
		}
	}
	return out, nil
}

// overviewsFor returns the states of queues as far as a caller may see them. Of one that cannot be read, as
// one whose node of a Redis Cluster is away, it returns the state before, if it is there, and says why. The
// error is that of all, if none can be read.
func (a *API) overviewsFor(ctx context.Context, by caller, names []string, before []overviewJSON) ([]overviewJSON, error) {
	read, errs := fanout.Ask(ctx, queuePatience, names, func(ctx context.Context, name string) (overviewJSON, error) {
		return a.overviewFor(ctx, by, name)
	})
	all, answered := []overviewJSON{}, len(names) == 0
	for i, name := range names {
		if errs[i] == nil {
			all, answered = append(all, read[i]), true
			continue
		}
		if errors.Is(errs[i], validation.ErrNotFound) {
			continue
		}
		o := overviewJSON{Queue: name, Now: moment{time.Now()}, Confidence: string(inspect.NoForecast), Pauses: []pauseJSON{}}
		if at := slices.IndexFunc(before, func(o overviewJSON) bool { return o.Queue == name }); at >= 0 {
			o = before[at]
		}
		if o.Unserved = []string{problemOf(errs[i]).Detail}; away(errs[i]) {
			o.Unserved = []string{inspect.Unserved{Queue: name, Away: 1, Of: 1}.String()}
		}
		all = append(all, o)
	}
	if !answered {
		return nil, errs[0]
	}
	return all, nil
}

func (a *API) queues(r *request) (answer, error) {
	names, err := inspect.Queues(r.Context(), a.config.Redis)
	if err != nil {
		return answer{}, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !r.caller.mayQueue(name) })
	all, err := a.overviewsFor(r.Context(), r.caller, names, nil)
	return answer{body: map[string]any{"queues": all}}, err
}

func (a *API) oneQueue(r *request) (answer, error) {
	if err := a.thereIs(r); err != nil {
		return answer{}, err
	}
	o, err := a.overviewFor(r.Context(), r.caller, r.PathValue("q"))
	return answer{body: o}, err
}

// thereIs returns an error if the queue does not exist.
func (a *API) thereIs(r *request) error {
	names, err := inspect.Queues(r.Context(), a.config.Redis)
	if err == nil && !slices.Contains(names, r.PathValue("q")) {
		err = newProblem(http.StatusNotFound, codeNotFound, "There is no queue %.70q%s", r.PathValue("q"), check.Suggest(r.PathValue("q"), names))
	}
	return err
}

type rowJSON struct {
	outlookJSON
	Done        int64       `json:"done"`
	Stored      int64       `json:"stored"`
	StoredBytes int64       `json:"stored_bytes"`
	Weight      float64     `json:"weight"`
	Limit       string      `json:"limit"`
	Level       float64     `json:"level"`
	Capacity    float64     `json:"capacity"`
	Pauses      []pauseJSON `json:"pauses"`
	Overridden  bool        `json:"overridden"`

	// Own is what was published for this tenant alone.
	Own map[string]string `json:"own,omitempty"`
}

func (r *request) rowOf(t inspect.TenantRow) rowJSON {
	return rowJSON{outlookOf(t.Outlook), t.Done, t.Stored, t.StoredBytes, t.Weight, t.Limit, t.Level, t.Capacity, pausesOf(t.Pauses, r.caller.mayTenant), t.Overridden, t.Own}
}

// tenants lists all tenants, or only the caller's.
func (a *API) tenants(r *request) (answer, error) {
	query := inspect.TenantQuery{Search: r.param("search"), Only: inspect.TenantFilter(r.param("only")), Sort: inspect.TenantSort(r.param("sort"))}
	var orderErr, offsetErr, limitErr error
	switch order := r.param("order"); order {
	case "":
		query.Ascending = query.Sort == inspect.ByTenant
	case "asc", "desc":
		query.Ascending = order == "asc"
	default:
		orderErr = invalid("order", "%.40q is not asc or desc", order)
	}
	query.Offset, offsetErr = number(r, "offset", 0, 1<<30)
	query.Limit, limitErr = number(r, "limit", inspect.DefaultTenants, inspect.MaxTenants)
	if err := together(query.Check(), orderErr, offsetErr, limitErr); err != nil {
		return answer{}, err
	}
	page, err := a.tenantPage(r, query)
	if err != nil {
		return answer{}, err
	}
	rows := []rowJSON{}
	for _, t := range page.Tenants {
		rows = append(rows, r.rowOf(t))
	}
	return answer{body: map[string]any{"now": moment{page.Now}, "total": page.Total, "tenants": rows}}, nil
}

func (a *API) tenantPage(r *request, query inspect.TenantQuery) (inspect.TenantPage, error) {
	name := r.PathValue("q")
	if r.caller.all() {
		return a.inspector.ListTenants(r.Context(), name, query)
	}
	page := inspect.TenantPage{Now: time.Now()}
	for _, tenant := range r.caller.key.Tenants {
		if !strings.Contains(strings.ToLower(tenant), strings.ToLower(query.Search)) {
			continue
		}
		found, err := a.inspector.Tenant(r.Context(), name, tenant)
		if err != nil {
			return page, err
		}
		page.Now = found.Now
		if found.Is(query.Only) {
			page.Tenants = append(page.Tenants, found.TenantRow)
		}
	}
	slices.SortStableFunc(page.Tenants, func(x, y inspect.TenantRow) int {
		order := cmp.Compare(x.Waiting, y.Waiting)
		switch query.Sort {
		case inspect.ByTenant:
			order = strings.Compare(x.Tenant, y.Tenant)
		case inspect.ByWeight:
			order = cmp.Compare(x.Weight, y.Weight)
		case inspect.ByDrains:
			order = x.DrainsAt.Compare(y.DrainsAt)
		}
		if !query.Ascending {
			order = -order
		}
		return cmp.Or(order, strings.Compare(x.Tenant, y.Tenant))
	})
	page.Total = int64(len(page.Tenants))
	from := min(query.Offset, len(page.Tenants))
	page.Tenants = page.Tenants[from:min(from+query.Limit, len(page.Tenants))]
	return page, nil
}

func (a *API) estimate(r *request) (answer, error) {
	body, err := decode[estimateBody](r)
	if err != nil {
		return answer{}, err
	}
	batch, err := body.batch(r)
	if err != nil {
		return answer{}, err
	}
	if err := a.thereIs(r); err != nil {
		return answer{}, err
	}
	e, err := a.inspector.Estimate(r.Context(), r.PathValue("q"), batch)
	return answer{body: estimateOf(e)}, err
}
