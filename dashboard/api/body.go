package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/strictjson"
)

// maxAction is the max size in bytes of a body without jobs.
const maxAction = 64 << 10

// decode reads a JSON object into a struct whose fields all have json tags. Unknown and
// duplicate fields are errors.
func decode[T any](r *request) (T, error) { return decodeUpTo[T](r, maxAction) }

func decodeUpTo[T any](r *request, most int64) (T, error) {
	var value T
	if err := wantType(r.Request, "application/json"); err != nil {
		return value, err
	}
	text, err := readBody(r, most)
	if err != nil {
		return value, err
	}
	return value, decodeText(text, &value)
}

// decodeText reports all invalid fields in one problem.
func decodeText(text []byte, into any) error {
	err := strictjson.Decode(text, into)
	fields := strictjson.FieldErrors(err)
	switch {
	case err == nil:
		return nil
	case len(fields) > 0:
		var all []fieldError
		for _, field := range fields {
			all = append(all, fieldError{clip(field.Field), field.Reason})
		}
		return fieldsProblem(all, oneLine(err))
	case errors.Is(err, strictjson.ErrNotObject):
		return newProblem(http.StatusBadRequest, codeInvalid, "The body must be a JSON object.")
	case errors.Is(err, strictjson.ErrTrailing):
		return newProblem(http.StatusBadRequest, codeInvalid, "The body has data after the object.")
	}
	return newProblem(http.StatusBadRequest, codeInvalid, "The body is %v", err)
}

// ending is when a change ends, given as a time or as a duration from now. Zero: never.
type ending struct {
	Until *string `json:"until"`
	For   *string `json:"for"`
}

func (u ending) moment() (time.Time, error) {
	const longest = 10 * 365 * 24 * time.Hour // of pauses and overrides
	switch {
	case u.Until != nil && u.For != nil:
		return time.Time{}, invalid("for", "give until or for, not both")
	case u.Until != nil:
		t, err := time.Parse(time.RFC3339, *u.Until)
		if err != nil {
			return time.Time{}, invalid("until", "%.40q is not a time such as 2026-01-31T09:00:00Z", *u.Until)
		}
		return t, nil
	case u.For != nil:
		d, err := time.ParseDuration(*u.For)
		if err != nil {
			return time.Time{}, invalid("for", "%.40q is not a duration such as 90s or 2h", *u.For)
		}
		if d <= 0 || d > longest {
			return time.Time{}, invalid("for", "%v must be longer than 0 and at most %v", d, longest)
		}
		return time.Now().Add(d), nil
	}
	return time.Time{}, nil
}
