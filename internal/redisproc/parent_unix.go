//go:build unix && !linux

package redisproc

import (
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// dieWithParent gives the child a process group of its own: Ctrl-C in the
// parent's terminal is the parent's to handle. See watchParent for the rest.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// watchParent starts a shell that reads from a pipe whose other end only this
// process holds. When this process ends, however it ends, the read returns and
// the shell kills the server. There is no parent-death signal here.
func watchParent(pid int) (release func(), err error) {
	cmd := exec.Command("/bin/sh", "-c", `read -r _; kill -9 "$0"`, strconv.Itoa(pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = cmd.Process.Kill() // before the pipe: the pid may be another's by now
		_ = pipe.Close()
		_ = cmd.Wait()
	}, nil
}

func (c *child) pause() error {
	if err := c.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(10 * time.Millisecond) // nothing cheap tells that it has stopped
	return nil
}

func (c *child) resume() error { return c.signal(syscall.SIGCONT) }
