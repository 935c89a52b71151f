package effective

import (
	"errors"
	"fmt"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

// CheckOverride returns an error if a limit cannot be changed in this way for one tenant.
func CheckOverride(limit limits.Limit, change limits.Change) error {
	if change == (limits.Change{}) {
		return validation.Field("limit", "the change is empty: set a rate, a burst, a capacity or a concurrency")
	}
	if limit.Queues != nil {
		return &limits.ChangeError{Limit: limit.Name, Reason: errors.New("several queues share this budget, and an override is of one: change it in the limits file")}
	}
	if err := limit.CheckChange(change); err != nil {
		return &limits.ChangeError{Limit: limit.Name, Reason: err}
	}
	return nil
}

// NoSuchLimit returns the error for a limit that the queue does not have.
func NoSuchLimit(queue, limit string, rules []limits.Limit) error {
	return validation.NotFound("limit", fmt.Sprintf("queue %s has no limit %s%s", check.Quote(queue), check.Quote(limit), check.Suggest(limit, limits.Names(rules))))
}
