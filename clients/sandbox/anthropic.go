package sandbox

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// anthropic is the dialect of Anthropic. Sources: the pages on errors and rate limits
// (docs.anthropic.com/en/api), package shared of anthropic-sdk-go, and refusals quoted in public
// threads.
type anthropic struct{}

func (anthropic) path(path string) bool { return path == "/v1/messages" }

func (anthropic) key(r *http.Request) string { return r.Header.Get("X-Api-Key") }

func (anthropic) wrong(r *http.Request, c chat) string {
	switch {
	case r.Header.Get("Anthropic-Version") == "":
		return "anthropic-version: header is required"
	case c.Model == "":
		return "model: Field required"
	case c.MaxTokens < 1:
		return "max_tokens: Field required"
	case len(c.Messages) == 0:
		return "messages: at least one message is required"
	}
	return ""
}

func (anthropic) completion(id string, c chat, tokens int) any {
	reason := "end_turn"
	if c.MaxTokens <= tokens {
		reason = "max_tokens"
	}
	return object{
		"id": "msg_" + id, "type": "message", "role": "assistant", "model": c.Model,
		"content":     []object{{"type": "text", "text": answerText(tokens)}},
		"stop_reason": reason, "stop_sequence": nil,
		"usage": object{
			"input_tokens": c.prompt, "output_tokens": tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
			"service_tier": "standard",
		},
	}
}

func (anthropic) refusal(_ int, kind, code, words, id string) any {
	inner := object{"type": kind, "message": words}
	if code != "" {
		inner["details"] = object{"error_code": code}
	}
	return object{"type": "error", "error": inner, "request_id": "req_" + id}
}

func (anthropic) limited(s state) (kind, code, words string) {
	whose := "your organization's rate limit of"
	if s.tenant != "" {
		whose = "the rate limit for user " + s.tenant + " of"
	}
	n, unit := s.requests.limit, "requests"
	if s.inTokens {
		n, unit = s.tokens.limit, "tokens"
	}
	return "rate_limit_error", "", fmt.Sprintf(
		"This request would exceed %s %d %s per minute. For details, refer to: https://docs.anthropic.com/en/api/rate-limits. You can see the response headers for current usage. Please reduce the prompt length or the maximum tokens requested, or try again later.",
		whose, n, unit)
}

func (anthropic) headers(h http.Header, s state) {
	h.Set("Request-Id", "req_sandbox")
	h.Set("Anthropic-Organization-Id", "sandbox")
	for name, r := range map[string]reading{"Requests": s.requests, "Tokens": s.tokens} {
		if r.limited {
			h.Set("Anthropic-Ratelimit-"+name+"-Limit", strconv.Itoa(r.limit))
			h.Set("Anthropic-Ratelimit-"+name+"-Remaining", strconv.Itoa(r.left))
			h.Set("Anthropic-Ratelimit-"+name+"-Reset", s.at.Add(r.reset).UTC().Format(time.RFC3339))
		}
	}
}

func (anthropic) fault(f Fault, c chat) (status int, kind, code, words string) {
	switch f {
	case InsufficientQuota:
		return 400, "invalid_request_error", "", "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."
	case SpendLimit:
		year, month, _ := time.Now().UTC().Date()
		next := time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
		return 400, "invalid_request_error", "", "You have reached your specified API usage limits. You will regain access on " + next.Format("2006-01-02 at 15:04 MST") + "."
	case Overloaded:
		return 529, "overloaded_error", "", "Overloaded"
	case ContextLength:
		return 400, "invalid_request_error", "", fmt.Sprintf("prompt is too long: %d tokens > 200000 maximum", max(c.prompt, 200_001))
	case ContentPolicy:
		return 400, "invalid_request_error", "", "Output blocked by content filtering policy"
	case TooLarge:
		// Anthropic has no separate text for it: it is a normal 429.
		return 429, "rate_limit_error", "", "This request would exceed your organization's rate limit of tokens per minute. Please reduce the prompt length or the maximum tokens requested, or try again later."
	}
	return 500, "api_error", "", "Internal server error"
}

func (anthropic) status(status int) (kind, code, words string) {
	switch status {
	case 401:
		return "authentication_error", "", "invalid x-api-key"
	case 402:
		return "billing_error", "", "There is an issue with your billing or payment information."
	case 403:
		return "permission_error", "", "Your API key does not have permission to use the specified resource."
	case 404:
		return "not_found_error", "", "The requested resource could not be found."
	case 409:
		return "conflict_error", "", "The request conflicts with the current state of the resource."
	case 413:
		return "request_too_large", "", "Request exceeds the maximum size"
	case 429:
		return "rate_limit_error", "", "This request would exceed your organization's rate limit."
	case 504:
		return "timeout_error", "", "The request timed out while processing."
	case 529:
		return "overloaded_error", "", "Overloaded"
	}
	if status >= 500 {
		return "api_error", "", "Internal server error"
	}
	return "invalid_request_error", "", "Invalid request"
}
