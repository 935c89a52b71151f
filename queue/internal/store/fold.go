package store

import (
	"regexp"
	"strings"
)

// FoldReason makes reasons alike that differ by numbers and ids: a word of eight
// letters or more with a digit in it is an id. message.lua does the same.
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
