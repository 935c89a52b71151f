package main

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/endpoints"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

func TestEndpoints(t *testing.T) {
	server := redistest.Start(t)
	if err := operate.Publish(t.Context(), server.Client(), limits.Set{Queues: map[string]limits.Queue{"webhook": {}}}); err != nil {
		t.Fatal(err)
	}
	store := endpoints.New(server.Client(), slog.New(slog.DiscardHandler))
	store.Gone(t.Context(), "webhook", "acme", "https://a.example/T0K3N", "a.example")
	store.Gone(t.Context(), "webhook", "globex", "https://g.example/", "g.example")

	out, errText, code := enqueue(t, "", "endpoints", "list", "--redis", server.URL(), "--tenant", "acme", "--json")
	var list []endpoints.Endpoint
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != exitOK || len(list) != 1 || list[0].Host != "a.example" || strings.Contains(out, "T0K3N") {
		t.Fatalf("%s %s, exit %d, %v", out, errText, code, err)
	}
	if out, _, _ := enqueue(t, "", "endpoints", "list", "--redis", server.URL()); !strings.Contains(out, "g.example") || !strings.Contains(out, "(in 2") {
		t.Error(out)
	}
	if _, errText, code := enqueue(t, "", "endpoints", "enable", list[0].ID, "--redis", server.URL()); code != exitUsage || !strings.Contains(errText, "--reason: ") {
		t.Errorf("%s, exit %d", errText, code)
	}
	if out, errText, code := enqueue(t, "", "endpoints", "enable", "none", list[0].ID, "--redis", server.URL(), "--reason", "mended"); code != exitPartial ||
		!strings.HasSuffix(out, " is called again; 0 jobs that waited for it go now\n") || !strings.Contains(errText, `there is no endpoint "none"`) {
		t.Errorf("%s %s, exit %d", out, errText, code)
	}
	if out, errText, code := enqueue(t, "", "endpoints", "enable", list[0].ID, "--redis", server.URL(), "--reason", "mended"); code != exitUsage || out != "" || !strings.Contains(errText, "there is no endpoint") {
		t.Errorf("%s %s, exit %d", out, errText, code)
	}
	entries, err := operate.Audit(t.Context(), server.Client(), "webhook", 10)
	if err != nil || len(entries) != 2 || entries[1].Action != "publish" || entries[0].Action != "enable" || entries[0].Reason != "mended" || !strings.HasPrefix(entries[0].Actor, "cli:") {
		t.Errorf("%+v, %v", entries, err)
	}
	if out, _, _ := enqueue(t, "", "endpoints", "list", "--redis", server.URL()); strings.Contains(out, "a.example") {
		t.Error(out)
	}
	if _, errText, code := enqueue(t, "", "endpoints", "enable"); code != exitUsage || !strings.Contains(errText, "name an endpoint") {
		t.Errorf("%s, exit %d", errText, code)
	}
	if _, errText, code := enqueue(t, "", "endpoints", "enabel", "x"); code != exitUsage || !strings.Contains(errText, `did you mean "enable"?`) {
		t.Errorf("%s, exit %d", errText, code)
	}
}
