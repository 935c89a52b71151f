package store

import (
	"regexp"
	"strings"
)

// FoldReason replaces numbers and ids in a reason by #, so that reasons that differ only
// in these become equal. A word of eight or more characters with a digit is an id.
// message.lua does the same.
func FoldReason(reason string) string {
	return reasonWord.ReplaceAllStringFunc(reason, func(word string) string {
		const minID = 8
		if len(word) >= minID && strings.ContainsAny(word, "0123456789") {
			return "#"
		}
		return digits.ReplaceAllString(word, "#")
	})
}

var (
	reasonWord = regexp.MustCompile(`[A-Za-z0-9_-]+`)
	digits     = regexp.MustCompile(`[0-9]+`)
)
