package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
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
	var groupErr, byErr error
	filter.Group, groupErr = readGroup(body.Group)
	verb := verbOf[body.Verb]
	if refused := a.mayAct(r, verb, filter); refused != nil {
		return answer{}, cmp.Or(err, error(refused))
	}
	if !body.DryRun {
		byErr = r.by(body.Reason).Check()
	}
	if err := together(err, groupErr, checkAction(body.Verb, filter), byErr); err != nil {
		return answer{}, err
	}
	if p := a.mayNotChange(); p != nil && !body.DryRun {
		return answer{}, p
	}
	release, err := a.actions.take(r.caller)
	if err != nil {
		return answer{}, err
	}
	defer release()
	if body.DryRun {
		tally, err := operate.Count(r.Context(), a.config.Redis, r.PathValue("q"), verb, filter)
		return answer{body: tallyOf(tally, true)}, err
	}
	return a.apply(r, verb, filter, body.Reason)
}

// checkAction returns the errors of an action, joined. The API has fewer verbs than package operate.
func checkAction(verb string, filter operate.Filter) error {
	if verb, known := verbOf[verb]; known {
		return filter.Check(verb)
	}
	errs := []error{validation.Field("verb", check.Quote(verb)+" is not one of cancel, retry, run, delete")}
	for _, err := range validation.Unjoin(filter.Check("")) {
		if wrong, ok := errors.AsType[*validation.Error](err); !ok || wrong.Field != "verb" {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// apply applies a verb. Its error says how many jobs were changed before it.
func (a *API) apply(r *request, verb operate.Verb, filter operate.Filter, reason string) (answer, error) {
	tally, err := operate.Apply(r.Context(), a.config.Redis, r.PathValue("q"), verb, filter, r.by(reason), nil)
	err = unsure(err)
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

var verbOf = map[string]operate.Verb{"cancel": operate.Cancel, "retry": operate.RetryArchived, "run": operate.RunNow, "delete": operate.DeleteArchived}

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
	if filter.Tenant, err = a.ownJob(r); err != nil {
		return answer{}, err
	}
	return a.apply(r, verb, filter, body.Reason)
}

// scopeBody is the part that bodies of pauses and resumptions have in common.
type scopeBody struct {
	Tenant string `json:"tenant"`
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
}

// scope returns what a pause is for. Its error is that the caller may not change that.
func (b scopeBody) scope(a *API, r *request) (inspect.Scope, error) {
	scope := inspect.Scope{Tenant: b.Tenant, Kind: b.Kind}
	if p := a.mayPause(r, scope); p != nil {
		return scope, p
	}
	return scope, nil
}

// unregister removes an empty queue.
func (a *API) unregister(r *request) (answer, error) {
	body, err := decodeWhy(r)
	if err == nil {
		err = unsure(operate.Unregister(r.Context(), a.config.Redis, r.PathValue("q"), r.by(body.Reason)))
	}
	return answer{body: map[string]bool{"removed": true}}, err
}

type pauseBody struct {
	scopeBody
	ending
}

func (a *API) pause(r *request) (answer, error) {
	body, err := decode[pauseBody](r)
	scope, refused := body.scope(a, r)
	if refused != nil {
		return answer{}, cmp.Or(err, refused)
	}
	end, endErr := body.moment()
	if err := together(err, endErr, r.by(body.Reason).Check()); err != nil {
		return answer{}, err
	}
	p, err := operate.PauseJobs(r.Context(), a.config.Redis, r.PathValue("q"), scope, end, r.by(body.Reason))
	return answer{body: pauseOf(p)}, unsure(err)
}

type resumeBody struct {
	scopeBody
	Endpoint string `json:"endpoint"`
}

func (a *API) resume(r *request) (answer, error) {
	body, err := decode[resumeBody](r)
	scope, refused := body.scope(a, r)
	if refused != nil {
		return answer{}, cmp.Or(err, refused)
	}
	if err := together(err, r.by(body.Reason).Check()); err != nil {
		return answer{}, err
	}
	scope.Endpoint = body.Endpoint
	was, err := operate.ResumeJobs(r.Context(), a.config.Redis, r.PathValue("q"), scope, r.by(body.Reason))
	return answer{body: map[string]bool{"resumed": was}}, unsure(err)
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
		if wrong, ok := errors.AsType[*throttle.FieldError](err); ok {
			return change, invalid("rate", "%s", wrong.Reason)
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
	clear := operate.ClearOwnOverride
	if r.caller.key.may(Admin) {
		clear = operate.ClearOverride
	}
	cleared, err := clear(r.Context(), a.config.Redis, r.PathValue("q"), r.PathValue("t"), r.PathValue("limit"), r.by(body.Reason))
	return answer{body: map[string]bool{"cleared": cleared}}, changeProblem(unsure(err))
}

// changeProblem makes a problem of a change that does not fit its limit.
func changeProblem(err error) error {
	if _, refused := errors.AsType[*limits.ChangeError](err); refused {
		return newProblem(http.StatusBadRequest, codeInvalid, "%s", oneLine(err))
	}
	if errors.Is(err, operate.ErrRaises) || errors.Is(err, operate.ErrNotOwn) {
		return forbid("no scope admin", "Without the scope admin, a key can lower a limit and clear its own override: %v.", err)
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
	switch {
	case b.Tenant != "" && !r.caller.mayTenant(b.Tenant):
		return batch, otherTenant(b.Tenant)
	case b.Kind != "" && !r.caller.mayKind(b.Kind):
		return batch, otherKind(b.Kind)
	}
	return batch, nil
}
