package operate

import (
	"errors"
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

// Check returns the errors for a verb that does not exist and for the fields that it does not
// accept, joined.
func (f Filter) Check(verb Verb) error {
	var errs []error
	wrong := func(field, reason string) { errs = append(errs, validation.Field(field, reason)) }
	states := verb.States()
	if states == nil {
		wrong("verb", check.Quote(string(verb))+" is not one of cancel, run, wake, retry, delete")
	}
	if reason := check.Text(f.Tenant, check.MaxTenant); f.Tenant != "" && reason != "" {
		wrong("tenant", reason)
	}
	if f.Kind != "" && !check.KindPattern.MatchString(f.Kind) {
		wrong("kind", check.Quote(f.Kind)+" is not 1 to 64 letters, digits, '.', '_', '-' or ':'")
	}
	if reason := check.Text(f.ID, maxID); f.ID != "" && reason != "" {
		wrong("id", reason)
	}
	archived := slices.Contains(states, lifecycle.StateArchived)
	switch reason := check.Text(f.Reason, store.MaxContained); {
	case f.Reason == "":
	case reason != "":
		wrong("reason", reason)
	case states != nil && verb != Wake && !archived:
		wrong("reason", fmt.Sprintf("only archived jobs have a reason; %s is for jobs that are %s", verb, lifecycle.Join(states)))
	}
	if f.Group != nil {
		if states != nil && !archived {
			wrong("group", fmt.Sprintf("only archived jobs are in groups; %s is for jobs that are %s", verb, lifecycle.Join(states)))
		}
		errs = append(errs, f.Group.Check(f.Kind, f.Reason))
	}
	if f.State != "" && states != nil && !slices.Contains(states, f.State) {
		wrong("state", fmt.Sprintf("%s is not one of %s, the states of jobs that %s changes", check.Quote(string(f.State)), lifecycle.Join(states), verb))
	}
	return errors.Join(errs...)
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
