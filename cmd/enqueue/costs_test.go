package main

import (
	"encoding/json"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
)

func TestSendWithCosts(t *testing.T) {
	server := redistest.Start(t)
	publishEmpty(t, server.Client(), "q")
	out, errText, code := enqueue(t, "", "send", "--redis", server.URL(), "--queue", "q", "--kind", "call", "--tenant", "a", "--payload", "1",
		"--costs", "tokens=1200", "--costs", "cents=5", "--key", "k", "--key-until", "ended", "--json")
	if code != exitOK {
		t.Fatalf("%q %q, exit %d", out, errText, code)
	}
	var sent struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(out), &sent); err != nil {
		t.Fatal(err)
	}
	task := "asynq:{q}:t:" + sent.ID
	if got := server.Client().HGet(t.Context(), task, "hg_costs").Val(); got != "cents=5;tokens=1200" {
		t.Errorf("costs %q", got)
	}
	if got := server.Client().Get(t.Context(), "headgate:{q}:unique:a:k").Val(); got != sent.ID {
		t.Errorf("the key is held by %q; want %s", got, sent.ID)
	}
}
