package api

import (
	"cmp"
	"context"
	"fmt"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
)

// ruleJSON is a limit in force.
type ruleJSON struct {
	Name        string   `json:"name"`
	Per         []string `json:"per"`
	Unit        string   `json:"unit,omitempty"`
	Queues      []string `json:"queues,omitempty"` // of a budget
	For         string   `json:"for,omitempty"`    // "jobs" or "direct"; omitted: both
	Algorithm   string   `json:"algorithm"`
	Rule        string   `json:"rule"` // "10/s", "3 at a time"
	Burst       int64    `json:"burst,omitempty"`
	Capacity    int64    `json:"capacity,omitempty"`
	Concurrency int64    `json:"concurrency,omitempty"`
	Grows       string   `json:"grows,omitempty"` // "from 50/day over 30d"

	From   string   `json:"from"`            // "queue", "tenant" or "override"
	Until  *moment  `json:"until,omitempty"` // of an override; omitted: until cleared
	Actor  string   `json:"actor,omitempty"`
	Reason string   `json:"reason,omitempty"`
	File   *asFiled `json:"file,omitempty"` // of an override: the limit without it

	NotInForce string `json:"not_in_force,omitempty"` // the tenant's override that does not fit its limit, and why
}

// asFiled is a limit in the limits file.
type asFiled struct {
	Rule        string `json:"rule"`
	Burst       int64  `json:"burst,omitempty"`
	Capacity    int64  `json:"capacity,omitempty"`
	Concurrency int64  `json:"concurrency,omitempty"`
}

func ruleText(f limits.Effective) string {
	switch {
	case f.Rate == "" && f.Concurrency == 0: // the limit no longer exists
		return "none"
	case f.Rate == "":
		return fmt.Sprintf("%d at a time", f.Concurrency)
	}
	return f.Rate
}

func ruleOf(f limits.Effective) ruleJSON {
	grows := ""
	if f.Ramp != nil {
		grows = f.Ramp.String()
	}
	return ruleJSON{
		Name: f.Name, Per: list(f.Per), Unit: f.Unit, Queues: f.Queues, For: string(f.For), Algorithm: string(f.Algorithm), Rule: ruleText(f), Burst: f.Burst, Capacity: f.Capacity,
		Concurrency: f.Concurrency, Grows: grows, From: f.From, Until: at(f.Until), Actor: f.Actor, Reason: f.Reason, NotInForce: f.NotInEffect,
	}
}

func filed(f limits.Effective) *asFiled {
	return &asFiled{ruleText(f), f.Burst, f.Capacity, f.Concurrency}
}

type overriddenJSON struct {
	Tenant string `json:"tenant"`
	ruleJSON
}

// limits serves the published limits of a queue and the overrides of operators.
func (a *API) limits(r *request) (answer, error) {
	name := r.PathValue("q")
	all, err := inspect.LimitsInForce(r.Context(), a.config.Redis, name, "")
	if err != nil {
		return answer{}, err
	}
	published, err := inspect.Published(r.Context(), a.config.Redis, name)
	if err != nil {
		return answer{}, err
	}
	overrides, err := inspect.Overrides(r.Context(), a.config.Redis, name, r.caller.key.Tenants...)
	if err != nil {
		return answer{}, err
	}
	out := struct {
		Limits          []ruleJSON        `json:"limits"`
		Kinds           []string          `json:"kinds"`
		MaxBacklog      int64             `json:"max_backlog,omitempty"`
		MaxBacklogBytes int64             `json:"max_backlog_bytes,omitempty"`
		MaxQueue        int64             `json:"max_queue,omitempty"`
		MaxQueueBytes   int64             `json:"max_queue_bytes,omitempty"`
		MaxRetention    float64           `json:"max_retention_seconds,omitempty"`
		Durability      limits.Durability `json:"durability"`
		Conformance     bool              `json:"conformance"`
		SendWindows     map[string]string `json:"send_windows"`
		Overrides       []overriddenJSON  `json:"overrides"`
	}{[]ruleJSON{}, list(published.Kinds), published.MaxBacklog, published.MaxBacklogBytes, published.MaxQueue, published.MaxQueueBytes, published.MaxRetention.Seconds(), cmp.Or(published.Durability, limits.Primary), published.Conformance, map[string]string{}, []overriddenJSON{}}
	for _, f := range all {
		out.Limits = append(out.Limits, ruleOf(f))
	}
	for kind, window := range published.SendWindows {
		out.SendWindows[kind] = window.String()
	}
	for _, o := range overrides {
		rule := ruleOf(o.Effective)
		rule.File = filed(o.File)
		out.Overrides = append(out.Overrides, overriddenJSON{o.Tenant, rule})
	}
	return answer{body: out}, nil
}

// filedFor returns, by name, the limits file's versions of the limits that are overridden for
// a tenant.
func (a *API) filedFor(ctx context.Context, name, tenant string) (map[string]*asFiled, error) {
	overrides, err := inspect.Overrides(ctx, a.config.Redis, name, tenant)
	files := map[string]*asFiled{}
	for _, o := range overrides {
		files[o.Name] = filed(o.File)
	}
	return files, err
}
