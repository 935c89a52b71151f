// Package silent is for tests of calls whose server gets a request and says nothing.
package silent

import (
	"testing"
	"time"
)

// Call makes a call with a short timeout. On a busy machine that may be over before the server has the request,
// and then it makes another call, with twice the time.
func Call(t testing.TB, arrived func() bool, call func(timeout time.Duration)) {
	t.Helper()
	for timeout := 20 * time.Millisecond; timeout < time.Minute; timeout *= 2 {
		if call(timeout); arrived() {
			return
		}
	}
	t.Fatal("the server gets no request")
}
