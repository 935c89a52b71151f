package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
	"github.com/headgate/headgate/throttle"
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
			for i, node := range cluster.Nodes() { // a worker that reports to each
				id := fmt.Sprint("w", i)
				for owner(workers.Key(id)) != node {
					id += "w"
				}
				seen := time.Now().Add(time.Hour)
				text, err := json.Marshal(workers.Info{ID: id, Seen: seen, Queues: []string{served, away}, Kinds: []string{"call"}})
				if err != nil {
					t.Fatal(err)
				}
				for _, err := range []error{client.Set(ctx, workers.Key(id), text, 0).Err(), client.ZAdd(ctx, workers.ListKey, redis.Z{Score: float64(seen.UnixMicro()), Member: id}).Err()} {
					if err != nil {
						t.Fatal(err)
					}
				}
			}
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
			// A program that starts now does not know what the workers serve, and so does not say that nobody does.
			if o, err := inspect.New(client).Overview(ctx, served); err != nil || o.Waiting != 2 || len(o.Unserved) != 0 {
				t.Errorf("looked at anew: %d wait, unserved: %v, %v", o.Waiting, o.Unserved, err)
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

// TestRepliesToChangesAreLost: who changes something learns that it may have been made, and in which part.
func TestRepliesToChangesAreLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), nil)
	r.publish(throttle.PerSecond(10))
	id, _ := r.want(202, "", "POST", "/jobs", r.job("acme", "")).get(t, "id").(string)
	var lost atomic.Bool
	var away atomic.Value // the partition that does not answer
	away.Store("")
	failure := &net.OpError{Op: "read", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 6379}, Err: os.ErrDeadlineExceeded}
	r.redis.AddHook(redistest.OnRequest(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		text := fmt.Sprint(cmds)
		if name := away.Load().(string); name != "" && strings.Contains(text, "{"+name+"}") {
			return failure
		}
		err := send()
		if last := cmds[len(cmds)-1].Name(); lost.Load() && err == nil && (last == "exec" || strings.HasPrefix(last, "eval") && strings.Contains(text, "a test")) {
			return failure
		}
		return err
	}))
	at := "/queues/" + r.queue
	const unsure = "Redis does not answer. The change may have been made all the same, or in part: look, or repeat the request."
	for _, change := range []struct{ method, path, body, made string }{
		{"POST", at + "/pause", `{"tenant":"acme","reason":"a test"}`, `"action":"pause"`},
		{"POST", at + "/resume", `{"tenant":"acme","reason":"a test"}`, `"action":"resume"`},
		{"PUT", at + "/tenants/acme/limits/tenant", `{"rate":"5/s","reason":"a test"}`, `"action":"override"`},
		{"DELETE", at + "/tenants/acme/limits/tenant", `{"reason":"a test"}`, `"action":"clear"`},
		{"POST", at + "/jobs/" + id + "/cancel", `{"reason":"a test"}`, `"action":"cancel"`},
		{"POST", at + "/actions", `{"verb":"delete","reason":"a test"}`, `"action":"delete"`},
	} {
		lost.Store(true)
		got := r.do(change.method, change.path, change.body)
		lost.Store(false)
		if detail := fmt.Sprint(got.get(t, "detail")); got.status != 503 || detail != unsure || strings.Contains(got.body, "10.1.2.3") {
			t.Errorf("%s %s: %d %s", change.method, change.path, got.status, got.body)
		}
		r.want(200, change.made, "GET", "/audit", "")
	}

	if err := operate.Publish(t.Context(), r.redis, limits.Set{Queues: map[string]limits.Queue{r.queue: {Partitions: 4}}}); err != nil {
		t.Fatal(err)
	}
	lost.Store(true)
	r.want(503, unsure, "POST", at+"/pause", `{"reason":"a test"}`) // in all of them
	lost.Store(false)
	away.Store(r.queue + "@2")
	for _, path := range []string{"/pause", "/resume"} {
		r.want(503, "Redis does not answer for 1 of the 4 partitions of the queue, which may be as before, or changed in part. The change was made in the others", "POST", at+path, `{"reason":"a test"}`)
	}
	r.want(503, "This request changed nothing.", "POST", at+"/actions", `{"verb":"cancel","dry_run":true}`)
}
