package store

import (
	"regexp"
	"strings"
)

// FoldReason replaces numbers and ids in a reason by #, so that reasons that differ only
// in these become equal, and removes the attempt. A word of eight or more characters with
// a digit is an id. The status of an answer, such as 503 in "answered 503", stays: it says
// what failed. message.lua does the same.
func FoldReason(reason string) string {
	before := ""
	return reasonWord.ReplaceAllStringFunc(TrimAttempt(reason), func(word string) string {
		const minID = 8
		isStatus := (before == "answered" || before == "status" || before == "HTTP") && status.MatchString(word)
		before = word
		switch {
		case isStatus:
			return word
		case len(word) >= minID && strings.ContainsAny(word, "0123456789"):
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
	status     = regexp.MustCompile(`^[1-5][0-9][0-9]$`)
	digits     = regexp.MustCompile(`[0-9]+`)
)
