package ai

import (
	"encoding/json"
	"sort"
	"time"
	"unicode/utf8"
)

// Usage is what the provider counted.
type Usage struct {
	// Prompt is in tokens, as the provider's limits count them: what Anthropic
	// read from its cache is left out, for it counts towards no limit there.
	Prompt int64 `json:"prompt"`

	// Completion is in tokens, with those that a model spent on thinking.
	Completion int64 `json:"completion"`

	Total int64 `json:"total"` // tokens
}

// Result is what came of a call. The zero Result is that of a call of which
// nothing is known.
type Result struct {
	ID    string `json:"id,omitempty"`    // the provider's, of the completion
	Model string `json:"model,omitempty"` // that answered

	// StopReason is why it ended, in the provider's words: "stop", "end_turn";
	// "length" or "max_tokens" when it was cut off; "content_filter" or "refusal"
	// when the model would not. All of them were charged, and are no errors.
	StopReason string `json:"stop_reason,omitempty"`

	Usage Usage `json:"usage"` // zero when the provider did not say

	// Completion is the provider's answer as it came. It is left out when the
	// Result would be more than [MaxResult].
	Completion json.RawMessage `json:"completion,omitempty"`

	// Truncated: Completion was left out, and Text holds as much of its text as
	// there is room for.
	Truncated bool   `json:"truncated,omitempty"`
	Text      string `json:"text,omitempty"`

	// Backoff is how long until the account has room for another call like this
	// one, by the provider's headers; 0 when none of its meters is empty, or none is
	// told.
	Backoff time.Duration `json:"-"`

	known bool // Usage is what was charged
}

// MaxResult is how many bytes the JSON of a Result has at most: a queue stores
// results of 64 KiB.
const MaxResult = 64 << 10

// Actual is what the call took of limits by unit: {"tokens": total}. It is zero
// for a call that the provider refused or that was never sent, and nil when
// nobody knows: no answer came, or one without usage. The estimate then stays.
func (r Result) Actual() map[string]int64 {
	if !r.known {
		return nil
	}
	return map[string]int64{"tokens": r.Usage.Total}
}

// free is the Result of a call that cost nothing.
func free() Result { return Result{known: true} }

// fit leaves out what is too large. text is the completion's.
func (r Result) fit(text string) Result {
	if r.bytes() <= MaxResult {
		return r
	}
	r.Completion, r.Truncated = nil, true
	// Escapes make the encoded text longer than the text by an unknown factor.
	longest := sort.Search(min(len(text), MaxResult)+1, func(n int) bool {
		r.Text = whole(text[:n])
		return r.bytes() > MaxResult
	}) - 1
	r.Text = whole(text[:max(longest, 0)])
	return r
}

// bytes is the length of the encoded Result. Encoding escapes <, > and &, also
// within the completion.
func (r Result) bytes() int {
	encoded, err := json.Marshal(r)
	if err != nil {
		return MaxResult + 1
	}
	return len(encoded)
}

// whole drops a character of which only a part is left.
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
