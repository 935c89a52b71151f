package redisproc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// child is one run of the server.
type child struct {
	process *os.Process
	version string
	gone    chan struct{} // closed once the process is gone and reaped
	release func()        // ends what else watched over the process; never nil
}

// startChild starts cmd on an OS thread that lives as long as the child does:
// on Linux the parent-death signal comes when the forking thread ends, and the
// runtime ends threads as it likes unless a goroutine is locked to them.
func startChild(cmd *exec.Cmd) (*child, error) {
	dieWithParent(cmd)
	c := &child{gone: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		c.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended shows in its log
			close(c.gone)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	release, err := watchParent(c.process.Pid)
	if err != nil {
		c.release = func() {}
		c.kill()
		return nil, err
	}
	c.release = release
	return c, nil
}

func (c *child) signal(s os.Signal) error { return c.process.Signal(s) }

func (c *child) kill() {
	_ = c.process.Kill()
	<-c.gone
	c.release()
}

// waitReady returns once this child, and not another server on its port,
// answers at addr.
func (c *child) waitReady(addr string) error {
	deadline := time.Now().Add(startTimeout)
	for {
		err := c.greet(addr)
		if err == nil {
			return nil
		}
		select {
		case <-c.gone:
			return errors.New("it ended at once")
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no answer within %v: %w", startTimeout, err)
		}
	}
}

func (c *child) greet(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\nINFO server\r\n"); err != nil {
		return err
	}
	reply := bufio.NewReader(conn)
	pong, err := reply.ReadString('\n')
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(pong, "-NOAUTH"): // it has a password, which is the caller's
		return nil
	case !strings.HasPrefix(pong, "+PONG"): // "-LOADING ..."
		return errors.New(strings.TrimSpace(pong))
	}
	info, err := readBulk(reply)
	if err != nil {
		return err
	}
	if pid := info["process_id"]; pid != strconv.Itoa(c.process.Pid) {
		return fmt.Errorf("%w: by the redis-server with pid %s", errPortTaken, pid)
	}
	c.version = info["redis_version"]
	return nil
}

// readBulk reads one bulk string of "name:value" lines.
func readBulk(reply *bufio.Reader) (map[string]string, error) {
	header, err := reply.ReadString('\n')
	if err != nil {
		return nil, err
	}
	size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(header, "$")))
	if err != nil || size < 0 {
		return nil, fmt.Errorf("INFO answered %q", header)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(reply, text); err != nil {
		return nil, err
	}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			values[name] = value
		}
	}
	return values, nil
}
