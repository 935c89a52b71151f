package redact

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// MaxShown is the maximum number of bytes shown of a payload.
const MaxShown = 64 << 10

// Shown is a payload or a result as it is shown.
type Shown struct {
	Value     any  // JSON, text, or nil if it cannot be shown
	Bytes     int  // the total size
	Truncated bool // Value is incomplete
}

// Show returns JSON with secrets hidden, or text cut to MaxShown. Of other data it returns only
// the size.
func (f *Fields) Show(payload []byte) Shown {
	s := Shown{Bytes: len(payload)}
	if len(payload) == 0 {
		return s
	}
	if value, ok := decode(payload); ok {
		value = f.hide(value)
		text := encode(value)
		if len(text) <= MaxShown {
			s.Value = value
			return s
		}
		s.Truncated = true
		s.Value = strings.ToValidUTF8(string(text[:MaxShown]), "")
		return s
	}
	if !utf8.Valid(payload) || bytes.ContainsRune(payload, 0) || looksLikeJSON(payload) {
		s.Truncated = true // of invalid JSON the secret fields cannot be found
		return s
	}
	text := f.Text(string(payload))
	s.Truncated = len(text) > MaxShown
	s.Value = strings.ToValidUTF8(text[:min(len(text), MaxShown)], "")
	return s
}

// Texts hides the secret values of a map, such as headers.
func (f *Fields) Texts(texts map[string]string) map[string]string {
	if len(texts) == 0 {
		return nil
	}
	out := make(map[string]string, len(texts))
	for name, value := range texts {
		if out[name] = Hidden; !f.secret(name) {
			out[name] = f.Text(value)
		}
	}
	return out
}

func decode(text []byte) (value any, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return value, decoder.Decode(&value) == nil && !decoder.More()
}

func encode(value any) []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // truncated JSON is shown as text
	_ = encoder.Encode(value)    // what was decoded can be encoded
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}

func looksLikeJSON(text []byte) bool {
	text = bytes.TrimSpace(text)
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}

func (f *Fields) hide(value any) any {
	switch v := value.(type) {
	case map[string]any:
		number := v["cvc"] != nil || v["exp_month"] != nil || v["exp_year"] != nil // of a card
		for name, inner := range v {
			if f.secret(name) || number && plain(name) == "number" || plain(name) == "value" && f.named(v) {
				v[name] = Hidden
				continue
			}
			v[name] = f.hide(inner)
		}
	case []any:
		for i := range v {
			v[i] = f.hide(v[i])
		}
	case json.Number:
		if cards(v.String()) != v.String() {
			return Hidden
		}
	case string:
		if inner, ok := decode([]byte(v)); ok && looksLikeJSON([]byte(v)) {
			return string(encode(f.hide(inner)))
		}
		return f.Text(v)
	}
	return value
}

// named reports whether an object is a secret field, as in {"name": "X-Api-Key", "value": "…"}.
func (f *Fields) named(object map[string]any) bool {
	for _, field := range []string{"name", "key", "header"} {
		if name, ok := object[field].(string); ok && f.secret(name) {
			return true
		}
	}
	return false
}
