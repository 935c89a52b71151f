package main

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/endpoints"
	"github.com/headgate/headgate/internal/test/redistest"
)

func TestEndpoints(t *testing.T) {
	server := redistest.Start(t)
	store := endpoints.New(server.Client(), slog.New(slog.DiscardHandler))
	store.Gone(t.Context(), "acme", "https://a.example/T0K3N", "a.example")
	store.Gone(t.Context(), "globex", "https://g.example/", "g.example")

	out, errText, code := enqueue(t, "", "endpoints", "list", "--redis", server.URL(), "--tenant", "acme", "--json")
	var list []endpoints.Endpoint
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != exitOK || len(list) != 1 || list[0].Host != "a.example" || strings.Contains(out, "T0K3N") {
		t.Fatalf("%s %s, exit %d, %v", out, errText, code, err)
	}
	if out, _, _ := enqueue(t, "", "endpoints", "list", "--redis", server.URL()); !strings.Contains(out, "g.example") || !strings.Contains(out, "(in 2") {
		t.Error(out)
	}
	for _, want := range []string{" is called again\n", " was not left alone\n"} {
		if out, errText, code := enqueue(t, "", "endpoints", "enable", list[0].ID, "--redis", server.URL()); code != exitOK || !strings.HasSuffix(out, want) {
			t.Errorf("%s %s, exit %d; want %q", out, errText, code, want)
		}
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
