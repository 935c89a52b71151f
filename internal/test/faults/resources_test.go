package faults

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ofResources are workers that lack something.
var ofResources = []scenario{
	{
		name: "files", fault: "one of two workers may open 40 files only, for 15 s",
		jobs: 2000, latency: time.Second,
		fleet: func(x *show) {
			x.Worker()
			w := x.Start([]string{"sh", "-c", `ulimit -n 40; exec "$0" "$@"`, filepath.Join(x.Bin, "worker")})
			x.Until(20*time.Second, "the worker is ready", w.Ready)
		},
		strike: func(x *show) {
			time.Sleep(15 * time.Second) // the fault itself
			x.Workers[1].Signal(syscall.SIGTERM)
			<-x.Workers[1].Done
		},
	},
	{
		name: "versions", fault: "a worker built from an older commit beside one of this commit; then both are replaced",
		jobs: 3000, latency: 50 * time.Millisecond,
		before: func(x *show) { x.program = x.older() },
		fleet: func(x *show) {
			x.Worker()
			w := x.Start([]string{x.program})
			x.Until(20*time.Second, "the older worker is ready", w.Ready)
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

// older builds the worker of an older commit: of the one ten before this.
func (x *show) older() string {
	x.T.Helper()
	const root = "../../.."
	dir := x.T.TempDir()
	commit, err := exec.Command("git", "-C", root, "rev-parse", "HEAD~10").Output()
	if err != nil {
		x.T.Skipf("it needs git, and the history of this repository: %v", err)
	}
	x.T.Logf("the older worker is of commit %s", commit)
	tree := exec.Command("sh", "-c", `git -C "$0" archive "$1" | tar -x -C "$2"`, root, strings.TrimSpace(string(commit)), dir)
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
