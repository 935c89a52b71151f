package boottime

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the machine started, including the time that it slept. So a
// slot that passed during a suspend is late, which the monotonic clock would hide.
//
// Reading that clock is a system call, and a run reads it ten times. So Now adds an
// offset to the monotonic clock. It measures the offset again when the wall clock has
// moved against the monotonic one: a suspend does that, and so does setting the clock.
func Now() time.Duration {
	now := time.Now()
	monotonic := now.Sub(start)
	wall := time.Duration(now.UnixNano()) - monotonic
	known := bootKnown.Load()
	if known == nil || (wall-known.wall).Abs() > maxDrift {
		known = askBoot()
		bootKnown.Store(known)
	}
	return monotonic + known.boot
}

// bootOffsets is how far the wall clock and the boot clock are ahead of the monotonic
// one.
type bootOffsets struct{ wall, boot time.Duration }

var bootKnown atomic.Pointer[bootOffsets]

// maxDrift is smaller than any error of the boot clock that would matter.
const maxDrift = 100 * time.Microsecond

// askBoot reads both clocks. It reads them again if they were not read close together.
func askBoot() *bootOffsets {
	const tries, together = 10, 5 * time.Microsecond
	best, least := &bootOffsets{}, time.Duration(1<<62)
	for range tries {
		before := time.Now()
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			return best // every kernel since 2.6.39 knows it
		}
		took := time.Since(before)
		if took < least {
			monotonic := before.Sub(start)
			best, least = &bootOffsets{time.Duration(before.UnixNano()) - monotonic, time.Duration(ts.Nano()) - monotonic - took/2}, took
		}
		if took < together {
			break
		}
	}
	return best
}
