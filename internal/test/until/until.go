// Package until has tests wait for what no channel tells them: a change in Redis, or in another process.
package until

import (
	"testing"
	"time"
)

// limit is far more than a busy machine takes.
const limit = 3 * time.Minute

// Done polls until done returns true. If it never does, the test fails and says what it has waited for.
func Done(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); ; {
		asked := time.Now()
		if done() {
			return
		}
		now := time.Now()
		if now.After(end) {
			t.Fatalf("%s: not within %v", what, limit)
		}
		time.Sleep(max(5*time.Millisecond, 5*now.Sub(asked))) // asking takes little of the processor that it waits for
	}
}
