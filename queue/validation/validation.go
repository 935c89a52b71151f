// Package validation defines the error for an invalid field of a job, of limits or of a
// query.
package validation

import (
	"errors"
	"slices"
)

// ErrNotFound is the [Error.Cause] of a field that names a queue, a job or a limit that does
// not exist.
var ErrNotFound = errors.New("not found")

// Error reports a field that cannot be accepted. Nothing was done.
type Error struct {
	Field  string // as in a line of jobs or in the limits file: "tenant", "queues.email.limits[2].burst"
	Reason string
	Cause  error // for errors.Is, not part of the text; nil: the value is not valid
}

func (e *Error) Error() string { return e.Field + ": " + e.Reason }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// NotFound returns the error for a field that names something that does not exist.
func NotFound(field, reason string) *Error {
	return &Error{Field: field, Reason: reason, Cause: ErrNotFound}
}

// Field returns the error for one field.
func Field(field, reason string) *Error {
	return &Error{Field: field, Reason: reason}
}

// Unjoin returns the errors that were joined into err; nil for nil.
func Unjoin(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// Under puts a path before the fields of the errors that were joined into err, as in
// "on_success.payload". Other errors stay as they are.
func Under(path string, err error) []error {
	errs := slices.Clone(Unjoin(err))
	for i, err := range errs {
		if invalid, ok := errors.AsType[*Error](err); ok {
			errs[i] = &Error{Field: path + "." + invalid.Field, Reason: invalid.Reason, Cause: invalid.Cause}
		}
	}
	return errs
}

// Is reports whether err says that a field cannot be accepted, rather than that something
// failed.
func Is(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}
