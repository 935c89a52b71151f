package boottime

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBootTime: Now follows the boot clock, also after the machine slept.
func TestBootTime(t *testing.T) {
	check := func() {
		t.Helper()
		for range 1000 {
			before := askBootClock(t)
			got := Now()
			if after := askBootClock(t); got < before-maxDrift || got > after+maxDrift {
				t.Fatalf("%v; want %v to %v", got, before, after)
			}
		}
	}
	check()
	// While the machine slept, the monotonic clock stood still: the others are further
	// ahead of it.
	known := *askBoot()
	bootKnown.Store(&bootOffsets{known.wall - time.Hour, known.boot - time.Hour})
	check()
	// The wall clock was set.
	bootKnown.Store(&bootOffsets{known.wall + time.Hour, known.boot})
	check()
}

func askBootClock(t *testing.T) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

func BenchmarkBootTime(b *testing.B) {
	for b.Loop() {
		Now()
	}
}
