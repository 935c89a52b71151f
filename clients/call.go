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

// Call is what every call tells its provider about the job that it is made for.
type Call struct {
	Job     string // the job's id
	Tenant  string // on whose behalf
	Attempt int    // 1 for the first

	// IdempotencyKey is the same for all attempts of a job, so that a provider
	// that has seen it can tell a repeat from a new call.
	IdempotencyKey string

	// First is when the first attempt of the job was made that the provider may
	// have acted on; the attempt that is being made counts, and those that ended as
	// throttled or parked do not. Earlier than that is safe, later is not: the time
	// at which the job was enqueued will do. Providers forget idempotency keys, and
	// a call that comes too late is not sent then.
	//
	// Zero means that nobody knows. Clients to which it matters then take Attempt 1
	// for the first, and send no other.
	First time.Time
}

// Headers are the names and values to send; fields that are empty are left out.
// Job and tenant are escaped as [UnescapeHeader] undoes it. The idempotency key
// is nobody's to read back, so it is escaped only where a header cannot hold it.
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

// EscapeHeader makes any text safe as the value of a header: every byte that is
// not printable ASCII becomes %XX, and so do spaces, which headers lose at their
// ends and mail folds at, and '%' itself.
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

// UnescapeHeader is the text that [EscapeHeader] was given. A value that it did
// not make is returned as it is.
func UnescapeHeader(value string) string {
	if text, err := url.PathUnescape(value); err == nil {
		return text
	}
	return value
}

func unfit(r rune) bool { return r <= ' ' || r > '~' }
