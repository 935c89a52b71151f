package ai

import (
	"bytes"
	"cmp"
	"encoding/json"
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
// The prompt is estimated as one token for every 3 bytes of text in messages, system, tools and all
// other fields but metadata and logit_bias, 4 tokens for each message, one for each member of other
// lists and objects, and 1,600 for each image, sound or document in the content of a message,
// encoded or by URL. The completion is max_tokens or max_completion_tokens, whichever is larger,
// times n. Without a maximum it is 1,024 times n, which long answers exceed. Long documents use more
// tokens too: set the costs of such jobs yourself.
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
	for name, text := range f.all {
		if name == "model" || name == "metadata" || name == "logit_bias" {
			continue // the model does not see them
		}
		var value any
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber() // a number can be out of the range of float64
		if decoder.Decode(&value) != nil {
			s.text += int64(len(text))
			continue
		}
		switch list, ok := value.([]any); {
		case ok && name == "messages":
			s.messages(list)
		case !setting(value):
			s.add(value)
		}
	}
	return (s.text+bytesPerToken-1)/bytesPerToken + s.media*perMedia + s.separators
}

// setting reports whether a field, such as temperature, has no text.
func setting(value any) bool {
	switch value.(type) {
	case json.Number, bool, nil:
		return true
	}
	return false
}

// size is the size of a prompt: bytes of text, the number of media, and tokens besides these.
type size struct{ text, media, separators int64 }

func (s *size) messages(list []any) {
	s.separators += int64(len(list)) * perMessage
	for _, element := range list {
		message, _ := element.(map[string]any)
		for name, value := range message {
			s.text += int64(len(name))
			if name == "content" || name == "images" { // OpenRouter has generated images beside the content
				s.content(value)
			} else {
				s.add(value)
			}
		}
	}
}

// content adds the content of a message, of a tool's result or of a document: a text or parts.
func (s *size) content(value any) {
	parts, ok := value.([]any)
	if !ok {
		s.add(value)
		return
	}
	s.separators += int64(len(parts))
	for _, element := range parts {
		if part, ok := element.(map[string]any); ok {
			s.part(part)
		} else {
			s.add(element)
		}
	}
}

// part adds a part of a content, in OpenAI's or Anthropic's format. The length of an encoded picture,
// sound or file says nothing about its tokens. These are found by their place, because text, or the
// input of a tool, can look like them.
func (s *size) part(part map[string]any) {
	before := s.media
	for name, value := range part {
		s.text += int64(len(name))
		switch name {
		case "image_url", "image", "video_url", "audio_url", "input_audio", "file", "file_id":
			s.encoded(value)
		case "source":
			switch source, _ := value.(map[string]any); source["type"] {
			case "base64", "url", "file":
				s.encoded(value)
			case "content":
				s.part(source)
			default:
				s.add(value)
			}
		case "content":
			s.content(value)
		default:
			s.add(value)
		}
	}
	if part["type"] == "image" && s.media == before {
		s.media++ // in the format of another provider
	}
}

// encoded adds a picture, a sound or a file: its encoding, URL or id, or an object with one of them.
func (s *size) encoded(value any) {
	if _, ok := value.(string); ok {
		s.media++
		return
	}
	object, ok := value.(map[string]any)
	if !ok {
		s.add(value)
		return
	}
	for name, value := range object {
		s.text += int64(len(name))
		_, isText := value.(string)
		if isText && (name == "url" || name == "data" || name == "file_data" || name == "file_id") {
			s.media++
		} else {
			s.add(value)
		}
	}
}

// add adds text, or a value that the provider shows to the model as JSON.
func (s *size) add(value any) {
	switch v := value.(type) {
	case string:
		s.text += int64(len(v))
	case []any:
		s.separators += int64(len(v))
		for _, element := range v {
			s.add(element)
		}
	case map[string]any:
		s.separators += int64(len(v))
		for name, element := range v {
			s.text += int64(len(name))
			s.add(element)
		}
	case json.Number:
		s.text += max(int64(len(v)), 4)
	default: // true, false or null
		s.text += 4
	}
}
