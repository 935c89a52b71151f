package clients

import (
	"iter"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The headers that carry a [Call], in the spelling of HTTP/1.1 and of mail.
const (
	HeaderJob            = "Headgate-Job"
	HeaderTenant         = "Headgate-Tenant"
	HeaderAttempt        = "Headgate-Attempt"
	HeaderIdempotencyKey = "Idempotency-Key"
)

// Call is what every call tells its provider about its job.
type Call struct {
	Job     string // the job's id
	Tenant  string // on whose behalf
	Attempt int    // 1 for the first

	// OwnOnly means that the call may act only on what calls of the same tenant made, such as
	// refunds of its payments. The account of the provider has those of others, too.
	OwnOnly bool

	// IdempotencyKey is the same for all attempts of a job, so that the provider can distinguish
	// a repeat from a new call.
	IdempotencyKey string

	// First is the time of the job's first attempt on which the provider may have acted. The
	// current attempt counts; attempts that were throttled or postponed do not. An earlier time is
	// safe, such as when the job was enqueued, but a later time is not: providers forget
	// idempotency keys, and clients do not send a call after that.
	//
	// Zero means unknown. Clients that need it then send only Attempt 1.
	First time.Time

	// Unsure means that an earlier call for the job may have taken effect although its outcome is
	// not known. That can be so on Attempt 1: a call whose worker died spends no attempt.
	Unsure bool
}

// Headers returns the names and values of the headers to send, without those of empty fields.
// Job and tenant are escaped with [EscapeHeader]. The idempotency key is escaped only if it
// has characters that a header cannot hold, because no receiver needs to decode it.
func (c Call) Headers() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		attempt := ""
		if c.Attempt > 0 {
			attempt = strconv.Itoa(c.Attempt)
		}
		key := c.IdempotencyKey
		if strings.ContainsFunc(key, unfit) {
			key = EscapeHeader(key)
		}
		for _, header := range [...][2]string{
			{HeaderJob, EscapeHeader(c.Job)},
			{HeaderTenant, EscapeHeader(c.Tenant)},
			{HeaderAttempt, attempt},
			{HeaderIdempotencyKey, key},
		} {
			if header[1] != "" && !yield(header[0], header[1]) {
				return
			}
		}
	}
}

// EscapeHeader returns a text that is safe as the value of a header. Bytes other than printable
// ASCII become %XX. So do '%' and spaces, because headers are trimmed, and mail folds lines at
// spaces.
func EscapeHeader(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return unfit(r) || r == '%' }) {
		return text
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; unfit(rune(c)) || c == '%' {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// UnescapeHeader reverses [EscapeHeader]. It returns values that are not validly escaped
// unchanged.
func UnescapeHeader(value string) string {
	if text, err := url.PathUnescape(value); err == nil {
		return text
	}
	return value
}

func unfit(r rune) bool { return r <= ' ' || r > '~' }
