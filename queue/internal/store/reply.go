package store

import (
	"fmt"
	"strconv"
)

// Reply reads the values that a script returned, one after the other. After a value of
// the wrong type, all further values are zero and [Reply.End] returns an error, so call
// it before the values are used. The error names types but no values, which may be
// payloads.
type Reply struct {
	left []any
	at   int
	err  *error // of the whole reply
}

// Read returns a Reply for what a script returned.
func Read(reply any) *Reply {
	whole := &Reply{left: []any{reply}, err: new(error)}
	return whole.List()
}

func (r *Reply) next() any {
	if len(r.left) == 0 || *r.err != nil {
		r.fail(nil)
		return nil
	}
	value := r.left[0]
	r.left, r.at = r.left[1:], r.at+1
	return value
}

func (r *Reply) fail(value any) {
	if *r.err == nil {
		*r.err = fmt.Errorf("unexpected reply: value %d is of type %T, %d follow", r.at, value, len(r.left))
	}
}

// More reports whether values are left.
func (r *Reply) More() bool { return *r.err == nil && len(r.left) > 0 }

// Len returns how many values are left.
func (r *Reply) Len() int { return len(r.left) }

// Int reads an integer. A script writes integers beyond 2^53 as text.
func (r *Reply) Int() int64 {
	value := r.next()
	switch v := value.(type) {
	case int64:
		return v
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n
		}
	}
	r.fail(value)
	return 0
}

// Flag reads an integer and reports whether it is 1.
func (r *Reply) Flag() bool { return r.Int() == 1 }

// Float reads a number that a script wrote as text, because Redis drops fractions.
func (r *Reply) Float() float64 {
	text := r.Text()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		r.fail(text)
	}
	return n
}

// Text reads a text, or a number as text. A nil is "".
func (r *Reply) Text() string {
	value := r.next()
	switch v := value.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case nil:
		return ""
	}
	r.fail(value)
	return ""
}

// List reads a list.
func (r *Reply) List() *Reply {
	value := r.next()
	values, ok := value.([]any)
	if !ok {
		r.fail(value)
	}
	return &Reply{left: values, err: r.err}
}

// End returns an error if a value so far was of the wrong type, or if values are left.
func (r *Reply) End() error {
	if len(r.left) > 0 {
		r.fail(r.left[0])
	}
	return *r.err
}
