package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/test/stage"
)

// ofResources are workers that lack something.
var ofResources = []scenario{
	{
		name: "files", fault: "one of two workers may open 40 files only, for 15 s",
		jobs: 2000, latency: time.Second,
		fleet: func(x *show) {
			x.Worker()
			x.Start([]string{"sh", "-c", `ulimit -n 40; exec "$0" "$@"`, filepath.Join(x.Bin, "worker")})
		},
		strike: func(x *show) {
			time.Sleep(15 * time.Second) // the fault itself
			x.Workers[1].Signal(syscall.SIGTERM)
			<-x.Workers[1].Done
		},
		promise: promise{used: 0.5},
	},
	{
		name: "memory", fault: "one of two workers gets no more memory, and dies of jobs of 500 kB",
		jobs: 2500, latency: time.Second,
		strike: func(x *show) {
			w := x.Workers[1]
			x.noMoreMemory(w)
			x.large(60)
			x.Until(30*time.Second, "the worker is dead", func() bool {
				select {
				case <-w.Done:
					return true
				default:
					return false
				}
			})
		},
		promise: promise{twice: 200, again: 15 * time.Second, used: 0.5},
	},
	{
		name: "versions", fault: "a worker built from an older commit beside one of this commit; then both are replaced",
		jobs: 3000, latency: 50 * time.Millisecond,
		before: func(x *show) { x.program = x.older() },
		fleet: func(x *show) {
			x.Worker()
			x.Start([]string{x.program})
		},
		strike: func(x *show) {
			time.Sleep(8 * time.Second) // both are at work
			for i := range 2 {
				x.Worker()
				x.Workers[i].Signal(syscall.SIGTERM)
				<-x.Workers[i].Done
			}
		},
		promise: promise{used: 0.9},
	},
}

// noMoreMemory takes away what a process could allocate beyond what it has.
func (x *show) noMoreMemory(w *stage.Worker) {
	x.T.Helper()
	pid := strconv.Itoa(w.Cmd.Process.Pid)
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		x.T.Fatal(err)
	}
	_, data, _ := strings.Cut(string(status), "VmData:")
	var kib int
	if _, err := fmt.Sscan(data, &kib); err != nil {
		x.T.Fatalf("%v: %s", err, status)
	}
	if out, err := exec.Command("prlimit", "--pid", pid, fmt.Sprintf("--data=%d", kib*1024)).CombinedOutput(); err != nil {
		x.T.Fatalf("prlimit: %v: %s", err, out)
	}
}

// large enqueues n jobs of 500 kB of another tenant.
func (x *show) large(n int) {
	x.T.Helper()
	const other = "large"
	body := strings.Repeat("x", 500_000)
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"kind":"webhook","tenant":%q,"key":"%d","payload":{"url":"%s/","body":%q}}`+"\n", other, i, x.Calls, body)
		x.ids = append(x.ids, fmt.Sprintf("%s:%d", other, i))
	}
	x.Bulk(lines.String())
}

// olderCommit is that of the older worker, whose scripts differ from today's: the parent of 72e81c2f. After a change of what
// is stored that this worker cannot work with, move it to that change's commit or a later one, and once there are releases,
// to the last of them.
const olderCommit = "1b1c15f145a1d54cffc428e006325c4fbaf78a26"

// older builds the worker of the older commit.
func (x *show) older() string {
	x.T.Helper()
	const root = "../../.."
	dir := x.T.TempDir()
	diff := exec.Command("git", "-C", root, "diff", "--quiet", olderCommit, "HEAD", "--", "queue/internal/store/dispatch.lua", "queue/internal/store/settle.lua")
	switch out, err := diff.CombinedOutput(); {
	case err == nil:
		x.T.Fatalf("commit %s has the scripts of this one, so its worker is no older program", olderCommit)
	case diff.ProcessState.ExitCode() != 1:
		x.T.Fatalf("it needs git, and commit %s, so of a shallow clone run git fetch --unshallow: %v: %s", olderCommit, err, out)
	}
	tree := exec.Command("sh", "-c", `git -C "$0" archive "$1" | tar -x -C "$2"`, root, olderCommit, dir)
	if out, err := tree.CombinedOutput(); err != nil {
		x.T.Fatalf("%v: %s", err, out)
	}
	build := exec.Command("go", "build", "-o", "older-worker", "./cmd/worker")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		x.T.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "older-worker")
}
