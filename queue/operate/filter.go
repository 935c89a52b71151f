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

// Filter says which jobs of a queue an operator means: those to which all of
// its fields apply. The zero Filter means all of them.
type Filter struct {
	Tenant string          // "" for any
	Kind   string          // "" for any
	State  lifecycle.State // "" for any that the verb changes
	ID     string          // one job, wherever it is

	// Reason is a part of why archived jobs ended, as it is or as [inspect.Inspector.Failures]
	// folds it; "" for any. Only the verbs for archived jobs have it.
	Reason string

	// Group is one group of archived jobs exactly, as [inspect.Inspector.Failures] lists it;
	// nil for any. Only the verbs for archived jobs have it, and Kind and Reason have
	// to be left out beside it.
	Group *inspect.FailureKey
}

// check names the field that is wrong.
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
	if f.Reason != "" && !slices.Contains(verb.States(), lifecycle.StateArchived) {
		return validation.Field("reason", fmt.Sprintf("only archived jobs have one, and %s is for those that are %s", verb, lifecycle.Join(verb.States())))
	}
	if f.Group != nil {
		if !slices.Contains(verb.States(), lifecycle.StateArchived) {
			return validation.Field("group", fmt.Sprintf("groups are of archived jobs, and %s is for those that are %s", verb, lifecycle.Join(verb.States())))
		}
		if err := f.Group.Check(f.Kind, f.Reason); err != nil {
			return err
		}
	}
	if states := verb.States(); f.State != "" && !slices.Contains(states, f.State) {
		return validation.Field("state", fmt.Sprintf("%s is none of %s, which is what %s is for", check.Quote(string(f.State)), lifecycle.Join(states), verb))
	}
	return nil
}

// maxID: the id of a job with a key has both in it, escaped.
const maxID = 3*check.MaxTenant + 1 + 3*check.MaxKey

// lane tells whether jobs of a lane can match.
func (f Filter) lane(name string) bool {
	if f.Tenant == "" {
		return true
	}
	tenant := rediskey.Escape(f.Tenant)
	return name == tenant || strings.HasPrefix(name, tenant+";")
}
