package clients

import (
	"strings"
	"unicode"
)

// Printable makes a provider's words fit for a log line: at most most bytes (and
// an ellipsis for what was cut off), in one line, with nothing that a terminal
// would act on or hide.
func Printable(text string, most int) string {
	var b strings.Builder
	space := false
	for _, r := range text {
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r):
			space = b.Len() > 0
			continue
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			r = '?' // also a byte that is not UTF-8
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
