package ai

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/headgate/headgate/internal/strictjson"
)

// Request is the payload of an ai job: the body of a chat completion (OpenAI) or of a message
// (Anthropic), as documented by the provider. The encoded request types of the SDKs are such
// bodies. A Request encodes as the body itself.
//
// model and messages are required; max_tokens limits the cost. Other fields are passed to the
// provider unchanged. Streaming is refused, because the completion is stored as the job's result.
type Request json.RawMessage

// MarshalJSON returns the body.
func (r Request) MarshalJSON() ([]byte, error) { return json.RawMessage(r).MarshalJSON() }

// UnmarshalJSON keeps a copy of the body without checking it: see [Request.Validate].
func (r *Request) UnmarshalJSON(body []byte) error {
	return (*json.RawMessage)(r).UnmarshalJSON(body)
}

const (
	maxRequest  = 32 << 20 // Anthropic's max; OpenAI's is lower
	maxModel    = 256
	maxMessages = 100_000     // Anthropic's max
	maxTokens   = 100_000_000 // far more than any model allows
)

// Validate returns all errors that make the request invalid for every provider, joined, or nil.
// Their texts name the field, but not its value.
func (r Request) Validate() error {
	_, err := r.parse()
	return err
}

// fields has the fields of a request that this package uses.
type fields struct {
	all        map[string]json.RawMessage
	model      string
	completion int64 // max tokens of the answer; 0: not set
	choices    int64 // number of completions; 1 or more
}

func (r Request) parse() (fields, error) {
	if len(r) > maxRequest {
		return fields{}, fmt.Errorf("%d bytes; the maximum is %d", len(r), maxRequest)
	}
	all, err := members(r)
	if err != nil {
		return fields{}, err
	}
	f := fields{all: all, choices: 1}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	// Servers written in Go read Max_Tokens as max_tokens, and the last one counts.
	for _, used := range [...]string{"model", "messages", "stream", "max_tokens", "max_completion_tokens", "n"} {
		for name := range all {
			if name != used && strings.EqualFold(name, used) {
				wrong("%s: write it in lower case: some servers take it in any case", used)
				break
			}
		}
	}
	switch err := json.Unmarshal(all["model"], &f.model); {
	case all["model"] == nil || err == nil && f.model == "":
		wrong("model: it is missing")
	case err != nil:
		wrong("model: it is not a string")
	case len(f.model) > maxModel:
		wrong("model: %d bytes; the maximum is %d", len(f.model), maxModel)
	case strings.ContainsFunc(f.model, unicode.IsControl):
		wrong("model: it has control characters")
	}
	for _, problem := range messages(all["messages"]) {
		wrong("messages%s", problem)
	}
	if stream := all["stream"]; stream != nil {
		var on bool
		if err := json.Unmarshal(stream, &on); err != nil {
			wrong("stream: it is not true or false")
		} else if on {
			wrong("stream: streaming is not supported, because the whole completion is stored as the job's result: remove stream")
		}
	}
	// OpenAI has two names for the max. The larger one counts, because some servers ignore the newer
	// name.
	for _, name := range [...]string{"max_tokens", "max_completion_tokens"} {
		if n, problem := count(all[name], maxTokens); problem != "" {
			wrong("%s: %s", name, problem)
		} else {
			f.completion = max(f.completion, n)
		}
	}
	if n, problem := count(all["n"], 1000); problem != "" {
		wrong("n: %s", problem)
	} else if n > 1 {
		f.choices = n
	}
	return f, errors.Join(errs...)
}

// members returns the members of a JSON object. Duplicates are refused, because the provider
// might use the other one.
func members(body []byte) (map[string]json.RawMessage, error) {
	all, err := strictjson.Members(body, nil)
	if _, ok := errors.AsType[*strictjson.FieldError](err); err != nil && !ok {
		return nil, errors.New("the request is not a JSON object")
	}
	return all, err
}

func messages(value json.RawMessage) (problems []string) {
	var list []json.RawMessage
	switch err := json.Unmarshal(value, &list); {
	case value == nil || err == nil && len(list) == 0:
		return []string{": it is missing or empty"}
	case err != nil:
		return []string{": it is not a list"}
	case len(list) > maxMessages:
		return []string{fmt.Sprintf(": %d; the maximum is %d", len(list), maxMessages)}
	}
	for i, message := range list {
		var m struct {
			Role *string `json:"role"`
		}
		if err := json.Unmarshal(message, &m); err != nil || m.Role == nil || *m.Role == "" {
			return []string{fmt.Sprintf("[%d]: it has no role", i)}
		}
	}
	return nil
}

// count parses a whole number of 1 or more; 0 if there is none.
func count(value json.RawMessage, most int64) (n int64, problem string) {
	if value == nil || string(value) == "null" {
		return 0, ""
	}
	if err := json.Unmarshal(value, &n); err != nil || n < 1 || n > most {
		return 0, fmt.Sprintf("it is not a whole number from 1 to %d", most)
	}
	return n, ""
}
