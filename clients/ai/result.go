package ai

import (
	"encoding/json"
	"sort"
	"time"
	"unicode/utf8"
)

// Usage is the usage that the provider reported.
type Usage struct {
	// Prompt is the number of tokens that count towards the provider's limits. Tokens that
	// Anthropic read from its cache do not count.
	Prompt int64 `json:"prompt"`

	// Completion is the number of tokens, including those that the model spent on thinking.
	Completion int64 `json:"completion"`

	Total int64 `json:"total"` // tokens
}

// Result is the result of a call. The zero Result means that nothing is known about the call.
type Result struct {
	ID    string `json:"id,omitempty"`    // the provider's id of the completion
	Model string `json:"model,omitempty"` // the model that answered

	// StopReason is the provider's reason for the end of the completion: "stop" or "end_turn";
	// "length" or "max_tokens" if it was cut off; "content_filter" or "refusal" if the model
	// refused. All of these are charged and are not errors.
	StopReason string `json:"stop_reason,omitempty"`

	Usage Usage `json:"usage"` // zero if the provider did not report it

	// Completion is the provider's unchanged answer. It is omitted if the Result would exceed
	// [MaxResult].
	Completion json.RawMessage `json:"completion,omitempty"`

	// Truncated means that Completion was omitted, and that Text has as much of its text as
	// fits.
	Truncated bool   `json:"truncated,omitempty"`
	Text      string `json:"text,omitempty"`

	// Backoff is how long until the account has room for another call like this one, according
	// to the provider's headers; 0 if no meter is empty or reported.
	Backoff time.Duration `json:"-"`

	known bool // Usage is what was charged
}

// MaxResult is the max number of bytes of the JSON of a Result: a queue stores results of up to
// 64 KiB.
const MaxResult = 64 << 10

// Actual returns the actual costs of the call: {"tokens": total}. It is 0 tokens for a call that
// the provider refused or that was not sent. It is nil if the usage is unknown, because no answer
// came or it had no usage; the estimate then remains.
func (r Result) Actual() map[string]int64 {
	if !r.known {
		return nil
	}
	return map[string]int64{"tokens": r.Usage.Total}
}

// free returns the Result of a call that cost nothing.
func free() Result { return Result{known: true} }

// fit shortens the Result to MaxResult. text is the text of the completion.
func (r Result) fit(text string) Result {
	if r.bytes() <= MaxResult {
		return r
	}
	r.Completion, r.Truncated = nil, true
	// Escapes make the encoded text longer by an unknown factor.
	longest := sort.Search(min(len(text), MaxResult)+1, func(n int) bool {
		r.Text = whole(text[:n])
		return r.bytes() > MaxResult
	}) - 1
	r.Text = whole(text[:max(longest, 0)])
	return r
}

// bytes returns the length of the encoded Result. Encoding escapes <, > and &, also in the
// completion.
func (r Result) bytes() int {
	encoded, err := json.Marshal(r)
	if err != nil {
		return MaxResult + 1
	}
	return len(encoded)
}

// whole drops an incomplete character at the end.
func whole(text string) string {
	for i := 1; i <= utf8.UTFMax && i <= len(text); i++ {
		if b := text[len(text)-i]; utf8.RuneStart(b) {
			if !utf8.FullRuneInString(text[len(text)-i:]) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}
