// Package outcomes names what the error of a client means.
package outcomes

import (
	"errors"

	"github.com/headgate/headgate/clients"
)

// Of returns an error's outcome in a word, in the order in which queues check them: ok, throttled,
// exhausted, each with "account " if it is about the account of all tenants, postponed, undecided
// (permanent and unknown), permanent, unknown, retryable; "error" is an error without an outcome.
func Of(err error) string {
	if err == nil {
		return "ok"
	}
	if throttled, ok := errors.AsType[*clients.ThrottledError](err); ok {
		return of(throttled.Account) + "throttled"
	}
	if exhausted, ok := errors.AsType[*clients.ExhaustedError](err); ok {
		return of(exhausted.Account) + "exhausted"
	}
	if _, ok := errors.AsType[*clients.PostponedError](err); ok {
		return "postponed"
	}
	_, permanent := errors.AsType[*clients.PermanentError](err)
	_, unknown := errors.AsType[*clients.UnknownError](err)
	switch {
	case permanent && unknown:
		return "undecided"
	case permanent:
		return "permanent"
	case unknown:
		return "unknown"
	}
	if _, ok := errors.AsType[*clients.RetryableError](err); ok {
		return "retryable"
	}
	return "error"
}

func of(account bool) string {
	if account {
		return "account "
	}
	return ""
}
