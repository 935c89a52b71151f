// Package redact hides secrets in what people see of payloads and errors. It goes by the names of
// fields, and by values that are secrets whatever their name: numbers of payment cards, tokens,
// and credentials in URLs. What it hides is only the shown copy.
package redact

import (
	"slices"
	"strings"
)

// Hidden stands in the place of a secret.
const Hidden = "[redacted]"

// Names of fields whose values are always hidden, in lower-case letters and digits only.
var (
	// parts make a name secret wherever they are in it.
	parts = []string{
		"password", "passwd", "passphrase", "passcode", "pwd", "secret", "authorization", "apikey", "accesskey", "privatekey", "signingkey",
		"credential", "cookie", "session", "signature", "jwt", "bearer", "cardnumber", "cvc", "cvv", "iban", "accountnumber", "ssn",
	}

	// words are too short for that: "pin" is in shipping, and "auth" in author.
	words = []string{"pass", "pin", "otp", "totp", "auth", "oauth", "sid", "pan"}

	// endings are for names without a mark between their words, such as accesstoken and dbpass.
	// A name that ends in tokens is a number.
	endings = []string{"token", "pass", "auth", "pin", "otp"}
)

// Fields says which fields are secret. Its zero value has the fields that always are.
type Fields struct{ more []string }

// New returns the fields that are always secret and those whose names have one of the texts.
func New(more []string) *Fields {
	f := &Fields{}
	for _, name := range more {
		if name = plain(name); name != "" {
			f.more = append(f.more, name)
		}
	}
	return f
}

// plain maps API-Key, api_key and apiKey to the same name.
func plain(name string) string {
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

// wordsOf splits a name at its marks, and where a capital begins a word.
func wordsOf(name string) []string {
	var marked strings.Builder
	small := false
	for _, r := range name {
		capital := 'A' <= r && r <= 'Z'
		if capital && small {
			marked.WriteByte(' ')
		}
		small = 'a' <= r && r <= 'z' || '0' <= r && r <= '9'
		marked.WriteRune(r)
	}
	return strings.FieldsFunc(strings.ToLower(marked.String()), func(r rune) bool {
		return (r < 'a' || 'z' < r) && (r < '0' || '9' < r) && r <= 127
	})
}

// secret reports whether the value of a field is hidden.
func (f *Fields) secret(name string) bool {
	within := func(part string) bool { return strings.Contains(plain(name), part) }
	return slices.ContainsFunc(parts, within) || slices.ContainsFunc(f.more, within) || weak(name)
}

// weak reports whether a name has a word that is often no secret in a sentence, such as
// "auth: 535 refused".
func weak(name string) bool {
	whole := plain(name)
	return slices.ContainsFunc(wordsOf(name), func(word string) bool { return slices.Contains(words, word) }) ||
		slices.ContainsFunc(endings, func(ending string) bool { return strings.HasSuffix(whole, ending) })
}
