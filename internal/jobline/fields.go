package jobline

import (
	"slices"
	"strings"
)

// Field describes a field of a [Line]. The documentation, the help of the commands and the
// OpenAPI document are made from it, or compared with it.
type Field struct {
	Name    string // in JSON, and the name of the column in CSV
	Doc     string // without a period at the end
	Default string // "" means none
}

// Required is the Default of fields that a job must have.
const Required = "required"

// Fields are the fields of a line, in the order in which people are told of them.
var Fields = []Field{
	{"kind", "Kind of the job, which names its handler: webhook, email, ai, payment, or a kind of your own", Required},
	{"tenant", "Tenant on whose behalf the call is made", Required},
	{"payload", "Input of the handler: any JSON, at most 1 MiB", Required},
	{"key", "Key that makes the job unique in its tenant and queue: enqueueing it again returns the existing job", ""},
	{"key_until", "With the value ended, the key is free once the job has ended", "once the job is deleted"},
	{"key_window", "How long the key stays taken from now, such as 5m, whatever happens to the job", ""},
	{"queue", "Queue in which the job waits", "the queue of its kind"},
	{"priority", "high, normal or low, relative to the other jobs of its tenant", "normal"},
	{"at", "Earliest time of the call, such as 2030-01-31T09:00:00Z", "now"},
	{"in", "Earliest time of the call as a duration from now, such as 90s", "now"},
	{"deadline", "Time after which the job expires if its call has not started", ""},
	{"max_attempts", "Max number of failed calls before the job is archived", "10"},
	{"cost", "Permits that the call takes from each limit without a unit", "1"},
	{"costs", "Permits that the call takes from limits with a unit, such as tokens", "at least the estimate for ai and email"},
	{"retention", "How long the completed job is kept, such as 24h", "24h with a key or follow-ups"},
	{"attributes", "Names and values that limits can use in per, besides tenant and the derived ones", ""},
	{"headers", "Names and values that the handler gets with the payload: at most 16, 1 KiB in all", ""},
	{"on_success", "Job with these same fields that is enqueued when this one completes", ""},
	{"on_failure", "Job with these same fields that is enqueued when this one ends without success", ""},
	{"callback", "URL that receives a POST when the job has ended", ""},
}

// names are the names of the fields.
var names = func() (all []string) {
	for _, f := range Fields {
		all = append(all, f.Name)
	}
	return all
}()

// Usage returns the help of a field for the command line.
func Usage(name string) string {
	f := Fields[slices.Index(names, name)]
	text := f.Doc
	if !strings.HasPrefix(text, "URL") {
		text = strings.ToLower(text[:1]) + text[1:]
	}
	switch f.Default {
	case "":
		return text
	case Required:
		return text + " (required)"
	}
	return text + " (default " + f.Default + ")"
}
