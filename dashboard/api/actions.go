package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// action is the body of POST /queues/{q}/actions.
type action struct {
	Verb   string `json:"verb"`
	Tenant string `json:"tenant"`
	Kind   string `json:"kind"`
	State  string `json:"state"`
	DryRun bool   `json:"dry_run"`
	Reason string `json:"reason"`

	// Contains is a part of the reason for which archived jobs ended.
	Contains string `json:"reason_contains"`

	// Group selects exactly one group of failures.
	Group json.RawMessage `json:"group"`
}

// groupBody is the key of a group of failures. All fields are required, because an empty
// reason names another group.
type groupBody struct {
	Outcome *lifecycle.Outcome `json:"outcome"`
	Kind    *string            `json:"kind"`
	Reason  *string            `json:"reason"`
}

// readGroup reads the key of a group of failures. It returns nil if there is none.
func readGroup(text []byte) (*inspect.FailureKey, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var body groupBody
	if err := decodeText(text, &body); err != nil {
		p := problemOf(err)
		if len(p.Errors) == 0 {
			return nil, invalid("group", "%s", p.Detail)
		}
		return nil, invalid("group."+p.Errors[0].Field, "%s", p.Errors[0].Reason)
	}
	switch {
	case body.Outcome == nil:
		return nil, invalid("group.outcome", "is required")
	case body.Kind == nil:
		return nil, invalid("group.kind", "is required")
	case body.Reason == nil:
		return nil, invalid("group.reason", "is required; an empty reason selects the jobs without one")
	}
	return &inspect.FailureKey{Outcome: *body.Outcome, Kind: *body.Kind, Reason: *body.Reason}, nil
}

// act applies a verb to many jobs, or counts them.
func (a *API) act(r *request) (answer, error) {
	body, err := decode[action](r)
	filter := operate.Filter{Tenant: body.Tenant, Kind: body.Kind, State: lifecycle.State(body.State), Reason: body.Contains}
	if _, refused := (scopeBody{Tenant: body.Tenant}).scope(r); refused != nil {
		return answer{}, cmp.Or(err, refused)
	}
	var groupErr, byErr error
	filter.Group, groupErr = readGroup(body.Group)
	verb := operate.Verb(body.Verb)
	if !body.DryRun {
		byErr = r.by(body.Reason).Check()
	}
	if err := together(err, groupErr, filter.Check(verb), byErr); err != nil {
		return answer{}, err
	}
	if body.DryRun {
		tally, err := operate.Count(r.Context(), a.config.Redis, r.PathValue("q"), verb, filter)
		return answer{body: tallyOf(tally, true)}, err
	}
	if p := a.mayNotChange(); p != nil {
		return answer{}, p
	}
	return a.apply(r, verb, filter, body.Reason)
}

// ownJob returns the tenant of a job if it is one of the caller's. Otherwise its error does not
// reveal whether the job exists.
func (a *API) ownJob(r *request) (string, error) {
	e, err := a.inspector.Explain(r.Context(), r.PathValue("q"), r.PathValue("id"))
	if err == nil && !r.caller.mayTenant(e.Tenant) {
		err = notYours(r, e.Tenant)
	}
	if err != nil {
		return "", err
	}
	return e.Tenant, nil
}

// apply applies a verb. Its error says how many jobs were changed before it.
func (a *API) apply(r *request, verb operate.Verb, filter operate.Filter, reason string) (answer, error) {
	tally, err := operate.Apply(r.Context(), a.config.Redis, r.PathValue("q"), verb, filter, r.by(reason), nil)
	if err != nil && tally.Jobs > 0 {
		p := *problemOf(err)
		p.Detail = fmt.Sprintf("Stopped after %d jobs. Repeat the request for the rest: %s", tally.Jobs, p.Detail)
		return answer{}, &p
	}
	return answer{body: tallyOf(tally, false)}, err
}

// why is the body of a change that needs only a reason.
type why struct {
	Reason string `json:"reason"`
}

// decodeWhy reads the reason of a change. Many clients send no body with DELETE, so its reason
// can be in the query, or left out.
func decodeWhy(r *request) (why, error) {
	if r.Method != http.MethodDelete || r.ContentLength != 0 || r.Header.Get("Content-Type") != "" {
		return decode[why](r)
	}
	return why{cmp.Or(r.URL.Query().Get("reason"), "no reason given")}, nil
}

var verbOf = map[string]operate.Verb{"cancel": operate.Cancel, "retry": operate.RetryArchived, "run": operate.RunNow}

// actOnOne applies a verb to one job: the last segment of the path, or delete.
func (a *API) actOnOne(r *request) (answer, error) {
	body, err := decodeWhy(r)
	if err != nil {
		return answer{}, err
	}
	verb := operate.DeleteArchived
	if r.Method != http.MethodDelete {
		verb = verbOf[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]]
	}
	filter := operate.Filter{ID: r.PathValue("id")}
	if !r.caller.all() {
		if filter.Tenant, err = a.ownJob(r); err != nil {
			return answer{}, err
		}
	}
	return a.apply(r, verb, filter, body.Reason)
}

// scopeBody is the part that bodies of pauses and resumptions have in common.
type scopeBody struct {
	Tenant string `json:"tenant"`
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
}

func (b scopeBody) scope(r *request) (inspect.Scope, error) {
	if b.Tenant == "" {
		if p := wholeOnly(r); p != nil {
			return inspect.Scope{}, p
		}
	} else if !r.caller.mayTenant(b.Tenant) {
		return inspect.Scope{}, otherTenant(b.Tenant)
	}
	return inspect.Scope{Tenant: b.Tenant, Kind: b.Kind}, nil
}

type pauseBody struct {
	scopeBody
	ending
}

func (a *API) pause(r *request) (answer, error) {
	body, err := decode[pauseBody](r)
	scope, refused := body.scope(r)
	if refused != nil {
		return answer{}, cmp.Or(err, refused)
	}
	end, endErr := body.moment()
	if err := together(err, endErr, r.by(body.Reason).Check()); err != nil {
		return answer{}, err
	}
	p, err := operate.PauseJobs(r.Context(), a.config.Redis, r.PathValue("q"), scope, end, r.by(body.Reason))
	return answer{body: pauseOf(p)}, err
}

type resumeBody struct {
	scopeBody
	Endpoint string `json:"endpoint"`
}

func (a *API) resume(r *request) (answer, error) {
	body, err := decode[resumeBody](r)
	scope, refused := body.scope(r)
	if refused != nil {
		return answer{}, cmp.Or(err, refused)
	}
	if err := together(err, r.by(body.Reason).Check()); err != nil {
		return answer{}, err
	}
	scope.Endpoint = body.Endpoint
	was, err := operate.ResumeJobs(r.Context(), a.config.Redis, r.PathValue("q"), scope, r.by(body.Reason))
	return answer{body: map[string]bool{"resumed": was}}, err
}

// limitBody is the body of a change of a limit for one tenant.
type limitBody struct {
	Rate        *string `json:"rate"`
	Burst       *int64  `json:"burst"`
	Capacity    *int64  `json:"capacity"`
	Concurrency *int64  `json:"concurrency"`
	DryRun      bool    `json:"dry_run"`
	Reason      string  `json:"reason"`
	ending
}

func (b limitBody) change() (limits.Change, error) {
	change := limits.Change{Burst: b.Burst, Capacity: b.Capacity, Concurrency: b.Concurrency}
	if b.Rate != nil {
		rate, err := throttle.ParseRate(*b.Rate)
		if err != nil {
			return change, invalid("rate", "%s", strings.TrimPrefix(err.Error(), "rate "))
		}
		change.Rate = &rate
	}
	return change, nil
}

func (a *API) clearLimit(r *request) (answer, error) {
	body, err := decodeWhy(r)
	if err != nil {
		return answer{}, err
	}
	cleared, err := operate.ClearOverride(r.Context(), a.config.Redis, r.PathValue("q"), r.PathValue("t"), r.PathValue("limit"), r.by(body.Reason))
	return answer{body: map[string]bool{"cleared": cleared}}, changeProblem(err)
}

// changeProblem makes a problem of a change that does not fit its limit.
func changeProblem(err error) error {
	if _, refused := errors.AsType[*limits.ChangeError](err); refused {
		return newProblem(http.StatusBadRequest, codeInvalid, "%s", oneLine(err))
	}
	return err
}

// estimateBody is a batch to be estimated, not enqueued.
type estimateBody struct {
	Tenant     string            `json:"tenant"`
	Jobs       int64             `json:"jobs"`
	Kind       string            `json:"kind"`
	Cost       int64             `json:"cost"`
	Costs      map[string]int64  `json:"costs"`
	Attributes map[string]string `json:"attributes"`
	Payload    json.RawMessage   `json:"payload"`
}

func (b estimateBody) batch(r *request) (inspect.Batch, error) {
	batch := inspect.Batch{Tenant: b.Tenant, Jobs: b.Jobs, Kind: b.Kind, Cost: b.Cost, Costs: b.Costs, Attributes: b.Attributes, Payload: b.Payload}
	if b.Tenant != "" && !r.caller.mayTenant(b.Tenant) {
		return batch, otherTenant(b.Tenant)
	}
	return batch, nil
}
