// Package check reports what is wrong with names and texts, and makes texts fit to be shown
// or stored.
package check

import (
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The maximum lengths of names, in bytes.
const (
	MaxTenant = 128
	MaxKey    = 256
)

var (
	KindPattern      = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)
	QueuePattern     = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	AttributePattern = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)
)

// Text returns why text cannot be the name of a tenant or a key, or "" if it can. most is the
// maximum length in bytes.
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

// Quote returns text as a quoted string. It cuts a text of more than 60 bytes.
func Quote(text string) string {
	if len(text) > 60 {
		text = strings.ToValidUTF8(text[:60], "") + "…"
	}
	return strconv.Quote(text)
}

// MaxErrors is how many errors are listed of an input that can have any number of them. If there
// are more, one more is listed, with the reason AndMore.
const (
	MaxErrors = 100
	AndMore   = "this is invalid too, and there may be more"
)

// maxCandidates is among how many names [Suggest] looks for a similar one.
const maxCandidates = 1000

// SuggestAmong is [Suggest] with names in any order.
func SuggestAmong(word string, names iter.Seq[string]) string {
	var candidates []string
	for name := range names {
		if len(candidates) == maxCandidates {
			return "" // before they are all sorted, which takes long for many words
		}
		candidates = append(candidates, name)
	}
	slices.Sort(candidates)
	return Suggest(word, candidates)
}

// Suggest returns `; did you mean "…"?` with the candidate most like word, or "" if none is
// similar. Words that are longer than any name, and more than 1,000 candidates, are not compared,
// because that takes long.
func Suggest(word string, candidates []string) string {
	if len(word) > MaxTenant || len(candidates) > maxCandidates {
		return ""
	}
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

// distance returns the Levenshtein distance of two words.
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

// Printable returns text as one line of valid UTF-8 without control characters, cut to most
// bytes.
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

// MaxReason is the maximum length of a stored error text, in bytes.
const MaxReason = 1 << 10

// BoundReason returns an error's text as valid UTF-8 of at most [MaxReason] bytes. asynq's
// tools cannot decode a task whose error is not UTF-8.
func BoundReason(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > MaxReason {
		text = strings.ToValidUTF8(text[:MaxReason-len("…")], "") + "…"
	}
	return text
}

// MaxAhead is how far in the future a time may be.
const MaxAhead = 10 * 365 * 24 * time.Hour
