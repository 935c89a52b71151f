// Package silent is for tests of calls whose server gets a request and says nothing.
package silent

import (
	"io"
	"net/http"
	"testing"
	"time"
)

// Call calls call with a short timeout. call makes one call, to a server of its own, and reports whether the request
// was sent. On a busy machine the time may be over before. Then it is called again, with twice the time.
func Call(t testing.TB, call func(timeout time.Duration) (sent bool)) {
	t.Helper()
	for timeout := 20 * time.Millisecond; timeout < time.Minute; timeout *= 2 {
		if call(timeout) {
			return
		}
	}
	t.Fatal("no request is sent")
}

// Whole reads the body of a request, and reports whether all of it came. If the time is over before, the call was not sent.
func Whole(r *http.Request) bool {
	n, err := io.Copy(io.Discard, r.Body)
	return err == nil && (r.ContentLength < 0 || n == r.ContentLength)
}
