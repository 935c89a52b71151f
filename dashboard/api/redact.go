package api

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"unicode/utf8"
)

// maxPayload is the max number of bytes shown of a payload.
const maxPayload = 64 << 10

const hidden = "[redacted]"

// secretNames are parts of names of fields whose values are always hidden, in lower-case
// letters and digits only.
var secretNames = []string{
	"password", "passwd", "passphrase", "secret", "authorization", "apikey", "accesskey", "privatekey", "credential",
	"cookie", "signature", "cardnumber", "cvc", "cvv", "iban", "accountnumber", "ssn",
}

// redaction hides values by the names of their fields, at any depth.
type redaction struct{ names []string }

func newRedaction(more []string) *redaction {
	r := &redaction{names: append([]string(nil), secretNames...)}
	for _, name := range more {
		if name = plainName(name); name != "" {
			r.names = append(r.names, name)
		}
	}
	return r
}

// plainName maps API-Key, api_key and apiKey to the same name.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r > 127:
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return -1
	}, name)
}

// hides reports whether the value of a field is hidden. The number of a card, beside its cvc,
// is handled by hide.
func (r *redaction) hides(name string) bool {
	name = plainName(name)
	if strings.HasSuffix(name, "token") { // max_tokens is a number
		return true
	}
	for _, secret := range r.names {
		if strings.Contains(name, secret) {
			return true
		}
	}
	return false
}

// shown is a payload or a result as it is shown.
type shown struct {
	Value     any  // JSON, text, or nil if it cannot be shown
	Bytes     int  // the total size
	Truncated bool // Value is incomplete
}

// show returns JSON with secrets hidden, or text cut to maxPayload. Of other data it returns
// only the size.
func (r *redaction) show(payload []byte) shown {
	s := shown{Bytes: len(payload)}
	if len(payload) == 0 {
		return s
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err == nil && !decoder.More() {
		value = r.hide(value)
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false) // truncated JSON is shown as text
		if err := encoder.Encode(value); err == nil && text.Len() <= maxPayload {
			s.Value = value
			return s
		}
		payload = bytes.TrimSuffix(text.Bytes(), []byte("\n"))
	} else if !utf8.Valid(payload) || bytes.ContainsRune(payload, 0) {
		s.Truncated = true
		return s
	} else if looksLikeJSON(payload) {
		// Invalid JSON: secret fields cannot be found, so nothing is shown.
		s.Truncated = true
		return s
	}
	s.Truncated = len(payload) > maxPayload
	s.Value = strings.ToValidUTF8(string(payload[:min(len(payload), maxPayload)]), "")
	return s
}

func looksLikeJSON(text []byte) bool {
	text = bytes.TrimSpace(text)
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}

func (r *redaction) hide(value any) any {
	switch v := value.(type) {
	case map[string]any:
		card := v["cvc"] != nil || v["exp_month"] != nil || v["exp_year"] != nil
		for name, inner := range v {
			if r.hides(name) || card && plainName(name) == "number" {
				v[name] = hidden
				continue
			}
			v[name] = r.hide(inner)
		}
	case []any:
		for i := range v {
			v[i] = r.hide(v[i])
		}
	case string:
		return r.hideInURL(v)
	}
	return value
}

// hideInURL hides the password of a URL and secret values of its query.
func (r *redaction) hideInURL(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return text
	}
	changed := false
	if _, has := u.User.Password(); has {
		u.User, changed = url.UserPassword(u.User.Username(), hidden), true
	}
	query := u.Query()
	for name := range query {
		if r.hides(name) || plainName(name) == "key" || plainName(name) == "sig" {
			query.Set(name, hidden)
			changed = true
		}
	}
	if !changed {
		return text
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// hideTexts hides the secret values of a map, such as headers.
func (r *redaction) hideTexts(texts map[string]string) map[string]string {
	if len(texts) == 0 {
		return nil
	}
	out := make(map[string]string, len(texts))
	for name, value := range texts {
		if out[name] = value; r.hides(name) {
			out[name] = hidden
		}
	}
	return out
}
