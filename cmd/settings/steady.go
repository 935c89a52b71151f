package settings

import (
	"os"
	"runtime"
	"runtime/debug"
)

// Steady trades memory for even timing. A worker's heap is small, so Go would
// collect it many times a second, and each time calls leave some ms off their
// slots; and with few threads a busy one delays the timers of all. GOGC and
// GOMAXPROCS in the environment win.
func Steady() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(800)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(8, runtime.GOMAXPROCS(0)))
	}
}
