package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
)

// TestStreamBesideAMasterAway: while a node of a Cluster does not answer, its queue is shown as it was, and
// those of other nodes as they are.
func TestStreamBesideAMasterAway(t *testing.T) {
	for name, fail := range map[string]func(*redistest.Server){"dies": (*redistest.Server).Kill, "hangs": (*redistest.Server).Pause} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000")
			client, ctx := cluster.Client(), t.Context()
			owner := func(key string) *redistest.Server { return cluster.Owner(cluster.Slot(key)) }
			needed := []*redistest.Server{owner("asynq:queues"), owner(workers.ListKey)}
			named := func(name string, answers bool) string {
				for slices.Contains(needed, owner("{"+name+"}")) != answers {
					name += "q"
				}
				return name
			}
			away, served := named("away", false), named("served", true) // in the order in which they are read
			if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{served: {}, away: {}}}); err != nil {
				t.Fatal(err)
			}
			enqueue := func(name string) {
				t.Helper()
				if _, err := queue.NewClient(client).Enqueue(ctx, queue.Job{Kind: "call", Queue: name, Tenant: "acme"}); err != nil {
					t.Fatal(err)
				}
			}
			enqueue(served)
			enqueue(away)
			ops, opsHash := NewKey()
			acme, acmeHash := NewKey()
			keys := NewKeys([]Key{{ID: "ops", Hash: opsHash, Scopes: []Scope{Admin}}, {ID: "acme", Hash: acmeHash, Scopes: []Scope{Read}, Tenants: []string{"acme"}}})
			api, err := New(Config{Redis: client, Version: "v1", Keys: func() *Keys { return keys }})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(api)
			t.Cleanup(server.Close)
			running, cancel := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- api.Run(running) }()
			t.Cleanup(func() {
				cancel()
				<-ended
			})
			operator := &rig{t: t, server: server, http: http.DefaultClient, key: ops}
			tenant := &rig{t: t, server: server, http: http.DefaultClient, key: acme}
			stream, own := operator.watch(""), tenant.watch("")
			// until waits until the two queues have so many jobs, and returns what is said of the one that is away.
			until := func(stream *watching, ofServed, ofAway float64) (unserved string) {
				t.Helper()
				for end := time.Now().Add(time.Minute); ; {
					overview, waiting := stream.next("overview"), map[string]float64{}
					if ok := overview["redis"].(map[string]any)["ok"]; ok != true { // a busy machine may not answer once
						if time.Now().After(end) {
							t.Fatalf("redis: %v", overview["redis"])
						}
						continue
					}
					for _, q := range overview["queues"].([]any) {
						q := q.(map[string]any)
						if waiting[q["queue"].(string)] = q["waiting"].(float64); q["queue"] == away {
							unserved = fmt.Sprint(q["unserved"])
						}
					}
					if waiting[served] == ofServed && waiting[away] == ofAway && len(waiting) == 2 {
						return unserved
					}
				}
			}
			points := func() int {
				_, all := api.watch.history.of(away)
				return len(all)
			}
			until(own, 1, 1)
			for until(stream, 1, 1); points() == 0; {
				stream.next("overview")
			}
			fail(owner("{" + away + "}"))
			enqueue(served)
			says := "queue " + away + " does not answer"
			for _, stream := range []*watching{stream, own} {
				// It may have answered in the reading that saw the new job of the other one.
				for !strings.Contains(until(stream, 2, 1), says) {
				}
			}
			for _, who := range []*rig{operator, tenant} {
				who.want(200, says, "GET", "/queues", "")
			}
			if points() == 0 {
				t.Error("its history is gone")
			}
			shares := func() (at time.Time) {
				api.shares.mu.Lock()
				defer api.shares.mu.Unlock()
				for _, u := range api.shares.queues {
					u.due = time.Time{}
				}
				if u := api.shares.queues[served]; u != nil {
					at = u.at
				}
				return at
			}
			before := shares()
			if api.shares.read(ctx); !shares().After(before) {
				t.Error("who calls in the other queue is not read")
			}
		})
	}
}
