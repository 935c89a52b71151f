package queue

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is the time since the machine started, also while it slept: a slot
// that passed during a suspend is late, which the monotonic clock would hide.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(processStart)
	}
	return time.Duration(ts.Nano())
}
