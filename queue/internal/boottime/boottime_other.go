//go:build !linux

package boottime

import "time"

// Now returns the time since the process started. Only on Linux does Go offer a clock
// that also counts the time that a machine sleeps.
func Now() time.Duration { return time.Since(start) }
