package queue

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/asynqwire"
)

// How many headers a job may have, and how many bytes of names and values.
const (
	MaxHeaders     = 16
	MaxHeaderBytes = 1024
)

var headerPattern = regexp.MustCompile(`^[a-z0-9-]+$`)

// headersProblem says why headers cannot be carried, or "".
func headersProblem(headers map[string]string) string {
	if len(headers) > MaxHeaders {
		return fmt.Sprintf("%d are more than %d", len(headers), MaxHeaders)
	}
	bytes := 0
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value := headers[name]
		bytes += len(name) + len(value)
		if !headerPattern.MatchString(name) {
			return fmt.Sprintf("the name %s is not of a-z, 0-9 and '-'", check.Quote(name))
		}
		if strings.HasPrefix(name, asynqwire.HeaderPrefix) {
			return fmt.Sprintf("the name %s is taken: it begins with %s", check.Quote(name), asynqwire.HeaderPrefix)
		}
		if reason := check.Text(value, MaxHeaderBytes); value != "" && reason != "" {
			return name + ": " + reason
		}
	}
	if bytes > MaxHeaderBytes {
		return fmt.Sprintf("%d bytes of names and values are more than %d", bytes, MaxHeaderBytes)
	}
	return ""
}
