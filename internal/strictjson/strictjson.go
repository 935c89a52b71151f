// Package strictjson reads JSON objects and, unlike encoding/json, refuses unknown and duplicate
// fields, and reports all invalid fields at once.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/check"
)

var (
	// ErrNotObject reports JSON that is not an object.
	ErrNotObject = errors.New("must be a JSON object")
	// ErrTrailing reports data after the object.
	ErrTrailing = errors.New("there is more than one JSON object")
)

// FieldError reports a field that is unknown, duplicate or of another type.
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string { return check.Printable(e.Field, 60) + ": " + e.Reason }

// Members returns the members of an object. Each name must be in known, with the same case, and
// occur once. If known is nil, all names are allowed. The error joins a [FieldError] for each name
// that is not, of the first [check.MaxErrors] and one more; the members are then the others.
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
	var errs []error
	wrong := func(name, reason string, like []string) {
		switch n := len(errs); {
		case n < check.MaxErrors:
			errs = append(errs, &FieldError{name, reason + check.Suggest(name, like)})
		case n == check.MaxErrors:
			errs = append(errs, &FieldError{name, check.AndMore})
		}
	}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, notJSON(err)
		}
		name, _ := token.(string)
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, notJSON(err)
		}
		if known != nil && !slices.Contains(known, name) {
			wrong(name, "unknown field", known)
			continue
		}
		if _, duplicate := members[name]; duplicate {
			wrong(name, "duplicate field", nil)
			continue
		}
		members[name] = value
	}
	if _, err := decoder.Token(); err != nil {
		return nil, notJSON(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, ErrTrailing
	}
	return members, errors.Join(errs...)
}

// Decode reads an object into a struct whose fields have names in JSON. The error joins a
// [FieldError] for each invalid field; the others were read.
func Decode(text []byte, into any) error {
	fields := map[string]reflect.Value{}
	names := fieldsOf(reflect.ValueOf(into).Elem(), fields)
	members, err := Members(text, names)
	if members == nil {
		return err
	}
	errs := []error{err}
	for _, name := range names {
		value, given := members[name]
		if !given {
			continue
		}
		err := json.Unmarshal(value, fields[name].Addr().Interface())
		if err != nil {
			fields[name].SetZero() // a part of it may have been read
		}
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			within := name
			if wrong.Field != "" {
				within += "." + wrong.Field
			}
			err = &FieldError{within, "must be " + TypeWords(wrong.Type) + ", not a JSON " + wrong.Value}
		} else if err != nil {
			err = &FieldError{name, err.Error()}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// fieldsOf returns the names of a struct's fields in JSON, in their order, and enters the fields.
func fieldsOf(value reflect.Value, into map[string]reflect.Value) (names []string) {
	for field, inner := range value.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous:
			names = append(names, fieldsOf(inner, into)...)
		case field.IsExported() && name != "":
			into[name] = inner
			names = append(names, name)
		}
	}
	return names
}

// FieldErrors returns the field errors that were joined into an error.
func FieldErrors(err error) (all []*FieldError) {
	if field, ok := err.(*FieldError); ok {
		return []*FieldError{field}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			all = append(all, FieldErrors(err)...)
		}
	}
	return all
}

func notJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("not JSON: it is empty or cut short (%w)", err)
	}
	return fmt.Errorf("not JSON: %w", err)
}

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
