package api

import (
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/operate"
)

// moment is a time that encodes as RFC 3339 in UTC with milliseconds.
type moment struct{ time.Time }

const momentLayout = "2006-01-02T15:04:05.000Z"

func (m moment) MarshalJSON() ([]byte, error) {
	return []byte(`"` + m.UTC().Format(momentLayout) + `"`), nil
}

// at returns a time for JSON, and nil, which is omitted, for the zero time.
func at(t time.Time) *moment {
	if t.IsZero() {
		return nil
	}
	return &moment{t}
}

// list returns items as a slice that is never null in JSON.
func list[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

type holdJSON struct {
	Limit string  `json:"limit"`
	Scope string  `json:"scope"`
	Rule  string  `json:"rule"`
	Next  *moment `json:"next,omitempty"`
}

func holdOf(h *inspect.Hold) *holdJSON {
	if h == nil {
		return nil
	}
	return &holdJSON{h.Limit, h.Scope, h.Rule, at(h.Next)}
}

type pauseJSON struct {
	Tenant   string  `json:"tenant,omitempty"`
	Kind     string  `json:"kind,omitempty"`
	Endpoint string  `json:"endpoint,omitempty"`
	Until    *moment `json:"until,omitempty"` // omitted: until resumed
	By       string  `json:"by"`
	Reason   string  `json:"reason"`
	Tried    bool    `json:"tried,omitempty"`
	Since    *moment `json:"since,omitempty"` // of a hold
	Probing  bool    `json:"probing,omitempty"`
}

func pauseOf(p inspect.Pause) pauseJSON {
	return pauseJSON{p.Tenant, p.Kind, p.Endpoint, at(p.Until), p.By, p.Reason, p.Tried, at(p.Since), p.Probing}
}

func pausesOf(all []inspect.Pause, may func(tenant string) bool) []pauseJSON {
	out := []pauseJSON{}
	for _, p := range all {
		if may(p.Tenant) || p.Tenant == "" && p.Endpoint == "" { // an endpoint can reveal other tenants' receivers
			out = append(out, pauseOf(p))
		}
	}
	return out
}

// stopJSON is why jobs do not go that no limit holds.
type stopJSON struct {
	Pause    *pauseJSON `json:"pause,omitempty"`
	Unserved string     `json:"unserved,omitempty"` // why no worker takes them
}

func stopOf(pause *inspect.Pause, unserved *inspect.Unserved) (stop stopJSON) {
	if pause != nil {
		stop.Pause = new(pauseOf(*pause))
	}
	if unserved != nil {
		stop.Unserved = unserved.String()
	}
	return stop
}

type outlookJSON struct {
	Queue      string    `json:"queue"`
	Tenant     string    `json:"tenant"`
	Now        moment    `json:"now"`
	Waiting    int64     `json:"waiting"`
	Rate       float64   `json:"rate_per_second"`
	HeldBy     *holdJSON `json:"held_by,omitempty"`
	DrainsAt   *moment   `json:"drains_at,omitempty"`
	Confidence string    `json:"confidence"`
	stopJSON
	Text string `json:"text"`
}

func outlookOf(o inspect.Outlook) outlookJSON {
	return outlookJSON{o.Queue, o.Tenant, moment{o.Now}, o.Waiting, o.Rate, holdOf(o.HeldBy), at(o.DrainsAt), string(o.Confidence), stopOf(o.Pause, o.Unserved), o.String()}
}

type tallyJSON struct {
	Jobs    int64                     `json:"jobs"`
	ByState map[lifecycle.State]int64 `json:"by_state"`
	TooLate int64                     `json:"too_late"`
	Paused  int64                     `json:"paused"`
	DryRun  bool                      `json:"dry_run"`
}

func tallyOf(t operate.Tally, dry bool) tallyJSON {
	if t.ByState == nil {
		t.ByState = map[lifecycle.State]int64{}
	}
	return tallyJSON{t.Jobs, t.ByState, t.TooLate, t.Paused, dry}
}

type estimateJSON struct {
	Now        moment    `json:"now"`
	First      *moment   `json:"first,omitempty"`
	Last       *moment   `json:"last,omitempty"`
	HeldBy     *holdJSON `json:"held_by,omitempty"`
	Waiting    int64     `json:"waiting"`
	Confidence string    `json:"confidence"`
	stopJSON
	Text string `json:"text"`
}

func estimateOf(e inspect.BatchEstimate) estimateJSON {
	return estimateJSON{moment{e.Now}, at(e.First), at(e.Last), holdOf(e.HeldBy), e.Waiting, string(e.Confidence), stopOf(e.Pause, e.Unserved), e.String()}
}

// auditJSON is an entry of the audit log.
type auditJSON struct {
	At     moment            `json:"at"`
	Actor  string            `json:"actor"`
	Action string            `json:"action"`
	Queue  string            `json:"queue,omitempty"`
	Tenant string            `json:"tenant,omitempty"`
	Kind   string            `json:"kind,omitempty"`
	State  string            `json:"state,omitempty"`
	ID     string            `json:"id,omitempty"`
	Limit  string            `json:"limit,omitempty"`
	Reason string            `json:"reason,omitempty"`
	Until  *moment           `json:"until,omitempty"`
	Before map[string]string `json:"before,omitempty"`
	After  map[string]string `json:"after,omitempty"`
	Count  int64             `json:"count"`

	Endpoint string              `json:"endpoint,omitempty"` // whose hold was ended
	Contains string              `json:"contains,omitempty"` // the part of a reason that selected the jobs
	Group    *inspect.FailureKey `json:"group,omitempty"`    // the group of failures that selected the jobs
}

func auditOf(e operate.AuditEntry) auditJSON {
	return auditJSON{
		moment{e.At}, e.Actor, e.Action, e.Queue, e.Tenant, e.Kind, string(e.State), e.ID, e.Limit, e.Reason, at(e.Until), e.Before, e.After, e.Count, e.Endpoint, e.Contains, e.Group,
	}
}
