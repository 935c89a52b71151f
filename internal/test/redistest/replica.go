package redistest

import (
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/until"
)

// StartReplica starts a replica of the server, which is in sync when StartReplica returns.
func (s *Server) StartReplica(config ...string) *Server {
	s.t.Helper()
	replica := Start(s.t, config...)
	replica.Follow(s)
	return replica
}

// Follow makes the server a replica of another, and discards its data.
func (s *Server) Follow(primary *Server) {
	s.t.Helper()
	primary.own("replicate", func() error {
		// By default, the primary waits five seconds for a second replica.
		return primary.Client().ConfigSet(s.t.Context(), "repl-diskless-sync-delay", "0").Err()
	})
	host, port := primary.hostPort()
	s.own("turn", func() error { return s.Client().ReplicaOf(s.t.Context(), host, port).Err() })
	primary.Sync(s)
}

// Sync waits until a replica has all writes.
func (s *Server) Sync(replica *Server) {
	s.t.Helper()
	until.Done(s.t, "redistest: replica in step", func() bool {
		theirs := info(s.t, replica.Client())
		return theirs["master_link_status"] == "up" && theirs["slave_repl_offset"] == info(s.t, s.Client())["master_repl_offset"]
	})
}

// Promote makes a replica a primary, as in a failover. It does not get later writes to its old
// primary.
func (s *Server) Promote() {
	s.t.Helper()
	s.own("promote", func() error { return s.Client().ReplicaOf(s.t.Context(), "NO", "ONE").Err() })
}

// FillMemory makes the server refuse commands that need memory, as if it had reached maxmemory.
func (s *Server) FillMemory() {
	s.t.Helper()
	s.own("fill", func() error { return s.Client().ConfigSet(s.t.Context(), "maxmemory", "1").Err() })
}

func (s *Server) hostPort() (host, port string) {
	host, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	return host, port
}

func info(t testing.TB, client *redis.Client) map[string]string {
	t.Helper()
	sections, err := client.InfoMap(t.Context(), "replication").Result()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return sections["Replication"]
}
