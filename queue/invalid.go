package queue

// InvalidError reports a field of a job that cannot be accepted. Nothing was enqueued.
type InvalidError struct {
	Field  string // as in NDJSON: "tenant", "max_attempts", …
	Reason string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Reason }

// invalidField is the error of one field.
func invalidField(field, reason string) *InvalidError {
	return &InvalidError{Field: field, Reason: reason}
}

func unjoin(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
