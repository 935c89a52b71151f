// Package strictjson reads JSON objects and, unlike encoding/json, refuses unknown and duplicate
// fields.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/headgate/headgate/internal/check"
)

var (
	// ErrNotObject reports JSON that is not an object.
	ErrNotObject = errors.New("must be a JSON object")
	// ErrTrailing reports data after the object.
	ErrTrailing = errors.New("there is more than one JSON object")
)

// FieldError reports a field that is unknown or duplicate.
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string { return check.Printable(e.Field, 60) + ": " + e.Reason }

// Members returns the members of an object. Each name must be in known, with the same case, and
// occur once. If known is nil, all names are allowed.
func Members(text []byte, known []string) (map[string]json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	token, err := decoder.Token()
	if err != nil {
		return nil, notJSON(err)
	}
	if token != json.Delim('{') {
		return nil, ErrNotObject
	}
	members := map[string]json.RawMessage{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, notJSON(err)
		}
		name, _ := token.(string)
		if known != nil && !slices.Contains(known, name) {
			return nil, &FieldError{name, "unknown field" + check.Suggest(name, known)}
		}
		if _, duplicate := members[name]; duplicate {
			return nil, &FieldError{name, "duplicate field"}
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, notJSON(err)
		}
		members[name] = value
	}
	if _, err := decoder.Token(); err != nil {
		return nil, notJSON(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, ErrTrailing
	}
	return members, nil
}

func notJSON(err error) error { return fmt.Errorf("not JSON: %w", err) }

// TypeWords describes the JSON from which a Go type is read, such as "a whole number".
func TypeWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "a text"
}
