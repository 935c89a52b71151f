package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/clients/ai"
	"github.com/headgate/headgate/clients/email"
	"github.com/headgate/headgate/clients/payment"
	"github.com/headgate/headgate/clients/webhook"
	"github.com/headgate/headgate/queue"
)

// line is a job as NDJSON, CSV and the flags of send write it. Pointers tell
// what was left out from a zero that was written.
type line struct {
	Kind        *string           `json:"kind"`
	Tenant      *string           `json:"tenant"`
	Key         *string           `json:"key"`
	KeyUntil    *string           `json:"key_until"`
	KeyWindow   *string           `json:"key_window"`
	Queue       *string           `json:"queue"`
	Priority    *string           `json:"priority"`
	At          *string           `json:"at"`
	In          *string           `json:"in"`
	Deadline    *string           `json:"deadline"`
	MaxAttempts *int              `json:"max_attempts"`
	Cost        *int64            `json:"cost"`
	Costs       map[string]int64  `json:"costs"`
	Retention   *string           `json:"retention"`
	Attributes  map[string]string `json:"attributes"`
	Headers     map[string]string `json:"headers"`
	Payload     json.RawMessage   `json:"payload"`
	OnSuccess   json.RawMessage   `json:"on_success"`
	OnFailure   json.RawMessage   `json:"on_failure"`
	Callback    *string           `json:"callback"`
}

var lineFields = []string{
	"kind", "tenant", "key", "key_until", "key_window", "queue", "priority", "at", "in", "deadline", "max_attempts", "cost", "costs",
	"attributes", "headers", "payload", "retention", "on_success", "on_failure", "callback",
}

// parseLine reads one line of NDJSON.
func parseLine(text []byte) (line, error) {
	if err := checkFields(text); err != nil {
		return line{}, err
	}
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return line{}, fmt.Errorf("%s: want %s, not %s", wrong.Field, typeName(wrong.Type.String()), wrong.Value)
		}
		return line{}, fmt.Errorf("not JSON: %w", err)
	}
	return l, nil
}

// checkFields refuses what is no object, and fields that a job does not have or
// has twice: a misspelled deadline must not be a job without one.
func checkFields(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if token, err := decoder.Token(); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	} else if token != json.Delim('{') {
		return errors.New(`want one object a line, such as {"kind":"webhook","tenant":"acme","payload":{…}}`)
	}
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("not JSON: %w", err)
		}
		name, _ := token.(string)
		if !slices.Contains(lineFields, name) {
			return fmt.Errorf("%.60q: unknown field%s", name, queue.Suggest(name, lineFields))
		}
		if seen[name] {
			return fmt.Errorf("%s: it stands twice", name)
		}
		seen[name] = true
		var skipped json.RawMessage
		if err := decoder.Decode(&skipped); err != nil {
			return fmt.Errorf("not JSON: %w", err)
		}
	}
	if _, err := decoder.Token(); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one object on the line")
	}
	return nil
}

func typeName(goType string) string {
	switch {
	case strings.Contains(goType, "int"):
		return "a whole number"
	case strings.Contains(goType, "map"):
		return "an object of texts"
	}
	return "a text"
}

// job makes the job of a line. What cannot be judged here is left to the queue.
func (l line) job() (queue.Job, error) { return l.jobAt(0) }

func (l line) jobAt(depth int) (queue.Job, error) {
	var job queue.Job
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, &queue.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	text := func(from *string) string {
		if from == nil {
			return ""
		}
		return *from
	}
	job.Kind, job.Tenant, job.Queue = text(l.Kind), text(l.Tenant), text(l.Queue)
	job.Key, job.Priority = text(l.Key), queue.Priority(text(l.Priority))
	if l.Key != nil && *l.Key == "" {
		wrong("key", "it is empty; leave it out for a job without one")
	}
	moment := func(field string, from *string) time.Time {
		if from == nil {
			return time.Time{}
		}
		t, err := time.Parse(time.RFC3339, *from)
		if err != nil {
			wrong(field, "%.40q is not a time such as 2026-01-31T09:00:00Z", *from)
		} else if t.Year() < 2000 {
			wrong(field, "the year %d is a mistake", t.Year())
			return time.Time{}
		}
		return t
	}
	job.At, job.Deadline = moment("at", l.At), moment("deadline", l.Deadline)
	duration := func(field string, from *string) time.Duration {
		if from == nil {
			return 0
		}
		d, err := time.ParseDuration(*from)
		if err != nil {
			wrong(field, "%.40q is not a duration such as 90s", *from)
		}
		return d
	}
	job.In, job.KeyWindow, job.Retention = duration("in", l.In), duration("key_window", l.KeyWindow), duration("retention", l.Retention)
	job.KeyUntil = queue.KeyUntil(text(l.KeyUntil))
	if l.MaxAttempts != nil {
		if job.MaxAttempts = *l.MaxAttempts; job.MaxAttempts == 0 {
			wrong("max_attempts", "0: a job has at least 1")
		}
	}
	if l.Cost != nil {
		if job.Cost = *l.Cost; job.Cost == 0 {
			wrong("cost", "0: a call costs at least 1")
		}
	}
	job.Attributes, job.Headers, job.Costs = l.Attributes, l.Headers, l.Costs
	if len(l.Payload) == 0 || string(l.Payload) == "null" {
		wrong("payload", "it is missing")
	} else {
		job.Payload = l.Payload
		problems := checkPayload(job.Kind, l.Payload)
		for _, err := range problems {
			wrong("payload", "%v", err)
		}
		if job.Costs == nil && len(problems) == 0 {
			job.Costs = estimate(job.Kind, l.Payload)
		}
	}
	job.OnSuccess = followUp("on_success", l.OnSuccess, depth, &errs)
	job.OnFailure = followUp("on_failure", l.OnFailure, depth, &errs)
	if l.Callback != nil {
		if job.Callback = *l.Callback; job.Callback == "" {
			wrong("callback", "it is empty; leave it out for a job without one")
		}
	}
	return job, errors.Join(errs...)
}

// mostNested bounds what is parsed: the queue takes 8 jobs that follow one
// another, and says so itself.
const mostNested = 9

// followUp makes the job of a field that holds one. Its errors name its fields
// with their path.
func followUp(field string, text json.RawMessage, depth int, errs *[]error) *queue.Job {
	if len(text) == 0 || string(text) == "null" {
		return nil
	}
	if depth == mostNested {
		return &queue.Job{}
	}
	l, err := parseLine(text)
	if err != nil {
		*errs = append(*errs, fmt.Errorf("%s: %w", field, err))
		return nil
	}
	job, err := l.jobAt(depth + 1)
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		if invalid, ok := errors.AsType[*queue.InvalidError](err); ok {
			err = &queue.InvalidError{Field: field + "." + invalid.Field, Reason: invalid.Reason}
		} else if err != nil {
			err = fmt.Errorf("%s.%w", field, err)
		}
		if err != nil {
			*errs = append(*errs, err)
		}
	}
	return &job
}

// checkPayload says what a kind's own handler would refuse for good.
func checkPayload(kind string, payload json.RawMessage) []error {
	var value interface{ Validate() error }
	switch kind {
	case "webhook":
		value = &webhook.Request{}
	case "email":
		value = &email.Message{}
	case "ai":
		value = &ai.Request{}
	case "payment":
		value = &payment.Payload{}
	default:
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil {
		return []error{errors.New(strings.TrimPrefix(err.Error(), "json: "))}
	}
	err := value.Validate()
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// estimate is what a job takes of limits with a unit when nobody says.
func estimate(kind string, payload json.RawMessage) map[string]int64 {
	switch kind {
	case "ai":
		return ai.Estimate(ai.Request(payload))
	case "email":
		var m email.Message
		if json.Unmarshal(payload, &m) == nil {
			return email.Estimate(m)
		}
	}
	return nil
}

// fillIn gives a line the defaults of flags where it has none of its own.
func (l *line) fillIn(kind, tenant string) {
	if l.Kind == nil && kind != "" {
		l.Kind = &kind
	}
	if l.Tenant == nil && tenant != "" {
		l.Tenant = &tenant
	}
}

// csvLine makes a line of a CSV record. Empty cells are left out.
func csvLine(header, record []string) (line, error) {
	fields := map[string]json.RawMessage{}
	written := map[string]json.RawMessage{} // kept as it was
	nested := map[string]map[string]json.RawMessage{"attributes": {}, "costs": {}, "headers": {}, "payload": {}}
	for i, name := range header {
		if i >= len(record) || record[i] == "" {
			continue
		}
		cell := record[i]
		quoted, err := json.Marshal(cell)
		if err != nil {
			return line{}, fmt.Errorf("%s: %w", name, err)
		}
		group, inner, isNested := strings.Cut(name, ".")
		switch {
		case isNested && group == "costs":
			if nested[group][inner] = json.RawMessage(cell); !json.Valid(nested[group][inner]) {
				return line{}, fmt.Errorf("%s: %.40q is not a number", name, cell)
			}
		case isNested:
			nested[group][inner] = quoted
		case name == "cost" || name == "costs" || name == "max_attempts" || name == "payload" || name == "attributes" || name == "headers" ||
			name == "on_success" || name == "on_failure":
			if !json.Valid([]byte(cell)) {
				return line{}, fmt.Errorf("%s: %.40q is not JSON", name, cell)
			}
			if fields[name] = json.RawMessage(cell); name == "payload" || strings.HasPrefix(name, "on_") {
				fields[name], written[name] = json.RawMessage(`{}`), json.RawMessage(cell)
			}
		default:
			fields[name] = quoted
		}
	}
	for group, values := range nested {
		if len(values) == 0 {
			continue
		}
		if fields[group] != nil {
			return line{}, fmt.Errorf("%s: there are columns %s and %s.…; use one form", group, group, group)
		}
		text, err := json.Marshal(values)
		if err != nil {
			return line{}, fmt.Errorf("%s: %w", group, err)
		}
		fields[group] = text
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return line{}, err
	}
	l, err := parseLine(text)
	for name, field := range map[string]*json.RawMessage{"payload": &l.Payload, "on_success": &l.OnSuccess, "on_failure": &l.OnFailure} {
		if written[name] != nil {
			*field = written[name]
		}
	}
	return l, err
}

// checkHeader refuses a CSV header that names what a job does not have.
func checkHeader(header []string) error {
	seen := map[string]bool{}
	for _, name := range header {
		group, inner, isNested := strings.Cut(name, ".")
		switch {
		case isNested && (group == "attributes" || group == "costs" || group == "headers" || group == "payload") && inner != "":
		case !slices.Contains(lineFields, name):
			return fmt.Errorf("column %.60q: unknown field%s", name, queue.Suggest(name, lineFields))
		}
		if seen[name] {
			return fmt.Errorf("column %s stands twice", name)
		}
		seen[name] = true
	}
	return nil
}
