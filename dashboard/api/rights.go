package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/operate"
)

// mayNot returns why a caller may not use a route, or nil if it may.
func (a *API) mayNot(route route, r *request) *problem {
	if !r.caller.mayAny(route.scopes) {
		return noScope(route.scopes[0])
	}
	name := r.PathValue("q")
	switch {
	case route.whole && r.caller.some():
		return forbid("not for single tenants", "This request is about whole queues, but the key is for single tenants or kinds only.")
	case route.whole && name == "" && len(r.caller.key.Queues) > 0:
		return forbid("not for single queues", "This request is about all queues, but the key is for single queues only.")
	case name != "" && !r.caller.mayQueue(name):
		return forbid("queue "+clip(name), "The key is not valid for this queue.")
	}
	if tenant := r.PathValue("t"); tenant != "" && !r.caller.mayTenant(tenant) {
		return otherTenant(tenant)
	}
	if r.PathValue("limit") != "" && len(r.caller.key.Kinds) > 0 {
		return forbid("not for single kinds", "Limits are for all kinds of a queue, but the key is for single kinds only.")
	}
	if route.changes {
		return a.mayNotChange()
	}
	return nil
}

// mayAny reports whether the caller has one of the scopes, or there are none.
func (c caller) mayAny(scopes []Scope) bool {
	return len(scopes) == 0 || slices.ContainsFunc(scopes, c.key.may)
}

// forbid returns a refusal: why is for the list of refusals, the rest for the caller.
func forbid(why, format string, args ...any) *problem {
	p := newProblem(http.StatusForbidden, codeForbidden, format, args...)
	p.refusal = why
	return p
}

func noScope(scope Scope) *problem {
	return forbid("no scope "+string(scope), "This request needs a key with the scope %s.", scope)
}

// otherTenant is the problem for a caller who named a tenant that its key is not for.
func otherTenant(tenant string) *problem {
	return forbid("tenant "+clip(tenant), "The key is not valid for this tenant.")
}

// otherKind is the problem for a caller who named a kind that its key is not for, or none.
func otherKind(kind string) *problem {
	if kind == "" {
		return forbid("not for single kinds", "The key is for single kinds only: name one of them.")
	}
	return forbid("kind "+clip(kind), "The key is not valid for this kind.")
}

// wholeOnly refuses callers whose keys are for single tenants.
func wholeOnly(r *request) *problem {
	if r.caller.all() {
		return nil
	}
	return forbid("not for single tenants", "The key is for single tenants only: name one of them.")
}

func (a *API) mayNotChange() *problem {
	if a.config.ReadOnly {
		return newProblem(http.StatusForbidden, codeReadOnly, "This server is read-only.")
	}
	return nil
}

// ownJob returns the tenant of the job that a request names; "" for a caller who may see all jobs.
// A job that the caller's key is not for and one that does not exist get the same answer after
// the same work.
func (a *API) ownJob(r *request) (tenant string, err error) {
	if !r.caller.some() {
		return "", nil
	}
	tenant, kind, err := a.inspector.Owner(r.Context(), r.PathValue("q"), r.PathValue("id"))
	if err != nil && !errors.Is(err, lifecycle.ErrNoJob) {
		return "", err
	}
	if err == nil && r.caller.mayTenant(tenant) && r.caller.mayKind(kind) {
		return tenant, nil
	}
	p := newProblem(http.StatusNotFound, codeNotFound, "There is no job %.100q in queue %.70q.", r.PathValue("id"), r.PathValue("q"))
	if err == nil {
		p.refusal = "a job of tenant " + clip(tenant)
	}
	return "", p
}

// mayEnqueue refuses jobs and follow-ups that the caller's key is not for. A follow-up without a
// tenant has that of its job. It knows queues as they were at since or later.
func (a *API) mayEnqueue(ctx context.Context, c caller, job *queue.Job, tenant string, since time.Time) error {
	if job == nil {
		return nil
	}
	if job.Tenant != "" {
		tenant = job.Tenant
	}
	if !c.mayTenant(tenant) {
		return otherTenant(tenant)
	}
	if !c.mayKind(job.Kind) {
		return otherKind(job.Kind)
	}
	if len(c.key.Queues) > 0 {
		name, err := a.client.QueueOf(ctx, *job, since)
		if err != nil {
			return err
		}
		if !c.mayQueue(name) {
			return forbid("queue "+clip(name), "The key is not valid for queue %s.", name)
		}
		job.Queue = name // and no other, should limits be published meanwhile
	}
	if err := a.mayMail(c, job); err != nil {
		return err
	}
	if most := c.key.MaxRetention; most > 0 && job.Retention > most {
		return forbid("retention "+job.Retention.String(), "The key may keep jobs for at most %v, not for %v.", most, job.Retention)
	}
	if len(c.key.Tenants) > 0 {
		job.Account = queue.OwnAccount
		if c.key.SharedAccount {
			job.Account = queue.SharedAccount
		}
	}
	if job.Callback != "" { // it is such a job
		if err := a.mayEnqueue(ctx, c, &queue.Job{Kind: queue.CallbackKind}, tenant, since); err != nil {
			return err
		}
	}
	for _, next := range []*queue.Job{job.OnSuccess, job.OnFailure} {
		if err := a.mayEnqueue(ctx, c, next, tenant, since); err != nil {
			return err
		}
	}
	return nil
}

// mayMail refuses mail from domains that the caller's key is not for.
func (a *API) mayMail(c caller, job *queue.Job) error {
	payload, ok := job.Payload.(json.RawMessage)
	if len(c.key.From) == 0 || !ok || a.config.SenderDomain == nil {
		return nil
	}
	if domain := a.config.SenderDomain(job.Kind, payload); domain != "" && !slices.Contains(c.key.From, domain) {
		return forbid("mail from "+clip(domain), "The key may not send mail from %.100q.", domain)
	}
	return nil
}

// mayAct refuses verbs that the caller's key does not allow.
func (a *API) mayAct(r *request, verb operate.Verb, filter operate.Filter) *problem {
	if filter.Tenant != "" && !r.caller.mayTenant(filter.Tenant) {
		return otherTenant(filter.Tenant)
	}
	if p := wholeOnly(r); p != nil && filter.Tenant == "" {
		return p
	}
	if verb == operate.RunNow && !r.caller.key.may(Admin) {
		return noScope(Admin) // it goes beyond the limits that others share
	}
	if kind := kindOf(filter.Kind, filter.Group); !r.caller.mayKind(kind) {
		return otherKind(kind)
	}
	return nil
}

// kindOf returns the kind of the jobs that a request names by their kind or their group; "" for any.
// A group has the kind of its jobs.
func kindOf(kind string, group *inspect.FailureKey) string {
	if group != nil && kind == "" {
		return group.Kind
	}
	return kind
}

// mayPause refuses pauses and resumptions that the caller's key does not allow.
func (a *API) mayPause(r *request, scope inspect.Scope) *problem {
	switch {
	case scope.Tenant != "" && !r.caller.mayTenant(scope.Tenant):
		return otherTenant(scope.Tenant)
	case !r.caller.mayKind(scope.Kind):
		return otherKind(scope.Kind)
	case scope.Tenant == "" && !r.caller.key.may(Admin):
		if p := wholeOnly(r); p != nil {
			return p
		}
		return noScope(Admin)
	}
	return nil
}
