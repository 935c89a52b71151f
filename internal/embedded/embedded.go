// Package embedded starts a Redis for the current program, to try things out without
// installing or configuring one.
//
// It runs redis-server if there is one of version 7 or later in PATH. Otherwise it runs
// miniredis, an imitation that handles about 700 jobs a second and 2,000 waiting jobs, and
// acknowledges writes as if it had a replica. Both listen on 127.0.0.1 only,
// keep everything in memory, never evict, and end with this process.
package embedded

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniredisserver "github.com/alicebob/miniredis/v2/server"

	"github.com/headgate/headgate/internal/redisproc"
)

// Options selects the Redis to start. The zero value starts redis-server if possible, on a
// free port.
type Options struct {
	Port      int  // on 127.0.0.1; 0: a free one
	Miniredis bool // even if there is a redis-server

	// Apart returns the command of a process that calls [Serve] with the port, so that collecting the garbage of
	// miniredis does not stop this process. nil: miniredis runs in this process.
	Apart func(port int) (*exec.Cmd, error)
}

// Redis is a running server.
type Redis struct {
	addr  string
	kind  string
	close func()
}

// Start starts a Redis and returns when it answers. The caller must close it. A redis-server
// older than 7.0 is not used.
func Start(options Options) (*Redis, error) {
	if !options.Miniredis {
		r, err := startServer(options.Port)
		if !errors.Is(err, errNoServer) {
			return r, err
		}
	}
	if options.Apart != nil {
		return startApart(options.Apart(options.Port))
	}
	return startMiniredis(options.Port)
}

// URL returns the server's redis:// URL.
func (r *Redis) URL() string { return "redis://" + r.addr }

// Kind returns the name of the server: "redis-server 7.0.15" or "miniredis".
func (r *Redis) Kind() string { return r.kind }

// Close stops the server and deletes its data. A second Close does nothing.
func (r *Redis) Close() { r.close() }

var errNoServer = errors.New("no redis-server to use")

func startServer(port int) (*Redis, error) {
	dir, err := os.MkdirTemp("", "headgate-redis-") // mode 0700
	if err != nil {
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	process, err := redisproc.Start(redisproc.Config{Port: port, Dir: dir})
	if err == nil && process.Major() < 7 {
		process.Kill()
		err = redisproc.ErrNotInstalled
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		if errors.Is(err, redisproc.ErrNotInstalled) {
			return nil, errNoServer
		}
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	return &Redis{
		addr: process.Addr(),
		kind: "redis-server " + process.Version(),
		close: sync.OnceFunc(func() {
			process.Kill() // there is nothing to save
			_ = os.RemoveAll(dir)
		}),
	}, nil
}

func startMiniredis(port int) (*Redis, error) {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr(net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err != nil {
		return nil, fmt.Errorf("embedded miniredis: %w", err)
	}
	// It stands for a Redis with a replica, so that jobs of queues that require one are accepted.
	server.Server().SetPreHook(func(c *miniredisserver.Peer, cmd string, _ ...string) bool {
		if cmd == "WAIT" {
			c.WriteInt(1)
		}
		return cmd == "WAIT"
	})
	stop := make(chan struct{})
	var aging sync.WaitGroup
	aging.Go(func() { age(server, stop) })
	return &Redis{
		addr: server.Addr(),
		kind: "miniredis",
		close: sync.OnceFunc(func() {
			close(stop)
			aging.Wait()
			server.Close()
		}),
	}, nil
}

// age expires miniredis's keys, which miniredis does not do by itself. Each step walks all
// keys, so it runs only once a second.
func age(server *miniredis.Miniredis, stop <-chan struct{}) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			now := time.Now()
			server.FastForward(now.Sub(last))
			last = now
		}
	}
}
