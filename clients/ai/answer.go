package ai

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// answer is a refusal, in any provider's format.
type answer struct {
	status  int
	isError bool   // the body is an error object
	isPage  bool   // the body is not JSON, so it is probably a proxy's
	kind    string // "rate_limit_error", "tokens"
	code    string // "insufficient_quota", "429"
	message string
	header  http.Header
	now     time.Time // by the provider's clock
}

// maxWords is the max number of bytes of a text that are kept.
const maxWords = 8 << 10

// answerOf parses errors of OpenAI, Azure, Anthropic and compatible servers:
//
//	{"error": {"message": …, "type": …, "code": …}}
//	{"type": "error", "error": {"type": …, "message": …, "details": {"error_code": …}}}
//	{"object": "error", "message": …, "type": …, "code": 400}       (vLLM before 0.10)
//	{"error": "model not found"}                                    (Ollama)
//	{"detail": …}, {"message": …}                                   (frameworks, gateways)
//
// Any other body is the message as a whole.
func answerOf(x *exchange) answer {
	a := answer{status: x.status, header: x.header, now: shared.Clock(x.header.Get("Date"))}
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
	a.message = cmp.Or(a.message, word(inner["message"]), word(inner["detail"]), clip(string(x.answer)))
	a.code = word(inner["code"])
	var details map[string]json.RawMessage
	if json.Unmarshal(inner["details"], &details) == nil {
		a.code = cmp.Or(word(details["error_code"]), a.code)
	}
	if inner["message"] != nil || a.isError {
		a.kind = word(inner["type"])
	}
	return a
}

// word returns a string, or else the JSON itself: codes can be numbers, and messages can be
// lists.
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

// wait returns how long the provider wants fewer calls; 0 if it does not say. A time stated for
// this call has precedence. Otherwise it is that of the headers: the longest of the empty
// meters, or the one that the error names. Headers say when a meter is full again, which is later
// than necessary.
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

// stated returns the longest wait that the answer states explicitly.
func (a answer) stated() time.Duration {
	return max(
		milliseconds(a.header.Get("Retry-After-Ms")),
		clients.ParseRetryAfter(a.header.Get("Retry-After"), a.now),
		waitIn(a.message),
	)
}
