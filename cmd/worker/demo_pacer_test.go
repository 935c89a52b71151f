package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPacer: what the machine takes from a process is what its pacer misses.
func TestPacer(t *testing.T) {
	began := time.Now()
	p, err := startPacer()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(p.out, make([]byte, 1)); err != nil {
		t.Fatal(err) // it has not begun
	}
	time.Sleep(200 * time.Millisecond) // of its own time
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for stopped := runtime.GOOS != "linux"; !stopped; time.Sleep(time.Millisecond) { // the system stops each thread when it gets to it
		stopped = true
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		if err != nil || len(threads) == 0 {
			t.Fatal("no threads: ", err)
		}
		for _, thread := range threads {
			text, err := os.ReadFile(thread)
			if err != nil {
				t.Fatal(err)
			}
			_, state, _ := strings.Cut(string(text), ") ")
			stopped = stopped && strings.HasPrefix(state, "T")
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("it is not stopped")
		}
	}
	const still = 300 * time.Millisecond
	time.Sleep(still)
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	got, err := p.stop()
	if err != nil {
		t.Fatal(err)
	}
	most := int(time.Since(began)/paceEvery) + 1
	t.Log(got)
	if got.Worst < still-paceEvery || got.Missed < int(still/paceEvery)-1 || got.Slots < got.Missed || got.Slots > most {
		t.Errorf("stopped for %v: %+v, of at most %d slots", still, got, most)
	}
	if got.Late < got.Missed || !got.excuses(int64(got.Late)) || !got.busy() || !strings.HasSuffix(got.String(), "this machine was busy") {
		t.Errorf("%v: late %d times, busy %v", got, got.Late, got.busy())
	}
	if quiet := (pace{Slots: 12000, Missed: 12, Worst: wayBound}); quiet.excuses(1) || quiet.busy() || !strings.HasSuffix(quiet.String(), "this machine was not busy") {
		t.Errorf("%v: busy %v", quiet, quiet.busy())
	}
}
