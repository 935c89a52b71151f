package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/internal/redisproc"
	"github.com/headgate/headgate/internal/test/until"
)

// Sentinel is a redis-sentinel. It makes a replica the primary if the primary fails, and tells
// clients the address of the primary.
type Sentinel struct {
	t       testing.TB
	process *redisproc.Process
	client  *redis.SentinelClient
	at      string // address of the first primary
}

const sentinelMaster = "main"

// StartSentinel starts a sentinel that monitors the server, and returns when it knows the server's
// replicas. It decides alone. After the server dies, it takes some seconds until a replica is the
// primary.
func (s *Server) StartSentinel(replicas ...*Server) *Sentinel {
	s.t.Helper()
	host, port := s.hostPort()
	dir := s.t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	config := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 1\n"+
		"sentinel down-after-milliseconds %[1]s 500\n"+
		"sentinel failover-timeout %[1]s 10000\n", sentinelMaster, host, port)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	process, err := redisproc.Start(redisproc.Config{Dir: dir, File: file, Args: []string{"--sentinel"}})
	if err != nil {
		s.t.Fatalf("redistest: sentinel: %v", err)
	}
	s.t.Cleanup(process.Kill)
	sentinel := &Sentinel{t: s.t, process: process, at: s.Addr(), client: redis.NewSentinelClient(&redis.Options{
		Addr:                     process.Addr(),
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})}
	s.t.Cleanup(func() { _ = sentinel.client.Close() })
	until.Done(s.t, "redistest: sentinel that knows the replicas", func() bool {
		known, err := sentinel.client.Replicas(s.t.Context(), sentinelMaster).Result()
		if err != nil {
			return false
		}
		up := 0
		for _, replica := range known {
			if replica["flags"] == "slave" && replica["master-link-status"] == "ok" {
				up++
			}
		}
		return up == len(replicas)
	})
	return sentinel
}

// URL returns the URL of the sentinel, in the form of package queue.
func (s *Sentinel) URL() string {
	return "redis+sentinel://" + s.process.Addr() + "/" + sentinelMaster
}

// Primary returns the host:port of the current primary.
func (s *Sentinel) Primary() string {
	s.t.Helper()
	addr, err := s.client.GetMasterAddrByName(s.t.Context(), sentinelMaster).Result()
	if err != nil {
		s.t.Fatalf("redistest: sentinel: %v", err)
	}
	return strings.Join(addr, ":")
}

// Tolerate sets for how long a server may be silent before the sentinel takes it for down, or for too
// bad to be made the primary. A sentinel takes no replica that has not answered five of its pings.
func (s *Sentinel) Tolerate(silence time.Duration) {
	s.t.Helper()
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	if err := s.client.Set(s.t.Context(), sentinelMaster, "down-after-milliseconds", ms(silence)).Err(); err != nil {
		s.t.Fatalf("redistest: sentinel: %v", err)
	}
	pings := redis.NewStatusCmd(s.t.Context(), "sentinel", "debug", "ping-period", ms(silence/5))
	if err := s.client.Process(s.t.Context(), pings); err != nil {
		s.t.Fatalf("redistest: sentinel: %v", err)
	}
}

// Failover begins a planned failover to a replica, which works on while the sentinel waits for it.
// It returns when the sentinel has told the replica. [Sentinel.WaitPrimary] waits for the end.
func (s *Sentinel) Failover() {
	s.t.Helper()
	if err := s.client.Failover(s.t.Context(), sentinelMaster).Err(); err != nil {
		s.t.Fatalf("redistest: sentinel: %v", err)
	}
	until.Done(s.t, "redistest: failover that has begun", func() bool {
		master, err := s.client.Master(s.t.Context(), sentinelMaster).Result()
		return err == nil && (master["failover-state"] == "wait_promotion" || s.Primary() != s.at)
	})
}

// WaitPrimary waits until the sentinel has made a server the primary.
func (s *Sentinel) WaitPrimary(server *Server) {
	s.t.Helper()
	until.Done(s.t, "redistest: failover", func() bool {
		return s.Primary() == server.Addr() && info(s.t, server.Client())["role"] == "master"
	})
}
