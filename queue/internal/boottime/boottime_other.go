//go:build !linux

package boottime

import "time"

// Now is the time since the process started; elsewhere than on Linux Go
// offers no clock that also counts a suspended machine.
func Now() time.Duration { return time.Since(start) }
