//go:build !linux

package queue

import "time"

// bootTime is the time since the process started; elsewhere than on Linux Go
// offers no clock that also counts a suspended machine.
func bootTime() time.Duration { return time.Since(processStart) }
