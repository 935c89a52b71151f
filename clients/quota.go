package clients

import (
	"strings"
	"time"
)

// Quota is a limit of an account, as last reported by its provider.
type Quota struct {
	Name      string    // the provider's, such as "requests" or "input-tokens"
	Limit     int64     // the maximum; 0: not reported
	Remaining *int64    // nil: not reported
	ResetsAt  time.Time // when it is full again, by this machine's clock; zero: not reported

	// At is when the provider said it, by this machine's clock; zero: not known.
	At time.Time

	// Window is the time in which Limit flows back; 0: it is not known.
	Window time.Duration
}

// Unit is what limits call what Name counts: "" for requests, which are calls, or a unit such as input_tokens.
func (q Quota) Unit() string {
	if q.Name == "requests" {
		return ""
	}
	return strings.ReplaceAll(q.Name, "-", "_")
}
