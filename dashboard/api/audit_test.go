package api

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestRefusalsHideNoChange: however many requests were refused since, the audit answers with the changes, and with the
// newest refusals in what is left.
func TestRefusalsHideNoChange(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := newRig(t, server, nil)
	r.publish(throttle.PerSecond(2))
	now := time.Now()
	for i, queue := range append([]string{r.queue}, make([]string, 300)...) {
		entry := operate.AuditEntry{At: now.Add(time.Duration(i+1) * time.Second), Actor: "nobody", Action: "refused", Queue: queue, Reason: "no key"}
		if err := server.Client().LPush(t.Context(), refusedKey, mustJSON(entry)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for query, want := range map[string][2]int{ // changes and refusals
		"?limit=20":                  {2, 18},
		"?limit=4":                   {2, 2},
		"?limit=2":                   {2, 0},
		"?limit=1":                   {1, 0},
		"?limit=20&queue=" + r.queue: {2, 1},
	} {
		body := r.want(200, "", "GET", "/audit"+query, "").body
		got := [2]int{strings.Count(body, `"action":"publish"`), strings.Count(body, `"action":"refused"`)}
		if got != want {
			t.Errorf("%s has %d changes and %d refusals; want %v", query, got[0], got[1], want)
		}
	}
	for _, e := range r.want(200, "", "GET", "/audit?limit=4", "").get(t, "entries").([]any) {
		if of := e.(map[string]any); of["action"] == "refused" && of["queue"] == r.queue {
			t.Errorf("an old refusal before newer ones: %v", of)
		}
	}
}

// TestAuditBesideAQueueAway: the audit has the entries of the queues that answer, and names the others; also without
// the refused requests.
func TestAuditBesideAQueueAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), nil)
	if err := operate.Publish(t.Context(), r.redis, limits.Set{Queues: map[string]limits.Queue{"gone": {}}}); err != nil {
		t.Fatal(err)
	}
	if body := r.want(200, `"queue":"gone"`, "GET", "/audit", "").body; strings.Contains(body, `"away"`) {
		t.Error(body)
	}
	var away atomic.Value
	away.Store("{gone}")
	r.redis.AddHook(redistest.OnRequest(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if strings.Contains(fmt.Sprint(cmds), away.Load().(string)) {
			return &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
		}
		return send()
	}))
	got := r.want(200, `"queue":"`+r.queue+`"`, "GET", "/audit", "")
	if named := fmt.Sprint(got.get(t, "away")); named != "[gone]" || strings.Contains(got.body, `"queue":"gone"`) {
		t.Errorf("%s are away: %s", named, got.body)
	}
	r.want(503, "Redis does not answer", "GET", "/audit?queue=gone", "")
	away.Store(refusedKey)
	got = r.want(200, `"queue":"gone"`, "GET", "/audit", "")
	if named := fmt.Sprintf("%q", got.get(t, "away")); named != `[""]` {
		t.Errorf("%s are away: %s", named, got.body)
	}
	away.Store("") // in every command
	r.want(503, "Redis does not answer", "GET", "/audit", "")
}
