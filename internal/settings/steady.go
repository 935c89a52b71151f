package settings

import (
	"os"
	"runtime"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// minProcs is one more than the least that Go gives. Where all threads are busy
	// for 10 ms, with a scrape or a batch of replies, the timers of held calls wait
	// for one of them: in BenchmarkHeld two threads miss 1.3 to 3 times as many slots
	// as three, and more than three gain little. Go knows the cores and the CPU limit
	// of its container, and where it gives more than that, its number stays.
	minProcs = 3

	// gcPercent trades memory for even timing. A worker's heap is small, so Go would
	// collect it many times a second, and each time calls leave some ms off their
	// slots.
	gcPercent = 800

	// memoryShare is the part of the container's memory that Go is to keep within, by
	// collecting more often. The rest is for what Go does not count.
	memoryShare = 0.9
)

// Steady sets the runtime for even timing. GOGC, GOMAXPROCS and GOMEMLIMIT in the
// environment win. Without GOMEMLIMIT, Go is to keep within the memory limit of the
// container (cgroup v1 or v2), if there is one.
func Steady() { steady(memlimit.FromCgroup) }

func steady(container memlimit.Provider) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// Set by hand, Go does not follow the container's CPU limit any more.
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < minProcs {
		runtime.GOMAXPROCS(minProcs)
	}
	// Where there are no cgroups there is no limit to follow.
	_, _ = memlimit.Set(memlimit.WithProvider(container), memlimit.WithRatio(memoryShare))
}
