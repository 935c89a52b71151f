package api

import (
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

// rowJobJSON is a job in a list.
type rowJobJSON struct {
	ID       string  `json:"id"`
	Queue    string  `json:"queue"`
	Kind     string  `json:"kind"`
	Tenant   string  `json:"tenant"`
	State    string  `json:"state"`
	Outcome  string  `json:"outcome,omitempty"`
	Priority string  `json:"priority"`
	Attempt  int     `json:"attempt"`
	At       *moment `json:"at,omitempty"`
	Reason   string  `json:"reason,omitempty"`
}

// jobs lists jobs in one state.
func (a *API) jobs(r *request) (answer, error) {
	query := inspect.JobQuery{
		State: lifecycle.State(r.param("state")), Tenant: r.param("tenant"), Kind: r.param("kind"),
		Reason: r.param("reason"), Cursor: r.param("cursor"),
	}
	var err error
	if query.Group, err = readGroup([]byte(r.param("group"))); err != nil {
		return answer{}, err
	}
	if query.Limit, err = number(r, "limit", 50, 200); err != nil {
		return answer{}, err
	}
	if query.Tenant == "" && len(r.caller.key.Tenants) == 1 {
		query.Tenant = r.caller.key.Tenants[0]
	}
	if query.Tenant == "" {
		if p := wholeOnly(r); p != nil {
			return answer{}, p
		}
	} else if !r.caller.mayTenant(query.Tenant) {
		return answer{}, otherTenant(query.Tenant)
	}
	if query.Kind == "" && query.Group == nil && len(r.caller.key.Kinds) == 1 {
		query.Kind = r.caller.key.Kinds[0]
	}
	if kind := kindOf(query.Kind, query.Group); !r.caller.mayKind(kind) {
		return answer{}, otherKind(kind)
	}
	name := r.PathValue("q")
	page, err := a.inspector.ListJobs(r.Context(), name, query)
	if err != nil {
		return answer{}, err
	}
	out := struct {
		Jobs []rowJobJSON `json:"jobs"`
		Next string       `json:"next,omitempty"`
	}{[]rowJobJSON{}, page.Next}
	for _, j := range page.Jobs {
		out.Jobs = append(out.Jobs, rowJobJSON{
			j.ID, name, j.Kind, j.Tenant, string(j.State), string(j.Outcome), string(j.Priority), j.Attempt, at(j.At), j.Reason,
		})
	}
	return answer{body: out}, nil
}

// jobJSON is everything known about a job, except secrets.
type jobJSON struct {
	ID          string `json:"id"`
	Queue       string `json:"queue"`
	Kind        string `json:"kind"`
	Tenant      string `json:"tenant"`
	State       string `json:"state"`
	Outcome     string `json:"outcome,omitempty"`
	Attempt     int    `json:"attempt"`
	MaxAttempts int    `json:"max_attempts"`
	Error       string `json:"error,omitempty"`

	Progress *progressJSON `json:"progress,omitempty"`

	Since *moment `json:"since,omitempty"`
	Until *moment `json:"until,omitempty"`
	Now   moment  `json:"now"`

	Lane           string    `json:"lane,omitempty"`
	Position       *int64    `json:"position,omitempty"`
	TenantPosition *int64    `json:"tenant_position,omitempty"`
	Waiting        *int64    `json:"waiting,omitempty"`
	HeldBy         *holdJSON `json:"held_by,omitempty"`
	Full           *holdJSON `json:"full,omitempty"`
	stopJSON
	WindowOpens *moment `json:"window_opens,omitempty"`
	ExpectedAt  *moment `json:"expected_at,omitempty"`
	Confidence  string  `json:"confidence"`
	DrainsAt    *moment `json:"drains_at,omitempty"`
	Text        string  `json:"text"`

	Priority   string            `json:"priority"`
	Cost       int64             `json:"cost"`
	Costs      map[string]int64  `json:"costs,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	EnqueuedAt *moment           `json:"enqueued_at,omitempty"`
	Deadline   *moment           `json:"deadline,omitempty"`
	Retention  float64           `json:"retention_seconds"`

	Payload          any    `json:"payload"` // null: it cannot be shown
	PayloadBytes     int    `json:"payload_bytes"`
	PayloadTruncated bool   `json:"payload_truncated"`
	Result           any    `json:"result,omitempty"`
	Locked           string `json:"locked,omitempty"` // why payload and result cannot be decrypted

	Timeline []timelineJSON `json:"timeline"`
}

// progressJSON is how far a call in flight has come.
type progressJSON struct {
	Percent int    `json:"percent"`
	Text    string `json:"text"`
	At      moment `json:"at"`
}

type timelineJSON struct {
	At      moment  `json:"at"`
	What    string  `json:"what"`
	Attempt int     `json:"attempt,omitempty"`
	Limit   string  `json:"limit,omitempty"`
	Until   *moment `json:"until,omitempty"`
	Answer  string  `json:"answer,omitempty"`
	Detail  string  `json:"detail,omitempty"`
}

func (a *API) job(r *request) (answer, error) {
	if err := a.thereIs(r); err != nil {
		return answer{}, err
	}
	if _, err := a.ownJob(r); err != nil {
		return answer{}, err
	}
	d, err := a.inspector.Job(r.Context(), r.PathValue("q"), r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	payload, result := a.hide.Show(d.Payload), a.hide.Show(d.Result)
	out := jobJSON{
		ID: d.ID, Queue: d.Queue, Kind: d.Kind, Tenant: d.Tenant, State: string(d.State), Outcome: string(d.Outcome), Attempt: d.Attempt, MaxAttempts: d.MaxAttempts, Error: d.Error,
		Since: at(d.Since), Until: at(d.Until), Now: moment{d.Now}, Lane: d.Lane, HeldBy: holdOf(d.HeldBy), Full: holdOf(d.Full),
		WindowOpens: at(d.WindowOpens), ExpectedAt: at(d.At), Confidence: string(d.Confidence), DrainsAt: at(d.DrainsAt), Text: d.Explanation.String(),
		Priority: string(d.Priority), Cost: d.Cost, Costs: d.Costs, Attributes: d.Attributes, Headers: a.hide.Texts(d.Headers),
		EnqueuedAt: at(d.EnqueuedAt), Deadline: at(d.Deadline), Retention: d.Retention.Seconds(),
		Payload: payload.Value, PayloadBytes: payload.Bytes, PayloadTruncated: payload.Truncated, Result: result.Value, Locked: d.Locked, Timeline: []timelineJSON{},
	}
	if d.State == lifecycle.StateWaiting {
		out.Position, out.TenantPosition, out.Waiting = &d.Position, &d.TenantPosition, &d.Waiting
	}
	if d.Progress != nil {
		out.Progress = &progressJSON{d.Progress.Percent, d.Progress.Text, moment{d.Progress.At}}
	}
	out.stopJSON = stopOf(d.Pause, d.Unserved)
	for _, e := range d.Timeline {
		out.Timeline = append(out.Timeline, timelineJSON{moment{e.At}, string(e.What), e.Attempt, e.Limit, at(e.Until), string(e.Answer), e.Detail})
	}
	return answer{body: out}, nil
}

type failureJSON struct {
	Outcome string  `json:"outcome"`
	Reason  string  `json:"reason"`
	Kind    string  `json:"kind"`
	Jobs    int64   `json:"jobs"`
	Tenants int     `json:"tenants"`
	Newest  moment  `json:"newest"`
	Example string  `json:"example"`
	Job     string  `json:"job"` // id of the newest
	Hours   []int64 `json:"hours"`
}

// failures groups archived jobs by reason.
func (a *API) failures(r *request) (answer, error) {
	groups, err := a.inspector.Failures(r.Context(), r.PathValue("q"), r.param("tenant"))
	if err != nil {
		return answer{}, err
	}
	all, total := []failureJSON{}, int64(0)
	for _, g := range groups {
		total += g.Jobs
		all = append(all, failureJSON{string(g.Outcome), g.Reason, g.Kind, g.Jobs, g.Tenants, moment{g.Newest}, g.Example, g.ID, g.Hours[:]})
	}
	return answer{body: map[string]any{"groups": all, "total": total}}, nil
}
