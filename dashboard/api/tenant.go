package api

import (
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/operate"
)

// limitJSON is a limit with the state of its bucket.
type limitJSON struct {
	ruleJSON
	Scope       string  `json:"scope"`
	Level       float64 `json:"level"`
	Full        float64 `json:"full"` // permits when full
	Next        *moment `json:"next,omitempty"`
	Binding     bool    `json:"binding"`
	PausedUntil *moment `json:"paused_until,omitempty"`
	Adapted     float64 `json:"adapted"`
	LoweredBy   string  `json:"lowered_by,omitempty"` // "quota" or "refusals"

	Ramp *rampJSON `json:"ramp,omitempty"`
}

type rampJSON struct {
	Rate     string  `json:"rate"`
	From     string  `json:"from"`
	To       string  `json:"to"`
	Since    *moment `json:"since,omitempty"`
	Until    *moment `json:"until,omitempty"`
	Rejected float64 `json:"rejected"`
	Held     bool    `json:"held"`
}

func rampOf(s *inspect.RampState) *rampJSON {
	if s == nil {
		return nil
	}
	return &rampJSON{s.Rate, s.From, s.To, at(s.Since), at(s.Until), s.Rejected, s.Held}
}

type tenantJSON struct {
	rowJSON
	Limits      []limitJSON `json:"limits"`
	Slots       []moment    `json:"slots"`
	WindowOpens *moment     `json:"window_opens,omitempty"`
	Recent      []eventJSON `json:"recent"`
}

func (a *API) tenant(r *request) (answer, error) {
	name, tenant := r.PathValue("q"), r.PathValue("t")
	d, err := a.inspector.Tenant(r.Context(), name, tenant)
	if err != nil {
		return answer{}, err
	}
	files, err := a.filedFor(r.Context(), name, tenant)
	if err != nil {
		return answer{}, err
	}
	out := tenantJSON{rowJSON: r.rowOf(d.TenantRow), Limits: []limitJSON{}, Slots: []moment{}, WindowOpens: at(d.WindowOpens), Recent: []eventJSON{}}
	for _, l := range d.Limits {
		rule := ruleOf(l.Effective)
		rule.File = files[l.Name]
		out.Limits = append(out.Limits, limitJSON{rule, l.Scope, l.Level, l.Capacity, at(l.Next), l.Binding, at(l.PausedUntil), l.Adapted, string(l.Lowered), rampOf(l.Ramp)})
	}
	for _, slot := range d.Slots {
		out.Slots = append(out.Slots, moment{slot})
	}
	for _, e := range d.Recent {
		if r.caller.mayKind(e.Kind) {
			out.Recent = append(out.Recent, eventOf(e))
		}
	}
	return answer{body: out}, nil
}

// changedJSON is the effect of a change of a limit on a tenant's backlog.
type changedJSON struct {
	Before  outlookJSON `json:"before"`
	After   outlookJSON `json:"after"`
	Applied bool        `json:"applied"`
}

// setLimit overrides a limit for a tenant or, in a dry run, previews the effect.
func (a *API) setLimit(r *request) (answer, error) {
	body, err := decode[limitBody](r)
	name, tenant, limit := r.PathValue("q"), r.PathValue("t"), r.PathValue("limit")
	change, rateErr := body.change()
	end, endErr := body.moment()
	if !end.IsZero() && !end.After(time.Now()) {
		endErr = invalid("until", "%s has passed", end.UTC().Format(time.RFC3339))
	}
	by := r.by(body.Reason)
	var byErr error
	if !body.DryRun {
		byErr = by.Check()
	}
	if err := together(err, rateErr, endErr, byErr); err != nil {
		return answer{}, err
	}
	if !body.DryRun {
		if p := a.mayNotChange(); p != nil {
			return answer{}, p
		}
	}
	p, err := a.inspector.Preview(r.Context(), name, tenant, limit, change)
	if err != nil {
		return answer{}, changeProblem(err)
	}
	out := changedJSON{outlookOf(p.Before), outlookOf(p.After), !body.DryRun}
	if body.DryRun {
		return answer{body: out}, nil
	}
	err = operate.SetOverride(r.Context(), a.config.Redis, name, tenant, limit, operate.Override{
		Change: change, Until: end, Reason: by.Reason, Actor: by.Actor, Log: by.Log, Lower: !r.caller.key.may(Admin),
	})
	return answer{body: out}, changeProblem(unsure(err))
}
