package asynqwire

import "strings"

// HeaderPrefix begins the names of Headgate's headers of a task. All others are the
// user's.
const HeaderPrefix = "headgate-"

// ReadHeaders returns the user's headers of a task; nil if there are none.
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
