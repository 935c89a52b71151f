// Package check tells whether names and texts can be accepted, and says what is wrong with those
// that cannot.
package check

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The longest names, in bytes.
const (
	MaxTenant = 128
	MaxKey    = 256
)

var (
	KindPattern      = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)
	QueuePattern     = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	AttributePattern = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)
)

// Text says why text cannot name a tenant or a key, or "".
func Text(text string, most int) string {
	switch {
	case text == "":
		return "it is empty"
	case len(text) > most:
		return fmt.Sprintf("%d bytes; the maximum is %d", len(text), most)
	case !utf8.ValidString(text):
		return "it is not UTF-8"
	case strings.ContainsFunc(text, unicode.IsControl):
		return Quote(text) + " has control characters"
	}
	return ""
}

// Quote quotes a text, of a long one the beginning.
func Quote(text string) string {
	if len(text) > 60 {
		text = strings.ToValidUTF8(text[:60], "") + "…"
	}
	return strconv.Quote(text)
}

// Suggest names the candidate that was probably meant: "; did you mean …?".
func Suggest(word string, candidates []string) string {
	best, least := "", len(word)/3+2
	for _, candidate := range candidates {
		if d := distance(word, candidate); d < least {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance is the Levenshtein distance of two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := before
			if a[i] != b[j] {
				substitute++
			}
			before = row[j+1]
			row[j+1] = min(substitute, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Printable is a text in one line of valid text, at most so long.
func Printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

const MaxReason = 1 << 10

// BoundReason makes an error's text fit to be stored: asynq's tools cannot decode a task
// whose error is not UTF-8.
func BoundReason(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= MaxReason {
		return text
	}
	end := MaxReason - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// MaxAhead is how far ahead a time may lie.
const MaxAhead = 10 * 365 * 24 * time.Hour
