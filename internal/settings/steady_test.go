package settings

import (
	"errors"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// TestSteady: what the environment says is left alone, Go's own threads are not
// multiplied, and the heap that GOGC lets grow stays within the container's memory.
func TestSteady(t *testing.T) {
	none := func() (uint64, error) { return 0, memlimit.ErrNoLimit }
	broken := func() (uint64, error) { return 0, errors.New("no cgroups here") }
	for name, test := range map[string]struct {
		environment map[string]string
		container   memlimit.Provider
		given       int // threads, by Go
		procs, gogc int
		limit       int64
	}{
		"nothing is said":        {nil, none, 2, 3, 800, math.MaxInt64},
		"a machine of four":      {nil, none, 4, 4, 800, math.MaxInt64},
		"a machine of twelve":    {nil, none, 12, 12, 800, math.MaxInt64},
		"a container":            {nil, memlimit.Limit(512 << 20), 2, 3, 800, 512 << 20 / 10 * 9},
		"cgroups cannot be read": {nil, broken, 2, 3, 800, math.MaxInt64},
		"threads are said":       {map[string]string{"GOMAXPROCS": "1"}, none, 1, 1, 800, math.MaxInt64},
		"collections are said":   {map[string]string{"GOGC": "50"}, none, 2, 3, 100, math.MaxInt64},
		"the memory is said":     {map[string]string{"GOMEMLIMIT": "100MiB"}, memlimit.Limit(512 << 20), 2, 3, 800, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"GOGC", "GOMAXPROCS", "GOMEMLIMIT"} {
				t.Setenv(variable, "") // so that it is put back
				os.Unsetenv(variable)
				if value, said := test.environment[variable]; said {
					os.Setenv(variable, value)
				}
			}
			// What Go itself makes of the environment at the start is not here.
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(test.given))
			defer debug.SetGCPercent(debug.SetGCPercent(100))
			defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
			steady(test.container)
			procs, gogc, limit := runtime.GOMAXPROCS(0), debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
			if procs != test.procs || gogc != test.gogc || limit/(1<<20) != test.limit/(1<<20) {
				t.Errorf("%d threads, GOGC %d, %d bytes; want %d, %d, %d", procs, gogc, limit, test.procs, test.gogc, test.limit)
			}
		})
	}
}
