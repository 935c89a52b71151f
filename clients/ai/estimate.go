package ai

import (
	"encoding/json"
	"strings"
)

const (
	// bytesPerToken is low on purpose. English has some four bytes a token, code
	// and most other languages about three, and a call that takes more than it
	// announced goes over the limit, while one that takes less gives the rest back.
	bytesPerToken = 3

	perMessage = 4    // what sets one message off from the next
	perMedia   = 1600 // an image at its largest; see Estimate

	// unbounded is taken for a completion without max_tokens.
	unbounded = 1024
)

// Estimate is what a request will take of limits by unit, for the costs of its
// job: {"tokens": prompt + completion}. It is 0 for a request that [Request.Validate]
// refuses. A limit in requests needs nothing of it.
//
// The prompt is guessed: a token for every 3 bytes of text in messages, system
// and tools, 4 for every message, and 1,600 for every image or document that
// stands in it, encoded or by its address. The completion is max_tokens (or
// max_completion_tokens) times n; 1,024 where the request does not bound it,
// which long answers exceed. Long documents cost more, too: give such jobs costs
// of your own.
//
// [Result.Actual] corrects the guess after the call.
func Estimate(r Request) map[string]int64 {
	f, err := r.parse()
	if err != nil {
		return map[string]int64{"tokens": 0}
	}
	return map[string]int64{"tokens": f.prompt() + f.bound()*f.choices}
}

// bound is how many tokens one completion may have.
func (f fields) bound() int64 {
	if f.completion > 0 {
		return f.completion
	}
	return unbounded
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

// size is what stands in a prompt.
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

// media tells whether an object is a picture, a sound or a file, in OpenAI's
// words or in Anthropic's. Its encoding says nothing about its tokens.
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
