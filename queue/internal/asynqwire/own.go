package asynqwire

import "strings"

// HeaderPrefix begins the names of our headers of a task; all others are the user's.
const HeaderPrefix = "headgate-"

// ReadHeaders is the user's part of a task's headers; nil when there is none.
func ReadHeaders(task map[string]string) map[string]string {
	var own map[string]string
	for name, value := range task {
		if strings.HasPrefix(name, HeaderPrefix) {
			continue
		}
		if own == nil {
			own = map[string]string{}
		}
		own[name] = value
	}
	return own
}
