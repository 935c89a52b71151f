package fdtable

import (
	"os"

	"golang.org/x/sys/unix"
)

// Grow makes room for n open files, or for as many as the process may have, if those are fewer. Linux doubles the table of
// open files when it is full, at 256, 512, 1024 and so on, and a process with threads stands still meanwhile, for up to
// tens of milliseconds: it waits until all processors have let go of the old table. Calls that open a connection then
// leave late, and those behind them on time.
func Grow(n int) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && uint64(n) > limit.Cur {
		n = int(limit.Cur)
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		return // it is no worse than before
	}
	defer file.Close()
	if last, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, n-1); err == nil {
		_ = unix.Close(last)
	}
}
