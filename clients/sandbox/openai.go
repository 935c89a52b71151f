package sandbox

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// openAI is the dialect of OpenAI. Sources: the API reference and the guides to rate limits and
// error codes (platform.openai.com/docs), error.go and ratelimit.go of go-openai, and refusals
// quoted in public threads.
type openAI struct{}

func (openAI) path(path string) bool {
	return path == "/v1/chat/completions" || path == "/chat/completions" ||
		strings.HasPrefix(path, "/openai/deployments/") && strings.HasSuffix(path, "/chat/completions")
}

func (openAI) key(r *http.Request) string {
	if key := r.Header.Get("Api-Key"); key != "" {
		return key // Azure's
	}
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func (openAI) wrong(_ *http.Request, c chat) string {
	switch {
	case c.Model == "":
		return "you must provide a model parameter"
	case len(c.Messages) == 0:
		return "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
	}
	return ""
}

func (openAI) completion(id string, c chat, tokens int) any {
	reason := "stop"
	if bound := c.bound(); bound > 0 && bound <= tokens {
		reason = "length"
	}
	choices := make([]object, c.choices())
	for i := range choices {
		choices[i] = object{
			"index": i, "logprobs": nil, "finish_reason": reason,
			"message": object{"role": "assistant", "content": answerText(tokens), "refusal": nil, "annotations": []any{}},
		}
	}
	tokens *= len(choices)
	return object{
		"id": "chatcmpl-" + id, "object": "chat.completion", "created": time.Now().Unix(), "model": c.Model, "choices": choices,
		"usage": object{
			"prompt_tokens": c.prompt, "completion_tokens": tokens, "total_tokens": c.prompt + tokens,
			"prompt_tokens_details":     object{"cached_tokens": 0, "audio_tokens": 0},
			"completion_tokens_details": object{"reasoning_tokens": 0, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
		},
		"service_tier": "default", "system_fingerprint": "fp_sandbox",
	}
}

func (openAI) refusal(_ int, kind, code, words, _ string) any {
	var c any
	if code != "" {
		c = code
	}
	return object{"error": object{"message": words, "type": kind, "param": nil, "code": c}}
}

func (openAI) limited(s state) (kind, code, words string) {
	who := "organization org-sandbox"
	preposition := "in"
	if s.tenant != "" {
		preposition, who = "for", "user "+s.tenant
	}
	kind, unit, r, requested := "requests", "requests per min (RPM)", s.requests, 1
	if s.inTokens {
		kind, unit, r, requested = "tokens", "tokens per min (TPM)", s.tokens, s.requested
	}
	// Rounded up to whole milliseconds, so that it is never too early.
	wait := time.Duration(math.Ceil(float64(s.wait)/1e6)) * time.Millisecond
	return kind, "rate_limit_exceeded", fmt.Sprintf(
		"Rate limit reached for %s %s %s on %s: Limit %d, Used %d, Requested %d. Please try again in %v. Visit https://platform.openai.com/account/rate-limits to learn more.",
		s.model, preposition, who, unit, r.limit, max(r.limit-r.left, 0), requested, wait)
}

func (openAI) headers(h http.Header, s state) {
	h.Set("X-Request-Id", "req_sandbox")
	h.Set("Openai-Organization", "org-sandbox")
	h.Set("Openai-Version", "2020-10-01")
	for name, r := range map[string]reading{"Requests": s.requests, "Tokens": s.tokens} {
		if r.limited {
			h.Set("X-Ratelimit-Limit-"+name, strconv.Itoa(r.limit))
			h.Set("X-Ratelimit-Remaining-"+name, strconv.Itoa(r.left))
			h.Set("X-Ratelimit-Reset-"+name, r.reset.Round(time.Millisecond).String())
		}
	}
}

func (openAI) fault(f Fault, c chat) (status int, kind, code, words string) {
	switch f {
	case InsufficientQuota:
		return 429, "insufficient_quota", "insufficient_quota", "You exceeded your current quota, please check your plan and billing details. For more information on this error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors."
	case SpendLimit:
		return 429, "insufficient_quota", "organization_spend_limit_exceeded", "Your organization has reached its spend limit. Raise or remove it in your organization's limits."
	case Overloaded:
		return 503, "service_unavailable_error", "server_is_overloaded", "The engine is currently overloaded, please try again later"
	case ContextLength:
		return 400, "invalid_request_error", "context_length_exceeded", fmt.Sprintf("This model's maximum context length is 8192 tokens. However, you requested %d tokens (%d in the messages, %d in the completion). Please reduce the length of the messages or completion.", c.prompt+c.bound(), c.prompt, c.bound())
	case ContentPolicy:
		return 400, "invalid_request_error", "content_policy_violation", "Your request was rejected as a result of our safety system."
	case TooLarge:
		return 429, "tokens", "rate_limit_exceeded", fmt.Sprintf("Request too large for %s in organization org-sandbox on tokens per min (TPM): Requested %d. The input or output tokens must be reduced in order to run successfully. Visit https://platform.openai.com/account/rate-limits to learn more.", c.Model, c.prompt)
	}
	return 500, "server_error", "", "The server had an error while processing your request. Sorry about that!"
}

func (openAI) status(status int) (kind, code, words string) {
	switch {
	case status == 401:
		return "invalid_request_error", "invalid_api_key", "Incorrect API key provided: sk-sandb***********7890. You can find your API key at https://platform.openai.com/account/api-keys."
	case status == 403:
		return "request_forbidden", "unsupported_country_region_territory", "Country, region, or territory not supported"
	case status == 404:
		return "invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."
	case status == 429:
		return "requests", "rate_limit_exceeded", "Rate limit reached"
	case status == 503:
		return "service_unavailable_error", "server_is_overloaded", "The engine is currently overloaded, please try again later"
	case status >= 500:
		return "server_error", "", "The server had an error while processing your request. Sorry about that!"
	}
	return "invalid_request_error", "", "Invalid request"
}
