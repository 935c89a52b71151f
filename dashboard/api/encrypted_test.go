package api

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/encryption"
)

// TestEncryptedPayloads: a server with payload keys encrypts what it enqueues, and shows it with
// secrets hidden; one without them says which key it lacks.
func TestEncryptedPayloads(t *testing.T) {
	keys, err := encryption.Parse("k1:" + strings.Repeat("A", 43) + "=")
	if err != nil {
		t.Fatal(err)
	}
	server := redistest.Shared(t)
	r := newRig(t, server, func(c *Config) { c.PayloadKeys = keys })
	job := strings.Replace(r.job("acme", ""), `"n":1`, `"name":"CANARY","password":"pw"`, 1)
	id := r.want(202, "", "POST", "/jobs", job).get(t, "id").(string)
	if msg := server.Client().HGet(t.Context(), "asynq:{"+r.queue+"}:t:"+id, "msg").Val(); msg == "" || strings.Contains(msg, "CANARY") {
		t.Errorf("Redis has %q", msg)
	}
	path := "/queues/" + r.queue + "/jobs/" + id
	if got := r.want(200, `"CANARY"`, "GET", path, ""); strings.Contains(got.body, `"pw"`) || strings.Contains(got.body, "locked") {
		t.Errorf("with the key: %s", got.body)
	}
	other := newRig(t, server, nil)
	got := other.want(200, `encrypted with key \"k1\"`, "GET", path, "")
	if strings.Contains(got.body, "CANARY") || !strings.Contains(got.body, `"payload":null`) {
		t.Errorf("without the key: %s", got.body)
	}
}

// TestRedisFull: a full Redis is told politely.
func TestRedisFull(t *testing.T) {
	r := newRig(t, redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "noeviction"), func(c *Config) { c.FullAt = 0.001 })
	if got := r.want(503, `"code":"redis_full"`, "POST", "/jobs", r.job("acme", "")); got.header.Get("Retry-After") == "" || strings.Contains(got.body, "maxmemory") {
		t.Errorf("%v %s", got.header, got.body)
	}
	r.want(207, `"redis_full"`, "POST", "/jobs/batch", r.job("acme", ""), "Content-Type", "application/x-ndjson")
}
