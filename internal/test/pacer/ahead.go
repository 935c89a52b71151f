package pacer

import (
	"os/exec"
	"sync"
	"testing"
)

// Ahead returns the command of a process that runs before all others, where the system allows it.
// Processes that are measured need it, and the pacer beside them: on two cores the scheduler
// otherwise keeps each of them waiting for up to 6 ms, longer than the errors that are looked for.
func Ahead(program string, args ...string) *exec.Cmd {
	if realtime() {
		program, args = "chrt", append([]string{"--rr", "1", program}, args...)
	}
	return exec.Command(program, args...)
}

// PutAhead makes a running process one that [Ahead] could have started.
func PutAhead(t testing.TB, pid string) {
	t.Helper()
	if !realtime() {
		return
	}
	if out, err := exec.Command("chrt", "--all-tasks", "--rr", "--pid", "1", pid).CombinedOutput(); err != nil {
		t.Logf("chrt: %v: %s", err, out) // a thread can end meanwhile
	}
}

// realtime reports whether this system lets processes run before all others.
var realtime = sync.OnceValue(func() bool { return exec.Command("chrt", "--rr", "1", "true").Run() == nil })
