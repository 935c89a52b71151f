// Package jobline reads jobs as people and programs write them: one JSON object
// for each, as lines of NDJSON or records of CSV.
//
// Reading is strict: unknown and duplicate fields are mistakes. What cannot be judged by the
// line alone is left to the queue.
package jobline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/costs"
	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/validation"
)

// Payloads is what is known of the payloads of kinds.
type Payloads struct {
	// Check says what the handler of a kind would refuse for good; nil: nothing is
	// checked.
	Check func(kind string, payload json.RawMessage) []error

	// Costs is what a job takes of limits with a unit. A line can say more, and not less. nil:
	// what the line says.
	Costs func(kind string, payload json.RawMessage) map[string]int64
}

// Line is a job as it is written. Pointers tell what was left out from a zero
// that was written.
type Line struct {
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

	wrong []error // a [validation.Error] for each field that is unknown, duplicate or of another type
}

// Parse reads one line of NDJSON. What is wrong with single fields is told by [Line.Job], with
// all other mistakes.
func Parse(text []byte) (Line, error) {
	var l Line
	err := json.Unmarshal(text, &l)
	if err == nil && plainFields(text) {
		return l, nil
	}
	l = Line{}
	err = strictjson.Decode(text, &l)
	for _, field := range strictjson.FieldErrors(err) {
		l.wrong = append(l.wrong, validation.Field(check.Printable(field.Field, 60), field.Reason))
	}
	switch {
	case err == nil || len(l.wrong) > 0:
		return l, nil
	case errors.Is(err, strictjson.ErrNotObject):
		return Line{}, errors.New(`must be one object a line, such as {"kind":"webhook","tenant":"acme","payload":{…}}`)
	case errors.Is(err, strictjson.ErrTrailing):
		return Line{}, errors.New("there is more than one object on the line")
	}
	return Line{}, err
}

// fieldBits has a bit for each field.
var fieldBits = func() map[string]uint64 {
	bits := make(map[string]uint64, len(names))
	for i, name := range names {
		bits[name] = 1 << i
	}
	return bits
}()

// plainFields tells whether valid JSON is an object with fields of a job alone, each
// once and written plainly. It is the quick way for lines that have no mistake:
// [strictjson.Decode], which takes ten times as long, has to find none in them either.
func plainFields(text []byte) bool {
	rest := bytes.TrimLeft(text, " \t\r\n")
	if len(rest) == 0 || rest[0] != '{' {
		return false
	}
	seen := uint64(0)
	for rest = rest[1:]; ; {
		if rest = bytes.TrimLeft(rest, " \t\r\n,"); rest[0] == '}' {
			return true
		}
		end := 1 + bytes.IndexByte(rest[1:], '"') // a name with an escaped quote is none of ours
		bit := fieldBits[string(rest[1:end])]
		if bit == 0 || seen&bit != 0 {
			return false
		}
		seen |= bit
		rest = skipValue(bytes.TrimLeft(rest[end+1:], " \t\r\n:"))
	}
}

// skipValue is what follows the value at the beginning of valid JSON.
func skipValue(text []byte) []byte {
	depth := 0
	for i := 0; ; i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return text[i+1:]
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return text[i:] // of the object that the value stands in
			}
			if depth--; depth == 0 {
				return text[i+1:]
			}
		case ',':
			if depth == 0 {
				return text[i:]
			}
		}
	}
}

// Job makes the job of a line. The error joins a [validation.Error] for each field that is
// wrong.
func (l Line) Job(payloads Payloads) (queue.Job, error) {
	job, err := l.jobAt(0, payloads)
	if err == nil {
		return job, nil // the queue says itself what it refuses
	}
	// All mistakes are told at once, those of the queue among them.
	all := slices.Clone(validation.Unjoin(err))
	for _, err := range validation.Unjoin(job.Validate()) {
		wrong, ok := errors.AsType[*validation.Error](err)
		if ok && !slices.ContainsFunc(all, func(known error) bool {
			of, ok := errors.AsType[*validation.Error](known)
			return ok && of.Field == wrong.Field
		}) {
			all = append(all, err)
		}
	}
	return job, errors.Join(all...)
}

func (l Line) jobAt(depth int, payloads Payloads) (queue.Job, error) {
	var job queue.Job
	errs := slices.Clone(l.wrong)
	wrong := func(field, format string, args ...any) {
		errs = append(errs, validation.Field(field, fmt.Sprintf(format, args...)))
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
			wrong(field, "the year %d is before 2000", t.Year())
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
			wrong("max_attempts", "0 must be at least 1")
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
		var problems []error
		if payloads.Check != nil {
			problems = payloads.Check(job.Kind, l.Payload)
		}
		for _, err := range problems {
			if within, ok := errors.AsType[*validation.Error](err); ok {
				wrong("payload."+within.Field, "%s", within.Reason)
			} else {
				wrong("payload", "%v", err)
			}
		}
		if payloads.Costs != nil && len(problems) == 0 {
			job.Costs = costs.Larger(job.Costs, payloads.Costs(job.Kind, l.Payload))
		}
	}
	job.OnSuccess = followUp("on_success", l.OnSuccess, depth, payloads, &errs)
	job.OnFailure = followUp("on_failure", l.OnFailure, depth, payloads, &errs)
	if l.Callback != nil {
		if job.Callback = *l.Callback; job.Callback == "" {
			wrong("callback", "it is empty; leave it out for a job without one")
		}
	}
	return job, errors.Join(first(errs)...)
}

// first returns the first [check.MaxErrors] errors and one more: a payload, or the follow-ups
// together, can have as many mistakes as bytes.
func first(errs []error) []error {
	if len(errs) <= check.MaxErrors {
		return errs
	}
	more := errs[check.MaxErrors]
	if wrong, ok := errors.AsType[*validation.Error](more); ok {
		more = validation.Field(wrong.Field, check.AndMore)
	}
	return append(slices.Clone(errs[:check.MaxErrors]), more)
}

// maxNested bounds what is parsed: the queue takes 8 jobs that follow one
// another, and says so itself.
const maxNested = 9

// followUp makes the job of a field that holds one. Its errors name its fields
// with their path.
func followUp(field string, text json.RawMessage, depth int, payloads Payloads, errs *[]error) *queue.Job {
	if len(text) == 0 || string(text) == "null" {
		return nil
	}
	if depth == maxNested {
		return &queue.Job{}
	}
	l, err := Parse(text)
	if err != nil {
		*errs = append(*errs, validation.Field(field, err.Error()))
		return nil
	}
	job, err := l.jobAt(depth+1, payloads)
	*errs = append(*errs, validation.Under(field, err)...)
	return &job
}

// FillIn gives a line the defaults of flags where it has none of its own.
func (l *Line) FillIn(kind, tenant string) {
	if l.Kind == nil && kind != "" {
		l.Kind = &kind
	}
	if l.Tenant == nil && tenant != "" {
		l.Tenant = &tenant
	}
}
