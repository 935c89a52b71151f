package operate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/validation"
)

// Filter selects jobs of a queue: those that match all its fields. The zero Filter
// selects all.
type Filter struct {
	Tenant string          // "" for any
	Kind   string          // "" for any
	State  lifecycle.State // "" for all states in which the verb changes jobs
	ID     string          // one job, in any state; "" for any

	// Reason is a part of the reason why archived jobs ended, or why the last attempt of
	// others failed, as it is or as [inspect.Inspector.Failures] folds it; "" for any. Only
	// [Wake] and verbs for archived jobs accept it.
	Reason string

	// Group is one group of archived jobs, as [inspect.Inspector.Failures] returns it;
	// nil for any. Only verbs for archived jobs accept it, and Kind and Reason must be
	// empty then.
	Group *inspect.FailureKey
}

// check returns the error for the first invalid field.
func (f Filter) check(verb Verb) error {
	if reason := check.Text(f.Tenant, check.MaxTenant); f.Tenant != "" && reason != "" {
		return validation.Field("tenant", reason)
	}
	if f.Kind != "" && !check.KindPattern.MatchString(f.Kind) {
		return validation.Field("kind", check.Quote(f.Kind)+" is not 1 to 64 letters, digits, '.', '_', '-' or ':'")
	}
	if reason := check.Text(f.ID, maxID); f.ID != "" && reason != "" {
		return validation.Field("id", reason)
	}
	if reason := check.Text(f.Reason, store.MaxContained); f.Reason != "" && reason != "" {
		return validation.Field("reason", reason)
	}
	if f.Reason != "" && verb != Wake && !slices.Contains(verb.States(), lifecycle.StateArchived) {
		return validation.Field("reason", fmt.Sprintf("only archived jobs have a reason; %s is for jobs that are %s", verb, lifecycle.Join(verb.States())))
	}
	if f.Group != nil {
		if !slices.Contains(verb.States(), lifecycle.StateArchived) {
			return validation.Field("group", fmt.Sprintf("only archived jobs are in groups; %s is for jobs that are %s", verb, lifecycle.Join(verb.States())))
		}
		if err := f.Group.Check(f.Kind, f.Reason); err != nil {
			return err
		}
	}
	if states := verb.States(); f.State != "" && !slices.Contains(states, f.State) {
		return validation.Field("state", fmt.Sprintf("%s is not one of %s, the states of jobs that %s changes", check.Quote(string(f.State)), lifecycle.Join(states), verb))
	}
	return nil
}

// maxID is the maximum length of an id: that of a job with a key contains the tenant and
// the key, escaped.
const maxID = 3*check.MaxTenant + 1 + 3*check.MaxKey

// lane reports whether jobs of a lane can match.
func (f Filter) lane(name string) bool {
	if f.Tenant == "" {
		return true
	}
	tenant := rediskey.Escape(f.Tenant)
	return name == tenant || strings.HasPrefix(name, tenant+";")
}
