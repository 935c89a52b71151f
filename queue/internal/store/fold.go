package store

import (
	"regexp"
	"strings"
)

// FoldReason replaces numbers and ids in a reason by #, so that reasons that differ only
// in these become equal, and removes the attempt. A word of eight or more characters with
// a digit is an id. message.lua does the same.
func FoldReason(reason string) string {
	return reasonWord.ReplaceAllStringFunc(TrimAttempt(reason), func(word string) string {
		const minID = 8
		if len(word) >= minID && strings.ContainsAny(word, "0123456789") {
			return "#"
		}
		return digits.ReplaceAllString(word, "#")
	})
}

// TrimAttempt removes the beginning of the reason of a job that has no attempts left, such
// as "attempt 3 of 3: ".
func TrimAttempt(reason string) string { return reason[len(attempt.FindString(reason)):] }

var (
	attempt    = regexp.MustCompile(`^attempt [0-9]+ of [0-9]+: `)
	reasonWord = regexp.MustCompile(`[A-Za-z0-9_-]+`)
	digits     = regexp.MustCompile(`[0-9]+`)
)
