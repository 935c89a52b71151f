package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/strictjson"
)

// maxAction is the max size in bytes of a body without jobs.
const maxAction = 64 << 10

// decode reads a JSON object into a struct whose fields all have json tags. Unknown and
// duplicate fields are errors.
func decode[T any](r *request) (T, error) {
	var value T
	if err := wantType(r.Request, "application/json"); err != nil {
		return value, err
	}
	text, err := readBody(r, maxAction)
	if err != nil {
		return value, err
	}
	return value, decodeText(text, &value)
}

func decodeText(text []byte, into any) error {
	bad := func(format string, args ...any) error {
		return newProblem(http.StatusBadRequest, codeInvalid, format, args...)
	}
	var known []string
	for field := range fieldsOf(reflect.TypeOf(into).Elem()) {
		known = append(known, field)
	}
	slices.Sort(known)
	_, err := strictjson.Members(text, known)
	if field, ok := errors.AsType[*strictjson.FieldError](err); ok {
		return invalid(clip(field.Field), "%s", field.Reason)
	}
	switch {
	case errors.Is(err, strictjson.ErrNotObject):
		return bad("The body must be a JSON object with the fields %s.", strings.Join(known, ", "))
	case errors.Is(err, strictjson.ErrTrailing):
		return bad("The body has data after the object.")
	case err != nil:
		return bad("%v", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			field := wrong.Field
			if within, rest, _ := strings.Cut(field, "."); !slices.Contains(known, within) {
				field = rest // an embedded struct has no name in JSON
			}
			return invalid(field, "must be %s, not a JSON %s", strictjson.TypeWords(wrong.Type), wrong.Value)
		}
		return bad("The body is not JSON: %v", err)
	}
	return nil
}

// fieldsOf returns the JSON names of a struct's fields.
func fieldsOf(t reflect.Type) map[string]bool {
	names := map[string]bool{}
	for field := range t.Fields() {
		if field.Anonymous {
			for name := range fieldsOf(field.Type) {
				names[name] = true
			}
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names[name] = true
	}
	return names
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
