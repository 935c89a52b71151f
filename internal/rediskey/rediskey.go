// Package rediskey escapes arbitrary text for Redis keys.
package rediskey

import "strings"

// Escape escapes a text for a part of a Redis key: bytes other than letters, digits, '.', '_',
// '~', '-' and '@' become %XX. Different texts have different escaped forms.
func Escape(text string) string {
	var room [128]byte
	return string(AppendEscaped(room[:0], text))
}

// AppendEscaped appends the escaped text to b.
func AppendEscaped(b []byte, text string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("._~-@", c) >= 0:
			b = append(b, c)
		default:
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return b
}
