package ai

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/clients"
)

// answer is a refusal, whichever dialect it came in.
type answer struct {
	status  int
	isError bool   // the body says that it is one
	isPage  bool   // the body is not JSON: somebody in between answered
	kind    string // "rate_limit_error", "tokens"
	code    string // "insufficient_quota", "429"
	message string
	header  http.Header
	now     time.Time // by the provider's clock
}

// maxWords is how much of a body is looked at for words.
const maxWords = 8 << 10

// answerOf reads what OpenAI, Azure, Anthropic, and what copies them send:
//
//	{"error": {"message": …, "type": …, "code": …}}
//	{"type": "error", "error": {"type": …, "message": …, "details": {"error_code": …}}}
//	{"object": "error", "message": …, "type": …, "code": 400}       (vLLM before 0.10)
//	{"error": "model not found"}                                    (Ollama)
//	{"detail": …}, {"message": …}                                   (frameworks, gateways)
//
// What is none of these is a message as a whole.
func answerOf(x *exchange) answer {
	a := answer{status: x.status, header: x.header, now: clockOf(x.header)}
	var top map[string]json.RawMessage
	if json.Unmarshal(x.answer, &top) != nil {
		a.message, a.isPage = clip(string(x.answer)), true
		return a
	}
	inner := top
	if value := top["error"]; value != nil {
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) == nil && object != nil {
			inner, a.isError = object, true
		} else if text := word(value); text != "" {
			a.isError, a.message = true, text
		}
	}
	if word(top["object"]) == "error" {
		a.isError = true
	}
	if a.message == "" {
		a.message = word(inner["message"])
	}
	if a.message == "" {
		a.message = word(inner["detail"])
	}
	if a.message == "" {
		a.message = clip(string(x.answer))
	}
	a.code = word(inner["code"])
	var details map[string]json.RawMessage
	if json.Unmarshal(inner["details"], &details) == nil {
		if code := word(details["error_code"]); code != "" {
			a.code = code
		}
	}
	if inner["message"] != nil || a.isError {
		a.kind = word(inner["type"])
	}
	return a
}

// word is a text, or else the JSON itself: codes come as numbers, too, and
// messages as lists.
func word(value json.RawMessage) string {
	var text string
	if value == nil || string(value) == "null" {
		return ""
	}
	if json.Unmarshal(value, &text) != nil {
		text = string(value)
	}
	return clip(text)
}

func clip(text string) string { return strings.TrimSpace(text[:min(len(text), maxWords)]) }

// clockOf is the provider's clock, against which its dates are to be held.
func clockOf(header http.Header) time.Time {
	if now, err := http.ParseTime(header.Get("Date")); err == nil {
		return now
	}
	return time.Now()
}

// wait is how long the provider wants fewer calls; 0 when it does not say. What
// it states for this call wins. The meters' headers tell when a meter is full
// again, which is later than needed, so they stand in only where nothing is
// stated: the longest of the empty ones, or the one that the error names.
func (a answer) wait() time.Duration {
	if wait := a.stated(); wait > 0 {
		return wait
	}
	all := metersOf(a.header, a.now)
	if wait := all.empty(); wait > 0 {
		return wait
	}
	return all.reset(a.kind)
}

// stated is the longest wait that is told in so many words.
func (a answer) stated() time.Duration {
	return max(
		milliseconds(a.header.Get("Retry-After-Ms")),
		clients.ParseRetryAfter(a.header.Get("Retry-After"), a.now),
		waitIn(a.message),
	)
}
