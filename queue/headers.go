package queue

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/check"
)

// How many headers a job may have, and how many bytes of names and values.
const (
	MostHeaders     = 16
	MostHeaderBytes = 1024
)

// Among the headers of a task, ours begin with this; all others are the user's.
const headerPrefix = "headgate-"

var headerPattern = regexp.MustCompile(`^[a-z0-9-]+$`)

// headersProblem says why headers cannot be carried, or "".
func headersProblem(headers map[string]string) string {
	if len(headers) > MostHeaders {
		return fmt.Sprintf("%d are more than %d", len(headers), MostHeaders)
	}
	bytes := 0
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value := headers[name]
		bytes += len(name) + len(value)
		if !headerPattern.MatchString(name) {
			return fmt.Sprintf("the name %s is not of a-z, 0-9 and '-'", check.Quote(name))
		}
		if strings.HasPrefix(name, headerPrefix) {
			return fmt.Sprintf("the name %s is taken: it begins with %s", check.Quote(name), headerPrefix)
		}
		if reason := check.Text(value, MostHeaderBytes); value != "" && reason != "" {
			return name + ": " + reason
		}
	}
	if bytes > MostHeaderBytes {
		return fmt.Sprintf("%d bytes of names and values are more than %d", bytes, MostHeaderBytes)
	}
	return ""
}

// readHeaders is the user's part of a task's headers; nil when there is none.
func readHeaders(task map[string]string) map[string]string {
	var own map[string]string
	for name, value := range task {
		if strings.HasPrefix(name, headerPrefix) {
			continue
		}
		if own == nil {
			own = map[string]string{}
		}
		own[name] = value
	}
	return own
}
