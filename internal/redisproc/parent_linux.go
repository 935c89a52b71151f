package redisproc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// dieWithParent also gives the child a process group of its own: Ctrl-C in the
// parent's terminal is the parent's to handle.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

func watchParent(int) (release func(), err error) { return func() {}, nil }

func (c *child) pause() error {
	if err := c.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Microsecond) {
		if stopped, err := threadsStopped(c.process.Pid); stopped || err != nil {
			return err
		}
	}
	return errors.New("it runs on after SIGSTOP")
}

func (c *child) resume() error { return c.signal(syscall.SIGCONT) }

// threadsStopped looks at all threads: Redis also writes from its background
// ones.
func threadsStopped(pid int) (bool, error) {
	tasks := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return false, err
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(tasks + "/" + thread.Name() + "/stat")
		if err != nil {
			return false, err
		}
		// "pid (name) state ...", and a name may hold anything
		if end := bytes.LastIndexByte(stat, ')'); end < 0 || !bytes.HasPrefix(stat[end+1:], []byte(" T")) {
			return false, nil
		}
	}
	return true, nil
}
