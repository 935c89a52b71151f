package clients

import (
	"strings"
	"unicode"
)

// Printable makes a provider's text fit for a log: one line of at most most bytes, plus an
// ellipsis if it was cut, without characters that a terminal interprets or hides.
func Printable(text string, most int) string {
	var b strings.Builder
	space := false
	for _, r := range text {
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r):
			space = b.Len() > 0
			continue
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			r = '?' // also for invalid UTF-8
		}
		gap := 0
		if space {
			gap = 1
		}
		if b.Len()+gap+len(string(r)) > most {
			b.WriteString("…")
			break
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
	}
	return b.String()
}
