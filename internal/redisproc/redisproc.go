// Package redisproc runs a redis-server as a child of this process.
//
// A [Process] listens on 127.0.0.1 only, saves nothing unless its arguments
// say so, never evicts, and dies with its parent, also when the parent is
// killed. It is shared by the tests' Redis and the one of `worker dev`.
package redisproc

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrNotInstalled reports that there is no redis-server in PATH.
var ErrNotInstalled = errors.New("no redis-server in PATH")

const (
	startTimeout = 10 * time.Second // loading an append-only file counts
	stopTimeout  = 5 * time.Second  // for a clean exit, before the kill
)

// Config says which server to start.
type Config struct {
	Port int      // 0: a free one
	Dir  string   // for data and log; it must exist
	File string   // redis.conf, which a sentinel writes to; "": none
	Args []string // more redis.conf settings, as "--name", "value"; they win
	Env  []string // more environment variables
}

// Process is one redis-server: a port, a data folder, and at most one child.
// It is safe for concurrent use.
type Process struct {
	binary string
	port   int
	config Config

	mu    sync.Mutex
	child *child // nil when it was stopped
}

// Start runs a server and returns once it answers.
func Start(config Config) (*Process, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNotInstalled
	}
	p := &Process{binary: binary, port: config.Port, config: config}
	if config.Port != 0 {
		return p, p.start()
	}
	for range 20 { // a program that is not ours can take the port between the look and the start
		if p.port, err = ports.free(); err != nil {
			return nil, err
		}
		if err = p.start(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	return p, err
}

// Addr is the server's host:port.
func (p *Process) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// Version is what the running server calls itself, as in "7.0.15".
func (p *Process) Version() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil {
		return ""
	}
	return p.child.version
}

// Major is the first number of [Process.Version]; 0 when it is not known.
func (p *Process) Major() int {
	first, _, _ := strings.Cut(p.Version(), ".")
	major, _ := strconv.Atoi(first)
	return major
}

// Pause stops the server in its tracks: connections stay open, nothing is
// answered. It returns once no instruction of the server runs any more.
func (p *Process) Pause() error { return p.withChild("pause", (*child).pause) }

// Resume lets a paused server run on.
func (p *Process) Resume() error { return p.withChild("resume", (*child).resume) }

func (p *Process) withChild(verb string, do func(*child) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil {
		return fmt.Errorf("%s redis-server: it is not running", verb)
	}
	if err := do(p.child); err != nil {
		return fmt.Errorf("%s redis-server: %w", verb, err)
	}
	return nil
}

// Kill ends the server as a power cut would, and waits until it is gone.
// Killing a server that does not run does nothing.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child != nil {
		p.child.kill()
		p.child = nil
	}
}

// Stop ends the server cleanly, also a paused one, and waits until it is gone.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
}

func (p *Process) stop() {
	if p.child == nil {
		return
	}
	_ = p.child.resume() // only a running server hears the next signal
	_ = p.child.signal(syscall.SIGTERM)
	select {
	case <-p.child.gone:
		p.child.release()
	case <-time.After(stopTimeout):
		p.child.kill()
	}
	p.child = nil
}

// Restart stops the server if it runs and starts it again, with the same port
// and data folder. What was in memory only is lost.
func (p *Process) Restart() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
	return p.startChild()
}

func (p *Process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.startChild()
}

func (p *Process) startChild() error {
	log, err := os.Create(filepath.Join(p.config.Dir, "redis-server.log"))
	if err != nil {
		return fmt.Errorf("redis-server's log: %w", err)
	}
	defer log.Close()

	var args []string
	if p.config.File != "" {
		args = append(args, p.config.File) // it has to stand first
	}
	args = append(args,
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(p.port),
		"--dir", p.config.Dir,
		"--save", "",
		"--maxmemory-policy", "noeviction",
	)
	cmd := exec.Command(p.binary, append(args, p.config.Args...)...)
	cmd.Env = append(os.Environ(), p.config.Env...)
	cmd.Stdout, cmd.Stderr = log, log // files: no goroutine has to copy
	c, err := startChild(cmd)
	if err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	if err := c.waitReady(p.Addr()); err != nil {
		c.kill()
		said, _ := os.ReadFile(log.Name())
		if bytes.Contains(said, []byte("Address already in use")) {
			err = errPortTaken
		}
		return fmt.Errorf("redis-server on %s: %w; it said:\n%s", p.Addr(), err, lastLines(said, 8))
	}
	p.child = c
	return nil
}

var errPortTaken = errors.New("the port is in use")

func lastLines(text []byte, n int) []byte {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}
