// Package validation has the error for a field that cannot be accepted, of a job, of limits or
// of a question.
package validation

// Error reports a field that cannot be accepted. Nothing was done.
type Error struct {
	Field  string // as in a line of jobs or in the limits file: "tenant", "queues.email.limits[2].burst"
	Reason string
}

func (e *Error) Error() string { return e.Field + ": " + e.Reason }

// Field returns the error for one field.
func Field(field, reason string) *Error {
	return &Error{Field: field, Reason: reason}
}

// Unjoin returns the errors that were joined into one; none for nil.
func Unjoin(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
