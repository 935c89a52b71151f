package ai

import (
	"cmp"
	"encoding/json"
	"strings"
)

const (
	// bytesPerToken is low on purpose. English has about four bytes per token, code and most
	// other languages about three. A call that uses more than estimated exceeds the limit, while
	// one that uses less returns the rest.
	bytesPerToken = 3

	perMessage = 4    // separators between messages
	perMedia   = 1600 // an image at its largest; see [Request.Costs]

	// unbounded is the estimate for a completion without max_tokens.
	unbounded = 1024
)

// Costs returns the estimated costs of the request, for its job: {"tokens": prompt +
// completion}. It is 0 tokens for a request that [Request.Validate] refuses.
//
// The prompt is estimated as one token for every 3 bytes of text in messages, system and tools,
// 4 tokens for each message, and 1,600 for each image or document, encoded or by URL. The
// completion is max_tokens (or max_completion_tokens) times n. Without a maximum it is 1,024
// times n, which long answers exceed. Long documents use more tokens too: set the costs of such
// jobs yourself.
//
// [Result.Actual] corrects the estimate after the call.
func (r Request) Costs() map[string]int64 {
	f, err := r.parse()
	if err != nil {
		return map[string]int64{"tokens": 0}
	}
	return map[string]int64{"tokens": f.prompt() + f.bound()*f.choices}
}

// bound returns the max number of tokens of one completion.
func (f fields) bound() int64 {
	return cmp.Or(f.completion, unbounded)
}

func (f fields) prompt() int64 {
	var s size
	var list []json.RawMessage
	json.Unmarshal(f.all["messages"], &list)
	for _, name := range [...]string{"messages", "system", "tools", "functions", "response_format"} {
		var value any
		if json.Unmarshal(f.all[name], &value) == nil {
			s.add(value)
		}
	}
	return (s.text+bytesPerToken-1)/bytesPerToken + s.media*perMedia + int64(len(list))*perMessage
}

// size is the size of a prompt: bytes of text, and the number of media.
type size struct{ text, media int64 }

func (s *size) add(value any) {
	switch v := value.(type) {
	case string:
		if strings.HasPrefix(v, "data:") {
			s.media++
			return
		}
		s.text += int64(len(v))
	case []any:
		for _, element := range v {
			s.add(element)
		}
	case map[string]any:
		if media(v) {
			s.media++
			return
		}
		for name, element := range v {
			s.text += int64(len(name))
			s.add(element)
		}
	case float64, bool:
		s.text += 4
	}
}

// media reports whether an object is an image, a sound or a file, in OpenAI's or Anthropic's
// format. The size of its encoding says nothing about its tokens.
func media(object map[string]any) bool {
	switch object["type"] {
	case "image_url", "input_audio", "file", "image":
		return true
	case "document":
		source, _ := object["source"].(map[string]any)
		return source["type"] != "text" && source["type"] != "content"
	}
	return false
}
