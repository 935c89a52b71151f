// Package silent is for tests of calls whose server gets a request and says nothing.
package silent

import (
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
